"""What is current, what is stale, and what a dataset may be made of."""

from __future__ import annotations

import errno
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from dagster._core.definitions.data_version import CachingStaleStatusResolver, StaleStatus
from dagster._core.loader import LoadingContextForTest

from coral_pipeline import provenance, tables
from coral_pipeline.defs import student_run
from coral_pipeline.defs.folders import PER_ROOT, TREES
from coral_pipeline.defs.partitions import RootKey
from coral_pipeline.defs.progress import SearchControl
from coral_pipeline.defs.retries import FAULT, INFRASTRUCTURE, INPUT
from coral_pipeline.errors import BadInput
from coral_pipeline.storage.local import LocalStorage
from coral_pipeline_tests.defs.test_interruption import stopping_in_round
from coral_pipeline_tests.defs.test_retries import because
from coral_pipeline_tests.defs.world import RUN, TO_ROOTS, World, failure, settings

pytestmark = pytest.mark.slow


def called_stale(world: World) -> set[str]:
    """The assets Dagster itself calls stale, with their partitions."""
    graph = world.definitions.resolve_asset_graph()
    resolver = CachingStaleStatusResolver(world.instance, graph, LoadingContextForTest(world.instance))
    partitions = {asset: [str(key) for key in world.keys] if asset in PER_ROOT else [RUN] for asset in tables.TABLES}
    return {
        f"{asset} {partition}"
        for asset in partitions
        for partition in partitions[asset]
        if resolver.get_status(dg.AssetKey(asset), partition) == StaleStatus.STALE
    }


def test_after_all_is_made_nothing_is_stale_and_every_root_is_current(finished: World) -> None:
    assert called_stale(finished) == set()
    assert not any(finished.lineage.stale(key, finished.instance) for key in finished.keys)


def test_a_root_that_changed_makes_its_own_tree_stale_and_no_other_tree(finished: World) -> None:
    changed, *others = finished.keys
    snapshot = finished.folders.student_run(RUN) / "all_snapshots" / changed.root
    (snapshot / "code" / "solve.py").write_text("print('changed')\n")
    finished.materialize(TO_ROOTS, RUN)
    assert called_stale(finished) == {f"explored_trees {changed}", f"sft_dataset {RUN}"}
    assert finished.lineage.stale(changed, finished.instance) == PER_ROOT
    assert not any(finished.lineage.stale(key, finished.instance) for key in others)
    finished.materialize(PER_ROOT, str(changed))
    assert finished.lineage.stale(changed, finished.instance) == ()
    earlier = finished.folder / "output" / "superseded" / RUN / changed.root / "1"
    assert (earlier / "tree.json").is_file(), "the tree of the root as it was is kept"
    finished.materialize(["sft_dataset"], RUN)
    assert called_stale(finished) == set()


def test_another_grader_makes_a_tree_stale_half_grown_or_finished(world: World) -> None:
    world.materialize(TO_ROOTS, RUN)
    done, half, _ = world.keys
    world.materialize(PER_ROOT, str(done))
    world.control = stopping_in_round(2)
    assert not world.run(["explored_trees"], str(half)).success
    world.control = SearchControl()
    grader = world.folders.student_run(RUN) / "grader" / "grader.py"
    grader.parent.mkdir(exist_ok=True)
    grader.write_text("# corrected\n")
    world.materialize(TO_ROOTS, RUN)
    assert world.lineage.stale(done, world.instance) == PER_ROOT
    assert not world.lineage.making(PER_ROOT[0], done, "").is_done
    for key in (done, half):
        world.materialize(PER_ROOT, str(key))
        assert world.lineage.stale(key, world.instance) == ()
        earlier = world.folder / "output" / "superseded" / RUN / key.root / "1"
        assert (earlier / "work" / "journal.jsonl").is_file(), "the tree as it was graded then is kept"


