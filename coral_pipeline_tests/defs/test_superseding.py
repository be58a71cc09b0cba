"""Roots that a new selection drops, and takes back."""

from __future__ import annotations

import json

import pytest

from coral_pipeline import tables
from coral_pipeline.defs.folders import PER_ROOT
from coral_pipeline.storage.local import LocalStorage
from coral_pipeline_tests.defs.world import RUN, TO_ROOTS, World, settings

pytestmark = pytest.mark.slow


def test_a_dropped_root_is_no_partition_and_all_of_it_stays_until_it_is_taken_back(world: World) -> None:
    world.materialize(TO_ROOTS, RUN)
    all_keys = world.keys
    for key in all_keys:
        world.materialize(PER_ROOT, str(key))
    versions = {key: world.tags("explored_trees", str(key)) for key in all_keys}

    world.settings = settings(selection={"num_roots": 1})
    world.materialize(TO_ROOTS, RUN)
    (kept,) = world.keys
    dropped = [key for key in all_keys if key != kept]
    assert world.metadata("selected_roots", RUN)["no longer chosen"].value == [key.root for key in dropped]
    for key in dropped:
        tree, root = world.folders.asset("explored_trees", str(key)), world.folders.root(key)
        assert tables.NODES.read(tree).num_rows > 1 and (root / "code" / "solve.py").is_file()
        for folder in (root, *(world.folders.asset(asset, str(key)) for asset in PER_ROOT)):
            assert json.loads((folder / "superseded.json").read_text()).keys() == {"superseded_at", "by_run"}
    assert not list(world.folders.asset("explored_trees", str(kept)).glob("superseded.json"))
    world.materialize(["sft_dataset"], RUN)
    assert {row["root"] for row in tables.SFT_SAMPLES.rows(world.folders.asset("sft_dataset", RUN))} == {kept.root}

    world.settings = settings()
    world.materialize(TO_ROOTS, RUN)
    assert world.keys == all_keys
    assert not list((world.folder / "output").rglob("superseded.json"))
    assert not any(world.lineage.stale(key, world.instance) for key in all_keys), "nothing is explored again"
    assert {key: world.tags("explored_trees", str(key)) for key in all_keys} == versions


def test_another_student_run_keeps_its_roots(world: World) -> None:
    world.materialize(TO_ROOTS, RUN)
    world.instance.add_dynamic_partitions("roots", ["other|eval-000001-agent-1-0123456789ab"])
    world.settings = settings(selection={"num_roots": 1})
    world.materialize(TO_ROOTS, RUN)
    assert {key.student_run for key in world.keys} == {RUN, "other"}


def test_roots_that_stay_are_left_alone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a store each mark that is put or removed is a request of its own."""
    noted: list[str] = []

    def note(storage: LocalStorage, asset: str, partition: str, name: str, text: str | None) -> None:
        noted.append(partition)
        real(storage, asset, partition, name, text)

    real = LocalStorage.note
    monkeypatch.setattr(LocalStorage, "note", note)
    world.materialize(TO_ROOTS, RUN)
    first = world.keys
    noted.clear()
    world.materialize(["selected_roots"], RUN)
    assert not noted
    world.settings = settings(selection={"num_roots": 1})
    world.materialize(["selected_roots"], RUN)
    assert set(noted) == {str(key) for key in first} - {str(key) for key in world.keys}
