"""The Student run's task.yaml: CORAL's configuration without secrets and paths of the machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from coral_pipeline.errors import BadInput
from coral_pipeline.student_run.importing import import_run
from coral_pipeline.student_run.reading import read_direction
from coral_pipeline.student_run.task_config import student_task
from coral_pipeline_tests.coral_runs import CoralRun


def cleaned(config: dict[str, Any]) -> Any:
    return yaml.safe_load(student_task(yaml.safe_dump(config).encode()))


def test_task_grader_and_sharing_stay_and_of_the_agents_who_they_were() -> None:
    config = {
        "task": {"name": "T", "description": "Do it.\n\nBetter: ü.", "tips": ""},
        "grader": {"direction": "minimize", "timeout": 20, "args": {"n": 3, "deep": [1, 2.5, None, True]}},
        "sharing": {"notes": True},
        "agents": {"count": 2, "runtime": "opencode", "model": "some/model", "max_turns": 200},
    }
    assert cleaned(config) == config


def test_gateway_runtime_options_workspace_and_run_are_left_behind() -> None:
    agents = {
        "count": 1,
        "gateway": {"api_key": "sk-1", "config": "/etc/litellm.yaml"},
        "runtime_options": {"env": {"KEY": "sk-2"}},
        "assignments": [{"runtime": "codex", "model": "m", "count": 2, "runtime_options": {"key": "sk-3"}}],
        "skills": ["/home/alice/skills"],
    }
    found = cleaned({"agents": agents, "workspace": {"run_dir": "/srv/x"}, "run": {"session": "docker"}})
    assert found == {"agents": {"count": 1, "assignments": [{"runtime": "codex", "model": "m", "count": 2}]}}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("/srv/runs/one/grader/data.json", "grader/data.json"),
        ("/srv/runs/one", ""),
        ("pip install -e /srv/runs/one/grader && cd /srv/runs/one", "pip install -e grader && cd "),
        ("/srv/runs/one-more/data", "data"),  # in none of those folders: the last part stays
        ("/opt/data/answers.json", "answers.json"),
        ("~/answers.json", "answers.json"),
        ("C:\\Users\\alice\\answers.json", "answers.json"),
        ("read /home/alice/data and /Users/bob/x", "read ~/data and ~/x"),
        ("run /usr/bin/env python", "run /usr/bin/env python"),
        ("a/b and 1/2", "a/b and 1/2"),
        ("OPENAI_API_KEY=sk-123 HF_TOKEN=hf-1 N=2 make", "OPENAI_API_KEY= HF_TOKEN= N=2 make"),
        ("HF_TOKENS=a,b MAX_TOKENS=5 --max-tokens=5 make", "HF_TOKENS= MAX_TOKENS=5 --max-tokens=5 make"),
        ("pip install git+https://me:pw@example.org/x", "pip install git+https://example.org/x"),
    ],
)
def test_paths_and_secrets_in_text(value: str, expected: str) -> None:
    config = {
        "grader": {"setup": [value], "args": {"value": value}},
        "workspace": {"run_dir": "/srv/runs/one", "base_dir": "", "results_dir": "./results"},
    }
    grader = cleaned(config)["grader"]
    assert grader == {"setup": [expected], "args": {"value": expected}}


def test_secrets_by_their_name() -> None:
    secret = {
        "api_key": "k",
        "OPENAI_API_KEY": "k",
        "judge-token": "k",
        "password": 123456,
        "credentials": {"user": "u", "key": "s3cr3t"},
        "api_keys": ["sk-1"],
        "tokens": ["hf"],
        "HF_TOKENS": "hf",
    }
    kept = {"max_tokens": 5, "key": "k", "token": None, "use_credentials": True, "tokenizer": "t", "passwordless": "x"}
    assert cleaned({"grader": {"args": secret | kept}})["grader"]["args"] == dict.fromkeys(secret, "") | kept


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        (b"", "not a mapping"),
        (b"- a", "not a mapping"),
        (b"task: [", "while parsing"),
        (b"task: \xff", "unacceptable|decode"),
        (b"task: !!python/object/apply:os.system [true]", "could not determine a constructor"),
        (b"task: !!int ''", ""),
        (b"task: " + b"[" * 1000, "recursion"),
        (b"task: &a [*a]", "holds itself"),
        (
            b"task: {a: &a [1,1,1,1,1,1,1,1,1,1],"
            + b",".join(b"%c: &%c [%s]" % (c + 1, c + 1, b",".join([b"*%c" % c] * 10)) for c in b"abcdefgh")
            + b"}",
            "more than 100000 values",
        ),
    ],
)
def test_a_configuration_that_is_none_is_refused_before_anything_is_written(
    tmp_path: Path, config: bytes, problem: str
) -> None:
    run = CoralRun(tmp_path / "run")
    run.attempt(1.0)
    (run.path / ".coral" / "config.yaml").write_bytes(config)
    with pytest.raises(BadInput, match=rf"config.yaml: cannot be used: .*({problem})"):
        import_run(run.path, tmp_path / "student")
    assert not (tmp_path / "student").exists()


def test_what_only_the_grader_may_see_comes_along(tmp_path: Path) -> None:
    config = "grader: {private: [data/cases, /srv/answers.json, never/copied.json]}\n"
    run = CoralRun(tmp_path / "run", config=config)
    run.attempt(1.0)
    private = run.path / ".coral" / "private"
    (private / "cases").mkdir()
    (private / "cases" / "hard.txt").write_text("hard")
    (private / "answers.json").write_text("[]")
    (private / "grader_venv").mkdir()
    student = tmp_path / "student"
    import_run(run.path, student)
    assert sorted(path.name for path in (student / "private").iterdir()) == ["answers.json", "cases"]
    assert (student / "private" / "cases" / "hard.txt").read_text() == "hard"
    assert (student / "grader" / "grader.py").is_file()
    import_run(run.path, student)


def test_of_private_files_that_share_a_name_the_one_that_coral_kept_comes_along(tmp_path: Path) -> None:
    run = CoralRun(tmp_path / "run", config="grader: {private: [a/x.csv, b/x.csv]}\n")
    run.attempt(1.0)
    (run.path / ".coral" / "private" / "x.csv").write_text("b")
    import_run(run.path, tmp_path / "student")
    assert [path.read_text() for path in (tmp_path / "student" / "private").iterdir()] == ["b"]


def test_the_direction_of_the_run_is_kept(tmp_path: Path) -> None:
    run = CoralRun(tmp_path / "run", config="grader: {direction: minimize}\n")
    run.attempt(1.0)
    import_run(run.path, tmp_path / "student")
    assert read_direction(tmp_path / "student") == "minimize"