@pytest.mark.parametrize(
    ("changed", "stale"),
    [
        ({"search": {"max_depth": 1}}, PER_ROOT),
        ({"teacher": {"seed": 1}}, PER_ROOT),
        ({"paths": {"top_k": 1}}, PER_ROOT[1:]),
        ({"credit": {"prior": 0.5}}, PER_ROOT[2:]),
    ],
    ids=str,
)
def test_other_settings_make_stale_what_they_change_and_what_follows(
    finished: World, changed: dict[str, Any], stale: tuple[str, ...]
) -> None:
    finished.settings = settings(**changed)
    try:
        assert {finished.lineage.stale(key, finished.instance) for key in finished.keys} == {stale}
        assert list(finished.lineage.whole(finished.keys, finished.instance)) == finished.keys
    finally:
        finished.settings = settings()


def test_patience_and_width_of_the_machine_change_nothing(finished: World) -> None:
    finished.settings = settings(retry={"attempts": 2}).model_copy(update={"trees_at_once": 5})
    try:
        assert not any(finished.lineage.stale(key, finished.instance) for key in finished.keys)
    finally:
        finished.settings = settings()


@pytest.mark.parametrize("asset", PER_ROOT)
def test_a_root_whose_files_were_damaged_is_in_no_dataset_and_is_made_again(finished: World, asset: str) -> None:
    key = finished.keys[-1]
    folder = finished.folders.asset(asset, str(key))
    table = tables.TABLES[asset][0]
    file = folder / table.file_name
    kept = table.read(folder)
    for damage in (lambda: table.write(kept.slice(1), folder), file.unlink, lambda: file.write_bytes(b"PAR1")):
        damage()
        assert not finished.lineage.whole([key], finished.instance)
        stale = finished.lineage.stale(key, finished.instance)
        assert stale == PER_ROOT[PER_ROOT.index(asset) :]
        finished.materialize(stale, str(key))
        assert table.read(folder).equals(kept)
        assert finished.lineage.stale(key, finished.instance) == ()


def test_paths_of_an_earlier_tree_are_not_mixed_with_the_tree_of_now(finished: World) -> None:
    key = finished.keys[1]
    other = settings(search={"max_depth": 1}).model_dump(mode="json")["search"]
    finished.materialize(["explored_trees"], str(key), resources={"settings": {"config": {"search": other}}})
    assert not finished.lineage.whole([key], finished.instance)
    finished.materialize(["sft_dataset"], RUN)
    assert finished.metadata("sft_dataset", RUN)["roots missing"].value == [key.root]
    finished.materialize(PER_ROOT, str(key))
    finished.materialize(["sft_dataset"], RUN)
    assert finished.metadata("sft_dataset", RUN)["roots missing"].value == []


