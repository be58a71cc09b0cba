"""The genuine CORAL runs that come with the project import whole, and to the bundled Student run."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coral_pipeline import tables
from coral_pipeline.student_run.importing import import_run
from coral_pipeline.student_run.reading import read_student_run
from coral_pipeline_tests.conftest import DATA
from coral_pipeline_tests.coral_runs import contents, fingerprint, git


@pytest.fixture(scope="module")
def foreign_run(coral_run_tour: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The tour run, owned by somebody else where we may do that, and not to be written to."""
    coral_run = shutil.copytree(coral_run_tour, tmp_path_factory.mktemp("foreign") / "tour")
    for path in [coral_run, *coral_run.rglob("*")]:
        path.chmod(path.stat().st_mode & 0o555)
        if os.geteuid() == 0:
            os.chown(path, 12345, 12345)
    yield coral_run
    for path in [coral_run, *coral_run.rglob("*")]:
        os.chown(path, os.geteuid(), os.getegid())
        path.chmod(path.stat().st_mode | 0o700)  # for pytest to remove it


@pytest.fixture(scope="module")
def fingerprints_and_import(foreign_run: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[object, object, Path]:
    """The foreign run's fingerprint before and after its import, and where it was imported to."""
    target = tmp_path_factory.mktemp("imported") / "tour"
    before = fingerprint(foreign_run)
    import_run(foreign_run, target)
    return before, fingerprint(foreign_run), target


@pytest.fixture(scope="module")
def imported_tour(fingerprints_and_import: tuple[object, object, Path]) -> Path:
    return fingerprints_and_import[2]


@pytest.fixture(scope="module")
def imported_circle_packing(coral_run_circle_packing: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("imported") / "circle-packing"
    import_run(coral_run_circle_packing, target)
    return target


def records(coral_run: Path) -> list[dict[str, Any]]:
    """The run's attempts by time; its timestamps are all in one zone and of one length."""
    found = [json.loads(path.read_text()) for path in (coral_run / ".coral/public/attempts").iterdir()]
    return sorted(found, key=lambda record: str(record["timestamp"]))


def test_the_minimised_run_imports_whole(imported_tour: Path) -> None:
    run = read_student_run(imported_tour)
    assert (run.direction, len(run.filtered), len(run.rejected)) == ("minimize", 64, 0)
    assert run.warnings == ()
    assert run.filtered["global_index"].to_pylist() == list(range(1, 65))
    assert run.filtered["eval_count"].to_pylist() == list(range(1, 65))
    assert run.filtered["eval_ok"].to_pylist().count(False) == 6
    assert sum(run.filtered["eligible"].to_pylist()) == 58


def test_the_maximised_run_imports_whole(imported_circle_packing: Path) -> None:
    run = read_student_run(imported_circle_packing)
    assert (run.direction, len(run.filtered), len(run.rejected)) == ("maximize", 108, 0)
    assert run.filtered["eval_ok"].to_pylist().count(False) == 10
    assert set(run.filtered["agent_id"].to_pylist()) == {"agent-1", "agent-2", "agent-3"}


def test_snapshots_follow_the_time_of_their_attempts(coral_run_tour: Path, imported_tour: Path) -> None:
    names = sorted(path.name for path in (imported_tour / "all_snapshots").iterdir())
    assert names == [
        f"eval-{index:06d}-{record['agent_id']}-{record['commit_hash'][:12]}"
        for index, record in enumerate(records(coral_run_tour), start=1)
    ]


def test_code_and_shared_are_what_git_itself_lists(coral_run_tour: Path, imported_tour: Path) -> None:
    # The hash of every file, by path, as git names it in the commit and as git computes it from the snapshot.
    for index, record in enumerate(records(coral_run_tour), start=1):
        snapshot = next((imported_tour / "all_snapshots").glob(f"eval-{index:06d}-*"))
        own = f"attempts/{record['commit_hash']}.json"
        for part, repository, commit, added in (
            ("code", "repo", record["commit_hash"], set()),
            ("shared", ".coral/public", record["shared_state_hash"], {own}),
        ):
            listed = git(coral_run_tour / repository, "ls-tree", "-r", "--format=%(objectname) %(path)", commit)
            in_git = {path: hash for hash, path in (line.split(" ", 1) for line in listed.splitlines())}
            paths = sorted(str(p.relative_to(snapshot / part)) for p in (snapshot / part).rglob("*") if p.is_file())
            on_disk = dict(zip(paths, git(snapshot / part, "hash-object", *paths).splitlines(), strict=True))
            assert on_disk.keys() - in_git.keys() == added
            assert {path: on_disk[path] for path in on_disk.keys() - added} == in_git


def test_its_own_record_is_in_the_snapshot_as_coral_wrote_it(coral_run_tour: Path, imported_tour: Path) -> None:
    for path in (coral_run_tour / ".coral/public/attempts").iterdir():
        (snapshot,) = (imported_tour / "all_snapshots").glob(f"*-{path.stem[:12]}")
        assert (snapshot / "shared/attempts" / path.name).read_bytes() == path.read_bytes()


def test_attempts_without_a_checkpoint_say_whose_they_got(
    coral_run_circle_packing: Path, imported_circle_packing: Path
) -> None:
    rows = tables.IMPORT_REPORT.rows(imported_circle_packing)
    noted = [index for index, row in enumerate(rows) if row["reason"] == "checkpoint"]
    assert noted == [90, 100]
    before = records(coral_run_circle_packing)
    for index in noted:
        metadata = json.loads(
            (imported_circle_packing / "all_snapshots" / rows[index]["snapshot"] / "metadata.json").read_text()
        )
        assert metadata["shared_state_hash"] == before[index - 1]["shared_state_hash"]
        assert metadata["shared_state_from"] == before[index - 1]["commit_hash"]
        assert before[index - 1]["commit_hash"] in rows[index]["detail"]
    assert sum("shared_state_from" in p.read_text() for p in imported_circle_packing.rglob("metadata.json")) == 2


def test_nothing_of_the_machine_comes_along(imported_tour: Path, imported_circle_packing: Path) -> None:
    for student_run in (imported_tour, imported_circle_packing):
        assert not [p for p in student_run.rglob("*") if p.name == "logs" or p.name.endswith((".pid", ".lock"))]
        assert "/" not in (student_run / "task.yaml").read_text().replace("sgl/fake", "")
        assert (student_run / "grader" / "grader.py").is_file()


def test_the_bundled_student_run_is_what_the_import_gives(imported_tour: Path) -> None:
    bundled = DATA / "student_runs" / "tour"
    report = tables.IMPORT_REPORT.file_name
    ours, theirs = contents(imported_tour), contents(bundled)
    # Parquet files hold the version of their writer: compared by their rows instead.
    assert {k: v for k, v in ours.items() if k != report} == {k: v for k, v in theirs.items() if k != report}
    assert tables.IMPORT_REPORT.rows(imported_tour) == tables.IMPORT_REPORT.rows(bundled)


def test_importing_again_changes_nothing(coral_run_tour: Path, imported_tour: Path, tmp_path: Path) -> None:
    student_run = shutil.copytree(imported_tour, tmp_path / "tour")
    snapshots = fingerprint(student_run / "all_snapshots")
    before = contents(student_run)
    outcome = import_run(coral_run_tour, student_run)
    assert outcome.written == 0
    assert contents(student_run) == before
    assert fingerprint(student_run / "all_snapshots") == snapshots


def test_a_coral_run_of_someone_else_is_read_without_leaving_a_trace(
    fingerprints_and_import: tuple[object, object, Path],
) -> None:
    before, after, _ = fingerprints_and_import
    assert after == before
