"""The CORAL run is only read, nothing of it is executed, and what is none is refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from coral_pipeline.errors import BadInput
from coral_pipeline.student_run.importing import import_run
from coral_pipeline_tests.coral_runs import (
    CoralRun,
    contents,
    fingerprint,
    git,
    snapshot_of,
)


def test_nothing_the_run_configures_is_executed_or_needed(run: CoralRun, student_run: Path, tmp_path: Path) -> None:
    record = run.attempt(1.0)
    run.attempt(2.0)
    alarm = tmp_path / "executed"
    for repository in (run.repo, run.public):
        for hook in ("post-checkout", "post-index-change", "reference-transaction", "fsmonitor-watchman"):
            path = repository / ".git" / "hooks" / hook
            path.parent.mkdir(exist_ok=True)
            path.write_text(f"#!/bin/sh\ntouch {alarm}\n")
            path.chmod(0o755)
        with (repository / ".git" / "config").open("a") as config:
            config.write(
                f"[core]\n\tfsmonitor = touch {alarm}\n\tsshCommand = touch {alarm}\n[alias]\n\tcat-file = !x\n"
            )
            config.write(f'[extensions]\n\tpartialClone = evil\n[remote "evil"]\n\turl = ext::touch {alarm}\n')
            config.write("[protocol]\n\tallow = always\n this is no configuration")
        (repository / ".git" / "HEAD").write_text("nonsense")
        (repository / ".git" / "index.lock").write_text("stale")
    run.write_record(record | {"commit_hash": "0" * 40})  # a missing object: git would fetch it from the remote
    before = fingerprint(run.path)
    outcome = import_run(run.path, student_run)
    assert (outcome.written, len(outcome.rejected)) == (2, 1)
    assert not alarm.exists()
    assert fingerprint(run.path) == before


def test_a_replaced_commit_is_imported_as_it_was(run: CoralRun, student_run: Path) -> None:
    record = run.attempt(1.0, code={"solve.py": "graded"})
    run.attempt(2.0, code={"solve.py": "another"})
    git(run.repo, "replace", record["commit_hash"], "HEAD")
    import_run(run.path, student_run)
    assert (snapshot_of(student_run, record) / "code" / "solve.py").read_text() == "graded"


@pytest.mark.parametrize("where", ["student", ".coral/student", "."])
def test_importing_into_the_coral_run_is_refused(run: CoralRun, where: str) -> None:
    run.attempt(1.0)
    before = fingerprint(run.path)
    with pytest.raises(BadInput, match="lies inside the CORAL run"):
        import_run(run.path, run.path / where)
    assert fingerprint(run.path) == before


@pytest.mark.parametrize(
    ("broken", "problem"),
    [
        (".coral", r"\.coral: is missing"),
        (".coral/config.yaml", "config.yaml: is missing"),
        (".coral/public/attempts", "attempts: is missing"),
        ("repo", "repo: is no git repository"),
    ],
)
def test_what_is_no_coral_run_is_refused_by_the_part_it_lacks(
    run: CoralRun, student_run: Path, broken: str, problem: str
) -> None:
    run.attempt(1.0)
    path = run.path / broken
    path.unlink() if path.is_file() else shutil.rmtree(path)
    if broken == "repo":
        shutil.rmtree(run.public / ".git")
    with pytest.raises(BadInput, match=problem):
        import_run(run.path, student_run)
    assert not student_run.exists()


def test_a_run_without_attempts_is_refused(run: CoralRun, student_run: Path) -> None:
    with pytest.raises(BadInput, match="holds no attempts"):
        import_run(run.path, student_run)


def test_the_coral_folder_itself_and_links_to_the_run_will_do(run: CoralRun, tmp_path: Path) -> None:
    run.attempt(1.0)
    (tmp_path / "latest").symlink_to("run")
    import_run(run.path / ".coral", tmp_path / "a")
    import_run(tmp_path / "latest", tmp_path / "b")
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
