"""What is replaced while a check reads it: what the check found says nothing, and it looks again."""

from __future__ import annotations

import datetime as dt
import errno
from collections.abc import Callable
from pathlib import Path

import dagster as dg
import pytest

from coral_pipeline import tables
from coral_pipeline.audit import walk
from coral_pipeline.audit.checks import CHECKS, Check
from coral_pipeline.audit.findings import Review
from coral_pipeline.audit.sources import Source
from coral_pipeline.audit.walk import Audit
from coral_pipeline.errors import Changed
from coral_pipeline.provenance import PROVENANCE_FILE, Provenance
from coral_pipeline.storage import workshop
from coral_pipeline.storage.local import LocalStorage
from coral_pipeline_tests.audit.damage import changed_cell, put_back
from coral_pipeline_tests.audit.test_dagster_checks import PARTITION
from coral_pipeline_tests.defs.world import RUN, World

KEY = "run|root"
INPUT = "explored_trees"


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    storage = LocalStorage(tmp_path)
    for asset in ("selected_roots", INPUT):
        make(storage, asset)
    return storage


def make(storage: LocalStorage, asset: str) -> None:
    def describe(folder: Path) -> Provenance:
        now = dt.datetime.now(dt.UTC)
        return Provenance(asset=asset, partition=KEY, code=1, settings={}, inputs=(), made_at=now, software={})

    with storage.writing(asset, "run" if asset == "selected_roots" else KEY, describe) as folder:
        (folder / "file").write_text("as ever")


def found(storage: LocalStorage, read: Callable[[Source], object], meanwhile: Callable[[], None]) -> list[str]:
    """What a check says that reads a partition and dislikes it, while something happens."""

    def verify(review: Review, source: Source, partition: str) -> None:
        read(source)
        review.find("file", "is wrong")
        meanwhile()

    check = Check("ranked_paths", "probe", "", verify)
    return list(check.review(Source(storage, storage.place("student_run", "run").joinpath), KEY).lines())


READINGS: dict[str, tuple[str, Callable[[Source], object]]] = {
    "fetch": (INPUT, lambda source: source.fetch(INPUT, KEY)),
    "made": (INPUT, lambda source: source.made(INPUT, KEY)),
    "settings": (INPUT, lambda source: source.settings(INPUT, KEY)),
    "of_root": (INPUT, lambda source: source.of_root(KEY)),
    "root": ("selected_roots", lambda source: source.root(KEY)),
    "copied": ("selected_roots", lambda source: source.copied("run")),
}


@pytest.mark.parametrize("how", READINGS)
def test_what_a_check_finds_stands_only_where_nothing_it_read_was_replaced(storage: LocalStorage, how: str) -> None:
    asset, read = READINGS[how]
    assert found(storage, read, lambda: None) == [f"ranked_paths {KEY}: file: is wrong"]
    with pytest.raises(Changed, match=f"{asset}/run.*: changed while it was read; run it again"):
        found(storage, read, lambda: make(storage, asset))


def test_nothing_is_said_of_a_partition_half_of_which_is_replaced(storage: LocalStorage) -> None:
    """Its provenance is away before the check begins, and not yet back when it ends."""
    folder = storage.place(INPUT, KEY)
    (folder / PROVENANCE_FILE).unlink()
    read = READINGS["made"][1]
    with workshop.locked(folder), pytest.raises(Changed):
        found(storage, read, lambda: None)
    with storage.alone(INPUT, KEY), pytest.raises(Changed):
        found(storage, read, lambda: None)
    assert any("provenance.json: is missing" in line for line in found(storage, read, lambda: None))


def test_a_check_that_finds_nothing_is_done(storage: LocalStorage) -> None:
    def verify(review: Review, source: Source, partition: str) -> None:
        source.fetch(INPUT, KEY)
        make(storage, INPUT)

    review = Check("ranked_paths", "probe", "", verify).review(Source(storage, Path), KEY)
    assert not review.total


def test_looking_whether_something_is_written_makes_no_file(tmp_path: Path) -> None:
    assert not LocalStorage(tmp_path).is_being_written(INPUT, KEY)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
class TestOnWhatWasMade:
    """With the parts that really write and check."""

    def test_a_check_in_dagster_is_tried_again_and_leaves_no_red(
        self, finished: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        partition = str(finished.keys[0])
        monkeypatch.setattr(LocalStorage, "is_being_written", lambda *_: True)
        key = dg.AssetCheckKey(dg.AssetKey("ranked_paths"), "paths_computed_anew")
        job = finished.definitions.resolve_implicit_global_asset_job_def().get_subset(asset_check_selection={key})
        folder = finished.folders.asset("ranked_paths", partition)
        with changed_cell(tables.RANKED_PATHS, folder, "PathScore", 0):
            result = job.execute_in_process(
                instance=finished.instance, tags={PARTITION: partition}, raise_on_error=False
            )
        run = finished.instance.get_run_by_id(result.run_id)
        assert not result.success and not result.get_asset_check_evaluations()
        assert run is not None and run.tags["dagster/retry_on_asset_or_op_failure"] == "true"

    @pytest.mark.parametrize(("times", "problem"), [(1, "PathScore: is"), (99, "replaced each time it looked")])
    def test_an_audit_looks_again(
        self, finished: World, monkeypatch: pytest.MonkeyPatch, times: int, problem: str
    ) -> None:
        monkeypatch.setattr(walk, "PAUSES", (0.0, 0.0))
        left = iter([True] * times)
        monkeypatch.setattr(LocalStorage, "is_being_written", lambda *_: next(left, False))
        audit = Audit(Path(finished.folders.output), finished.folders.student_run(RUN), recompute=True)
        (check,) = (check for check in CHECKS if check.name == "paths_computed_anew")
        folder = finished.folders.asset("ranked_paths", str(finished.keys[0]))
        with changed_cell(tables.RANKED_PATHS, folder, "PathScore", 0):
            (line,) = audit.run(walk.Task(check, str(finished.keys[0])))
        assert problem in line and audit.account.findings == 1

    def test_an_audit_that_may_not_read_something_says_so_and_goes_on(
        self, finished: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        audit = Audit(Path(finished.folders.output), finished.folders.student_run(RUN))

        def refuse(*_: object) -> Path:
            raise PermissionError(errno.EACCES, "Permission denied", "tree.json")

        monkeypatch.setattr(LocalStorage, "fetch", refuse)
        for check in CHECKS:
            (line,) = audit.run(walk.Task(check, str(finished.keys[0])))
            assert f"{check.name}: [Errno 13] Permission denied: 'tree.json'" in line

    def test_a_tree_whose_tables_are_just_written_is_not_made_yet(self, finished: World) -> None:
        """Its provenance is written last; where nobody writes it, it is missing."""
        key = str(finished.keys[0])
        storage, folder = finished.folders.storage, finished.folders.asset("explored_trees", key)

        def audited() -> Audit:
            return Audit(Path(finished.folders.output), finished.folders.student_run(RUN))

        with put_back(folder / PROVENANCE_FILE):
            (folder / PROVENANCE_FILE).unlink()
            with storage.alone("explored_trees", key):
                assert ("explored_trees", key) not in partitions(audited())
            assert ("explored_trees", key) in partitions(audited())
        with storage.alone("explored_trees", key):
            assert ("explored_trees", key) in partitions(audited())


def partitions(audit: Audit) -> set[tuple[str, str]]:
    return {(task.check.asset, task.partition) for task in audit.tasks()}