def test_making_a_finished_root_again_changes_no_version(finished: World) -> None:
    key: RootKey = finished.keys[0]
    before = {asset: finished.tags(asset, str(key)) for asset in PER_ROOT}
    finished.materialize(PER_ROOT, str(key))
    for asset in PER_ROOT:
        after = finished.tags(asset, str(key))
        assert {name: after[name] for name in before[asset] if "version" in name and "timestamp" not in name} == {
            name: value for name, value in before[asset].items() if "version" in name and "timestamp" not in name
        }


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (OSError(errno.ESTALE, "Stale file handle"), INFRASTRUCTURE),
        (because(BadInput("nodes.parquet", "cannot be read", "see"), OSError(errno.EMFILE, "")), INFRASTRUCTURE),
        (PermissionError(errno.EACCES, "Permission denied"), INPUT),
    ],
    ids=["outage", "wrapped", "refusal"],
)
def test_a_root_that_cannot_be_had_is_neither_left_out_nor_made_again(
    finished: World, error: Exception, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, lineage, fetch = finished.keys[1], finished.lineage, LocalStorage.fetch
    looks = [
        lambda: lineage.stale(key, finished.instance),
        lambda: lineage.whole(finished.keys, finished.instance),
        lambda: lineage.is_damaged(TREES, key, finished.instance),
        lambda: lineage.making(TREES, key, "").is_done,
    ]

    def fail(storage: LocalStorage, asset: str, partition: str, *copied: str) -> Path:
        if partition == str(key):
            raise error
        return fetch(storage, asset, partition, *copied)

    monkeypatch.setattr(LocalStorage, "fetch", fail)
    for look in looks:
        with pytest.raises(type(error)):
            look()
    result = finished.run(["sft_dataset"], RUN)
    run = finished.instance.get_run_by_id(result.run_id)
    assert not result.success and run is not None and run.tags[FAULT] == fault


def test_every_root_is_hashed_before_it_is_read_and_after_and_no_more(
    finished: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed, changes = Counter[tuple[str, str]](), provenance.changes

    def count(made: provenance.Provenance, folder: Path) -> Iterator[str]:
        hashed[made.asset, made.partition] += 1
        return changes(made, folder)

    monkeypatch.setattr(provenance, "changes", count)
    finished.materialize(["sft_dataset"], RUN)
    assert {hashed[asset, str(key)] for asset in PER_ROOT for key in finished.keys} == {2}
    hashed.clear()
    assert finished.lineage.stale(finished.keys[0], finished.instance) == ()
    assert {hashed[asset, str(finished.keys[0])] for asset in PER_ROOT} == {1}


@pytest.mark.parametrize("others", [True, False], ids=["others", "the same"])
def test_roots_of_snapshots_that_were_made_anew_meanwhile_are_not_kept(
    world: World, others: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.materialize(TO_ROOTS[:2], RUN)
    select_roots = student_run.select_roots

    def meanwhile(*arguments: Any) -> pa.Table:
        roots = select_roots(*arguments)
        if others:
            snapshots, chosen = world.folders.student_run(RUN) / "all_snapshots", roots["root"].to_pylist()
            shutil.rmtree(next(path for path in snapshots.iterdir() if path.name not in chosen))
        world.materialize(TO_ROOTS[:1], RUN)
        return roots

    with monkeypatch.context() as patch:
        patch.setattr(student_run, "select_roots", meanwhile)
        result = world.run(TO_ROOTS[2:], RUN)
    assert failure(result) == f"filtered_snapshots of {RUN}: changed meanwhile; run it again"
    assert world.folders.storage.provenance("selected_roots", RUN) is None and not world.keys


def test_a_tree_from_before_a_setting_joined_with_its_default_is_current(finished: World) -> None:
    key = finished.keys[0]
    folder = finished.folders.asset(TREES, str(key))
    made = provenance.read(folder)
    assert made is not None
    try:
        for setting, is_done in (({}, True), ({"exempt_depth": 9}, False), ({"of an earlier version": 1}, False)):
            search = {name: value for name, value in made.settings["search"].items() if name != "exempt_depth"}
            then = {**made.settings, "search": search | setting}
            provenance.write(made.model_copy(update={"settings": then}), folder)
            assert finished.lineage.making(TREES, key, "").is_done is is_done
    finally:
        provenance.write(made, folder)


def test_an_input_that_is_missing_or_damaged_is_told_in_one_line(world: World) -> None:
    filtered = world.folders.asset("filtered_snapshots", RUN) / tables.FILTERED_SNAPSHOTS.file_name
    told = failure(world.run(["selected_roots"], RUN))
    assert told.startswith(f"{filtered}: no such table; make it first")
    world.materialize(TO_ROOTS[:2], RUN)
    filtered.write_bytes(b"PAR1")
    result = world.run(["selected_roots"], RUN)
    run = world.instance.get_run_by_id(result.run_id)
    assert failure(result).startswith(f"{filtered}: cannot be read as Parquet")
    assert run is not None and run.tags[FAULT] == INPUT, "to try it again would not mend it"
