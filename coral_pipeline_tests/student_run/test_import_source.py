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


def _borrow(objects: Path, foreign: Path, commit: str, part: str) -> None:
    """Make git find the commit of a foreign object folder in ``objects``, over this part of it."""
    if part == "alternates":
        (objects / "info" / "alternates").write_text(f"{foreign}\n")
    elif part == "pack":
        (objects / "pack").rmdir()
        (objects / "pack").symlink_to(foreign / "pack")
    elif part == "a pack":
        for path in (foreign / "pack").iterdir():
            (objects / "pack" / path.name).symlink_to(path)
    else:
        (objects / "info" / "alternates").write_text("../../../../.coral/public/notes\n")
        further = objects.parents[3] / ".coral" / "public" / "notes" / "info" / "alternates"
        further.parent.mkdir(parents=True)
        further.write_text(f"{foreign}\n")


@pytest.mark.parametrize("part", ["alternates", "pack", "a pack", "alternates within the run"])
def test_what_lies_outside_the_run_is_not_imported(run: CoralRun, student_run: Path, tmp_path: Path, part: str) -> None:
    mine = run.attempt(1.0)
    outside = CoralRun(tmp_path / "outside")
    theirs = outside.attempt(2.0, code={"secret.txt": "of another"})
    git(outside.repo, "repack", "-adq")
    agent = run.path / "agents" / "agent-1"
    agent.mkdir(parents=True)
    git(agent, "init", "-q")
    _borrow(agent / ".git" / "objects", outside.repo / ".git" / "objects", theirs["commit_hash"], part)
    assert git(agent, "cat-file", "-t", theirs["commit_hash"]) == "commit", "git itself finds it"
    run.write_record(theirs | {"timestamp": "2026-06-01T12:00:00+00:00"})
    outcome = import_run(run.path, student_run)
    assert [(row["commit_hash"], row["reason"]) for row in outcome.rejected] == [(theirs["commit_hash"], "objects")]
    assert snapshot_of(student_run, mine).is_dir()
    (note,) = outcome.notes
    assert "may lead out of the run" in note


def test_loose_objects_behind_links_are_not_imported_either(run: CoralRun, student_run: Path, tmp_path: Path) -> None:
    outside = CoralRun(tmp_path / "outside")
    theirs = outside.attempt(2.0, code={"secret.txt": "of another"})
    for folder in (outside.repo / ".git" / "objects").glob("[0-9a-f]" * 2):
        (run.repo / ".git" / "objects" / folder.name).mkdir(exist_ok=True)
        for file in folder.iterdir():
            place = run.repo / ".git" / "objects" / folder.name / file.name
            if not place.exists():
                place.symlink_to(file)
    assert git(run.repo, "cat-file", "-t", theirs["commit_hash"]) == "commit", "git itself finds it"
    run.write_record(theirs)
    assert len(import_run(run.path, student_run).rejected) == 1


def test_a_clone_that_borrows_from_the_run_itself_is_read(run: CoralRun, student_run: Path) -> None:
    run.attempt(1.0)
    clone = run.path / "agents" / "agent-1"
    git(run.path, "clone", "-q", "--shared", str(run.repo), str(clone))
    (clone / "solve.py").write_text("in the clone")
    git(clone, "commit", "-qam", "more")
    record = {"commit_hash": git(clone, "rev-parse", "HEAD"), "agent_id": "agent-1", "score": 2.0}
    run.write_record(record | {"timestamp": "2026-06-01T12:00:00+00:00"})
    assert import_run(run.path, student_run).rejected == []
    assert (snapshot_of(student_run, record) / "code" / "solve.py").read_text() == "in the clone"


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
