"""Whether a folder has been copied to its end."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from coral_pipeline.student_run.arrival import Incomplete, close_look, glance
from coral_pipeline_tests.student_runs import snapshot_name, write_snapshot, write_student_run

SCORES = [1.0, 2.0, 3.0]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_student_run(tmp_path / "run", SCORES)


def last(run: Path) -> Path:
    return run / "all_snapshots" / snapshot_name(len(SCORES))


def append(path: Path) -> None:
    with path.open("a") as file:
        file.write("more\n")


COPYING: dict[str, Callable[[Path], object]] = {
    "another snapshot": lambda run: write_snapshot(run / "all_snapshots" / snapshot_name(9)),
    "a file deep in the newest snapshot": lambda run: (last(run) / "shared" / "notes" / "new.md").write_text("new"),
    "a file that grows": lambda run: append(last(run) / "code" / "solve.py"),
    "a file whose time is set back": lambda run: os.utime(last(run) / "code" / "solve.py", (1, 1)),
    "task.yaml": lambda run: append(run / "task.yaml"),
    "the grader": lambda run: (run / "grader").mkdir(),
    "private data": lambda run: (run / "private").mkdir(),
    "a table of the import": lambda run: (run / "import_report.parquet").write_bytes(b"PAR1"),
}


@pytest.mark.parametrize("what", COPYING)
def test_a_close_look_sees_that_a_copy_goes_on(run: Path, what: str) -> None:
    write_snapshot(last(run) / "as copied last")
    before = close_look(run)
    assert close_look(run) == before
    COPYING[what](run)
    assert close_look(run) != before


@pytest.mark.parametrize("what", ["another snapshot", "task.yaml", "the grader", "private data"])
def test_a_glance_sees_what_is_new_at_the_top(run: Path, what: str) -> None:
    before = glance(run)
    assert glance(run) == before
    COPYING[what](run)
    assert glance(run) != before


MISSING: dict[str, tuple[Callable[[Path], object], str]] = {
    "task": (lambda run: (run / "task.yaml").unlink(), "has no task.yaml"),
    "snapshots": (lambda run: shutil.rmtree(run / "all_snapshots"), "has no all_snapshots/"),
    "snapshot": (lambda run: [shutil.rmtree(s) for s in (run / "all_snapshots").iterdir()], "has no snapshots in"),
    "import": (lambda run: (run / ".partial").mkdir(), r"is still being written \(.partial\)"),
    "rsync": (lambda run: (run / ".task.yaml.Xa81bQ").touch(), r"being written \(.task.yaml.Xa81bQ\)"),
    "rsync among the snapshots": (
        lambda run: (run / "all_snapshots" / f".{snapshot_name(9)}.aB3xYz").touch(),
        r"being written \(.eval-000009-.*aB3xYz\)",
    ),
}


@pytest.mark.parametrize("what", MISSING)
def test_what_a_run_lacks_is_told_with_the_mend(run: Path, what: str) -> None:
    remove, message = MISSING[what]
    remove(run)
    with pytest.raises(Incomplete, match=message):
        close_look(run)


@pytest.mark.parametrize("name", [".env.sample", ".x.backup", ".gitignore", "all_snapshots/.notes.backup"])
def test_a_hidden_file_of_the_user_s_own_does_not_keep_it_waiting(run: Path, name: str) -> None:
    (run / name).touch()
    close_look(run)


@pytest.mark.parametrize("what", ["task.yaml", "grader/grader.py", "private/answers.json"])
def test_what_was_put_back_as_it_was_looks_different(run: Path, what: str) -> None:
    file = run / what
    file.parent.mkdir(exist_ok=True)
    if not file.exists():
        file.write_text("first")
    first, looks = file.read_bytes(), []
    for contents in (first, b"other", first):
        replacing = file.with_name("aside")
        replacing.write_bytes(contents)
        replacing.rename(file)
        looks.append(close_look(run))
    assert len(set(looks)) == 3
