"""``coral-pipeline run`` as a user meets it, in this process: options, bad input, a root that fails."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from coral_pipeline import cli, tables
from coral_pipeline_tests.student_runs import S, snapshot_name, write_student_run

SCORES = [1.0, 1.2, None, 1.4, 1.9, 2.0, 2.3, 2.6, None, 2.8, 2.9, 3.0]
SMALL = {"search": {"max_depth": 2, "max_logical_edges": 5}, "teacher": {"name": "simulated"}}
LATEST_ROOT = snapshot_name(11)
"""Of three."""


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """The command; returns its exit code, stdout and stderr."""

    def command(*arguments: object) -> Result:
        monkeypatch.setattr(sys, "argv", ["coral-pipeline", "run", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsys.readouterr()
        return Result(int(ended.value.code or 0), out, err)

    return command


@pytest.fixture
def student_run(tmp_path: Path) -> Path:
    return write_student_run(tmp_path / "somewhere" / "small-run", SCORES)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A settings file with which trees take no time."""
    path = tmp_path / "small.yaml"
    path.write_text(yaml.safe_dump(SMALL))
    return path


@pytest.mark.slow
def test_a_root_that_fails_does_not_stop_the_others_and_is_named_at_the_end(
    run: Any, student_run: Path, small: Path, tmp_path: Path
) -> None:
    out, bad = tmp_path / "out", LATEST_ROOT
    (out / "explored_trees" / "small-run").mkdir(parents=True)
    (out / "explored_trees" / "small-run" / bad).write_text("in the way")
    result = run(student_run, "--out", out, "--num-roots", 3, "--settings", small)
    assert result.code == 1
    lines = result.err.splitlines()
    assert len(lines) == 4 and lines[-1].startswith(f"coral-pipeline: {bad}: ") and "Traceback" not in result.err
    rows = tables.SELECTED_ROOTS.rows(out / "selected_roots" / "small-run")
    for root in (row["root"] for row in rows if row["root"] != bad):
        assert (out / "explored_trees" / "small-run" / root / "tree.json").is_file()
    assert "2 of 2 trees" in result.out
    (out / "explored_trees" / "small-run" / bad).unlink()
    assert run(student_run, "--out", out, "--num-roots", 3, "--settings", small).code == 0


@pytest.mark.slow
def test_options_go_before_the_settings_file_and_both_are_kept_with_the_output(
    run: Any, student_run: Path, tmp_path: Path
) -> None:
    given = tmp_path / "given.yaml"
    given.write_text(yaml.safe_dump({"selection": {"num_roots": 7}, "search": {"max_depth": 1}, "paths": {"top_k": 2}}))
    out = tmp_path / "out"
    result = run(student_run, "--out", out, "--teacher", "simulated", "--num-roots", 2, "--settings", given)
    assert result.code == 0
    kept = yaml.safe_load((out / "settings.yaml").read_text())
    assert (kept["selection"]["num_roots"], kept["search"]["max_depth"], kept["paths"]["top_k"]) == (2, 1, 2)
    assert kept["teacher"]["name"] == "simulated"
    rows = tables.SELECTED_ROOTS.rows(out / "selected_roots" / "small-run")
    assert len(rows) == 2
    for row in rows:
        info = json.loads((out / "explored_trees" / "small-run" / row["root"] / "tree.json").read_text())
        assert info["configuration"]["search"]["max_depth"] == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--teacher", "nobody"], "'nobody' is not one of"),
        (["--teacher", "scripted"], "needs --script FILE"),
        (["--num-roots", "0"], "--num-roots"),
        (["--trees-at-once", "0"], "--trees-at-once"),
        (["--width", "0"], "--width"),
    ],
)
def test_wrong_usage_exits_with_2(run: Any, student_run: Path, tmp_path: Path, arguments: list[str], says: str) -> None:
    result = run(student_run, "--out", tmp_path / "out", *arguments)
    assert result.code == 2 and says in result.err
    assert not (tmp_path / "out").exists()


def test_input_that_cannot_be_used_exits_with_1_and_one_line(run: Any, student_run: Path, tmp_path: Path) -> None:
    def refused(*arguments: object) -> str:
        result = run(*arguments)
        assert (result.code, result.out) == (1, "")
        (line,) = result.err.splitlines()
        return str(line)

    out = tmp_path / "out"
    assert f"{tmp_path / 'nowhere'}: is missing" in refused(tmp_path / "nowhere", "--out", out)
    assert "overlaps the Student run" in refused(student_run, "--out", student_run / "out")
    assert "cannot be read" in refused(student_run, "--out", out, "--settings", tmp_path / "none.yaml")
    assert "the embedded teacher asks none" in refused(student_run, "--out", out, "--width", "auto")
    (tmp_path / "file").write_text("")
    assert f"{tmp_path / 'file'}" in refused(student_run, "--out", tmp_path / "file")
    student_run.rename(student_run.with_name("a b"))
    assert "'a b': cannot be part of a partition key" in refused(student_run.with_name("a b"), "--out", out)


def test_stages_that_fail_say_so_in_one_line(run: Any, tmp_path: Path) -> None:
    without_scores = write_student_run(tmp_path / "unscored", [None, None])
    result = run(without_scores, "--out", tmp_path / "a")
    assert result.code == 1
    assert "none of the 2 kept snapshots has a numeric score" in result.err and len(result.err.splitlines()) == 1
    without_roots = write_student_run(tmp_path / "rootless", [S(1.0, eval_ok=False), S(2.0, eval_ok=False)])
    result = run(without_roots, "--out", tmp_path / "b")
    assert result.code == 1
    assert "no snapshot is eligible" in result.err and len(result.err.splitlines()) == 1


def test_help_teaches(run: Any) -> None:
    result = run("--help")
    assert result.code == 0
    for word in ("STUDENT_RUN", "explored_trees", "Example:", "same command goes on"):
        assert word in result.out
