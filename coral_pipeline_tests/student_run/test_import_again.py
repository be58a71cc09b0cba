"""Importing into a folder that is there: what is new is added, and nothing else changes."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from coral_pipeline.errors import BadInput
from coral_pipeline.student_run.destination import open_destination
from coral_pipeline.student_run.importing import import_run
from coral_pipeline_tests.coral_runs import (
    CoralRun,
    contents,
    fingerprint,
)


def test_only_new_attempts_are_added(run: CoralRun, student_run: Path, tmp_path: Path) -> None:
    run.attempt(1.0)
    run.attempt(2.0, checkpoint=False)
    import_run(run.path, student_run)
    before = fingerprint(student_run / "all_snapshots")
    run.attempt(3.0)
    outcome = import_run(run.path, student_run)
    assert outcome.written == 1
    after = fingerprint(student_run / "all_snapshots")
    assert {name: after[name] for name in before if name != "."} == {n: before[n] for n in before if n != "."}
    import_run(run.path, tmp_path / "at once")
    assert contents(student_run) == contents(tmp_path / "at once")


def test_an_attempt_that_comes_late_does_not_renumber_the_others(run: CoralRun, student_run: Path) -> None:
    run.attempt(1.0)
    second = run.attempt(2.0)
    import_run(run.path, student_run)
    before = contents(student_run)
    run.attempt(3.0, timestamp="2026-05-01T12:00:01.5+00:00")
    prefix = second["commit_hash"][:12]
    with pytest.raises(BadInput, match=rf"eval-000002-agent-1-{prefix}: would now be eval-000003-agent-1-{prefix}"):
        import_run(run.path, student_run)
    assert contents(student_run) == before


def test_another_coral_run_does_not_go_into_the_same_folder(run: CoralRun, student_run: Path, tmp_path: Path) -> None:
    run.attempt(1.0)
    import_run(run.path, student_run)
    before = contents(student_run)
    other = CoralRun(tmp_path / "other")
    other.attempt(1.0, code={"solve.py": "of the other run"})
    with pytest.raises(BadInput, match="is no snapshot of this CORAL run"):
        import_run(other.path, student_run)
    assert contents(student_run) == before


def test_a_folder_with_something_else_in_it_is_left_alone(run: CoralRun, student_run: Path) -> None:
    run.attempt(1.0)
    (student_run / "all_snapshots").mkdir(parents=True)
    (student_run / "task.yaml").write_text("mine")
    before = fingerprint(student_run)
    with pytest.raises(BadInput, match="holds something that no import made"):
        import_run(run.path, student_run)
    assert fingerprint(student_run) == before


def test_a_file_in_the_place_of_the_student_run_is_left_alone(run: CoralRun, student_run: Path) -> None:
    run.attempt(1.0)
    student_run.write_text("mine")
    with pytest.raises(BadInput, match="is not a folder"):
        import_run(run.path, student_run)
    assert student_run.read_text() == "mine"


def test_what_the_disk_refuses_is_named(run: CoralRun, student_run: Path) -> None:
    run.attempt(1.0)
    import_run(run.path, student_run)
    shutil.rmtree(student_run / "all_snapshots")
    (student_run / "all_snapshots").write_text("in the way")
    with pytest.raises(BadInput, match=r"all_snapshots: cannot be used \(File exists\)"):
        import_run(run.path, student_run)


def test_two_imports_at_once_do_not_mix(run: CoralRun, student_run: Path) -> None:
    run.attempt(1.0)
    with open_destination(student_run), pytest.raises(BadInput, match="being written by another import"):
        import_run(run.path, student_run)
    assert import_run(run.path, student_run).written == 1


@pytest.mark.slow
def test_an_import_that_was_killed_is_completed_by_the_next(coral_run_tour: Path, tmp_path: Path) -> None:
    student_run, snapshots = tmp_path / "killed", tmp_path / "killed" / "all_snapshots"
    command = [
        sys.executable,
        "-m",
        "coral_pipeline.cli",
        "import-run",
        str(coral_run_tour),
        str(student_run),
    ]
    process = subprocess.Popen(command)
    while process.poll() is None and (not snapshots.is_dir() or len(list(snapshots.iterdir())) < 5):
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, "it ended before it could be killed"
    made = {path.name for path in snapshots.iterdir()}
    assert (student_run / ".partial").is_dir() and not (student_run / "import_report.parquet").exists()
    outcome = import_run(coral_run_tour, student_run)
    assert outcome.written == 64 - len(made)
    import_run(coral_run_tour, tmp_path / "at once")
    assert contents(student_run) == contents(tmp_path / "at once")
