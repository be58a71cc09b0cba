# Two commands set everything up on a fresh machine (Python 3.11-3.13, git, make, node/npm, apt):
#   make run    the whole pipeline on the bundled Student run
#   make test   every test
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt
JOBS ?= 3
# More test workers than cores: many tests wait for daemons, servers and browsers. Tests of a file share what it starts.

.PHONY: run ui test test-fast lint benchmarks system-packages clean

run: $(VENV)/.installed
	$(BIN)/coral-pipeline run data/student_runs/tour --num-roots 6

ui: $(VENV)/.installed
	mkdir -p data/output/dagster_home
	DAGSTER_HOME=$(CURDIR)/data/output/dagster_home $(BIN)/dagster dev -w workspace.yaml

test: $(VENV)/.installed-test system-packages lint
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder --durations 25

test-fast: $(VENV)/.installed-test
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile -m "not slow"

lint: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy coral_pipeline

benchmarks: $(VENV)/.installed-test
	for benchmark in benchmarks/bench_*.py; do echo "== $$benchmark"; $(BIN)/python $$benchmark || exit 1; done

$(VENV)/.installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) --editable .
	touch $@

$(VENV)/.installed-test: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) --editable '.[test]'
	touch $(VENV)/.installed $@

# What the tests use beside Python: a browser for what people see, a sandbox and a search tool for the agents,
# Postgres for events of several machines.
system-packages:
	@missing=""; \
	for pair in chromium:chromium bwrap:bubblewrap rg:ripgrep; do \
	  command -v $${pair%%:*} >/dev/null || missing="$$missing $${pair##*:}"; \
	done; \
	command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || missing="$$missing postgresql"; \
	if [ -n "$$missing" ]; then \
	  sudo=""; [ "$$(id -u)" = 0 ] || sudo=sudo; \
	  $$sudo apt-get update --quiet --quiet && $$sudo apt-get install --yes --quiet --quiet $$missing; \
	fi

clean:
	rm -rf build data/output .pytest_cache .hypothesis .ruff_cache .mypy_cache
