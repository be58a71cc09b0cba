"""Importing a CORAL run whose history is out of order or has holes."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from coral_pipeline.student_run import importing
from coral_pipeline.student_run.checkout import Checkout, write_checkout
from coral_pipeline.student_run.git_objects import GitObjects
from coral_pipeline.student_run.importing import import_run
from coral_pipeline_tests.coral_runs import (
    CoralRun,
    contents,
    git,
    metadata_of,
    report,
    snapshot_of,
    write_object,
    write_raw_tree,
)


def test_attempts_are_ordered_by_time_then_agent_then_commit(run: CoralRun, student_run: Path) -> None:
    times = [
        ("2026-05-01T12:00:05.5+00:00", "agent-2"),
        ("2026-05-01T14:00:05+02:00", "agent-2"),  # 12:00:05 in UTC
        ("2026-05-01T12:00:05", "agent-1"),  # without a zone: UTC
        ("2026-05-01T12:00:04+00:00", "agent-9"),
    ]
    made = [run.attempt(1.0, timestamp=time, agent_id=agent) for time, agent in times]
    import_run(run.path, student_run)
    names = sorted(path.name for path in (student_run / "all_snapshots").iterdir())
    expected = [made[i] for i in (3, 2, 1, 0)]
    assert names == [f"eval-{n:06d}-{r['agent_id']}-{r['commit_hash'][:12]}" for n, r in enumerate(expected, start=1)]


def test_a_missing_commit_is_a_row_and_keeps_its_number(run: CoralRun, student_run: Path) -> None:
    run.attempt(1.0)
    gone = "deadbeef" * 5
    run.write_record(run.attempt(2.0) | {"commit_hash": gone, "timestamp": "2026-05-01T12:00:01.5+00:00"})
    outcome = import_run(run.path, student_run)
    assert report(student_run) == [
        (1, None, None),
        (None, "objects", f"commit {gone} is missing or damaged"),
        (3, None, None),
    ]
    assert [row["commit_hash"] for row in outcome.rejected] == [gone]


def test_commits_that_no_branch_has_any_more_are_found(run: CoralRun, student_run: Path) -> None:
    run.attempt(1.0)
    reverted = run.attempt(2.0, code={"solve.py": "reverted"})
    git(run.repo, "reset", "-q", "--hard", "HEAD~1")
    run.attempt(3.0)
    import_run(run.path, student_run)
    assert (snapshot_of(student_run, reverted) / "code" / "solve.py").read_text() == "reverted"
    assert len(list((student_run / "all_snapshots").iterdir())) == 3


def test_commits_in_packs_and_in_an_agents_own_clone_are_found(run: CoralRun, student_run: Path) -> None:
    packed = run.attempt(1.0, code={"solve.py": "packed"})
    git(run.repo, "gc", "-q")
    git(run.public, "gc", "-q")
    clone = run.path / "agents" / "agent-1"
    git(run.path, "clone", "-q", "repo", str(clone))
    (clone / "solve.py").write_text("cloned")
    git(clone, "commit", "-q", "-a", "-m", "only here")
    cloned = packed | {"commit_hash": git(clone, "rev-parse", "HEAD"), "timestamp": "2026-05-01T13:00:00+00:00"}
    run.write_record(cloned)
    import_run(run.path, student_run)
    assert (snapshot_of(student_run, packed) / "code" / "solve.py").read_text() == "packed"
    assert (snapshot_of(student_run, cloned) / "code" / "solve.py").read_text() == "cloned"


@pytest.mark.parametrize("hash", [None, "0" * 40, "no hash"])
def test_without_its_checkpoint_the_last_earlier_one_stands_in(
    run: CoralRun, student_run: Path, hash: str | None
) -> None:
    run.attempt(1.0, notes="first")
    second = run.attempt(2.0, notes="second")
    third = run.attempt(3.0, notes="third", shared_state_hash=hash)
    fourth = run.attempt(4.0, notes="fourth", shared_state_hash=hash)
    import_run(run.path, student_run)
    for record in (third, fourth):
        shared = snapshot_of(student_run, record) / "shared"
        assert (shared / "notes" / "ideas.md").read_text() == "second"
        assert (shared / "attempts" / f"{record['commit_hash']}.json").is_file()
        metadata = metadata_of(student_run, record)
        assert metadata["shared_state_hash"] == second["shared_state_hash"]
        assert metadata["shared_state_from"] == second["commit_hash"]
    missing = f"checkpoint {hash} is missing" if hash == "0" * 40 else "no checkpoint"
    assert report(student_run)[2:] == [
        (n, "checkpoint", f"{missing}: shared state of {second['commit_hash']}") for n in (3, 4)
    ]


def test_without_any_earlier_checkpoint_there_is_only_its_own_record(run: CoralRun, student_run: Path) -> None:
    record = run.attempt(1.0, checkpoint=False)
    import_run(run.path, student_run)
    own = f"{record['commit_hash']}.json"
    assert set(contents(snapshot_of(student_run, record) / "shared")) == {"attempts", f"attempts/{own}"}
    assert metadata_of(student_run, record)["shared_state_hash"] is None
    assert metadata_of(student_run, record)["shared_state_from"] is None
    assert report(student_run) == [(1, "checkpoint", "no checkpoint, nor an earlier one")]


def test_a_checkpoint_of_a_rejected_attempt_stands_in_too(run: CoralRun, student_run: Path) -> None:
    run.attempt(1.0, notes="first")
    second = run.attempt(2.0, notes="second")
    run.write_record(second | {"commit_hash": "0" * 40})
    (run.attempts / f"{second['commit_hash']}.json").unlink()
    third = run.attempt(3.0, checkpoint=False)
    import_run(run.path, student_run)
    assert (snapshot_of(student_run, third) / "shared" / "notes" / "ideas.md").read_text() == "second"


def test_a_damaged_file_of_a_commit_rejects_that_attempt_only(run: CoralRun, student_run: Path) -> None:
    run.attempt(1.0, code={"solve.py": "good"})
    run.attempt(2.0, code={"solve.py": "to be damaged"})
    run.attempt(3.0, code={"solve.py": "good again"})
    blob = git(run.repo, "rev-parse", "HEAD~1:solve.py")
    path = run.repo / ".git" / "objects" / blob[:2] / blob[2:]
    path.chmod(0o644)
    path.write_bytes(b"garbage")
    import_run(run.path, student_run)
    assert report(student_run) == [
        (1, None, None),
        (None, "objects", f"blob {blob} is missing or damaged"),
        (3, None, None),
    ]
    assert len(list((student_run / "all_snapshots").iterdir())) == 2


def test_names_that_a_disk_takes_for_one_reject_that_attempt_only(
    run: CoralRun, student_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As on a disk that does not tell README from readme; the tests' own disk may.
    def write(objects: GitObjects, plan: Checkout, folder: Path) -> None:
        names = [str(path).lower() for path, _ in plan.files]
        if len(names) != len(set(names)):
            raise FileExistsError(errno.EEXIST, "File exists", str(folder / "readme"))
        write_checkout(objects, plan, folder)

    monkeypatch.setattr(importing, "write_checkout", write)
    run.attempt(1.0)
    blob = write_object(run.repo, "blob", b"x")
    run.attempt(2.0, tree=write_raw_tree(run.repo, [("100644", b"README", blob), ("100644", b"readme", blob)]))
    run.attempt(3.0)
    import_run(run.path, student_run)
    problem = "readme: this disk takes two names of the attempt for one"
    assert report(student_run) == [(1, None, None), (None, "names", problem), (3, None, None)]
