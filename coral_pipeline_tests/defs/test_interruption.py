"""A tree that is stopped through Dagster, and goes on."""

from __future__ import annotations

import json
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from coral_pipeline import tables
from coral_pipeline.defs import versions
from coral_pipeline.defs.progress import SearchControl
from coral_pipeline.search.output import write_tree
from coral_pipeline.search.progress import Progress
from coral_pipeline_tests.defs.world import RUN, TO_ROOTS, World, failure, settings
from coral_pipeline_tests.search.growing import AnswerTeacher

pytestmark = pytest.mark.slow


def journal(world: World) -> Counter[str]:
    """Edges and turns by name, as often as they are in the journal of the first root."""
    folder = world.folders.of_root(world.keys[0]).tree
    records = [json.loads(line) for line in (folder / "work" / "journal.jsonl").read_text().splitlines()]
    return Counter(f"{r['edge']} {r.get('turn', 'edge')}" for r in records if r["kind"] in ("turn", "edge"))


def stopping_in_round(number: int) -> SearchControl:
    stop = threading.Event()

    def watch(key: str, progress: Progress) -> None:
        if progress.round == number:
            stop.set()

    return SearchControl(stop, watch)


def test_a_stopped_tree_is_cancelled_and_goes_on_to_the_same_tree(tmp_path: Path) -> None:
    world, undisturbed = World(tmp_path / "stopped"), World(tmp_path / "undisturbed")
    for each in (world, undisturbed):
        each.materialize(TO_ROOTS, RUN)
    key = str(world.keys[0])

    world.control = stopping_in_round(2)
    result = world.run(["explored_trees"], key)
    assert not result.success
    assert [run.status for run in world.instance.get_runs(limit=1)] == [dg.DagsterRunStatus.CANCELED]
    tree = world.folders.of_root(world.keys[0]).tree
    assert not (tree / "tree.json").exists()
    before = journal(world)
    assert before

    world.control = SearchControl()
    world.materialize(["explored_trees"], key)
    undisturbed.materialize(["explored_trees"], key)
    assert set(before) < set(journal(world)), "it went on"
    assert set(journal(world).values()) == {1}, "nothing was run twice"
    for table in tables.TABLES["explored_trees"]:
        assert table.read(tree).equals(table.read(undisturbed.folders.of_root(world.keys[0]).tree)), table.name


def test_what_dagster_raises_when_it_terminates_a_run_stops_the_search(world: World) -> None:
    world.materialize(TO_ROOTS, RUN)
    key = str(world.keys[0])

    def terminate(partition: str, progress: Progress) -> None:
        if progress.round == 2:
            raise dg.DagsterExecutionInterruptedError

    world.control = SearchControl(watch=terminate)
    assert not world.run(["explored_trees"], key).success
    assert world.control.stop.is_set(), "the edges in flight were told"
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("edge")]
    stopped = world.observations("explored_trees", key)[0]
    assert stopped.description == "stopped" and {"edges", "best score"} <= stopped.metadata.keys()
    assert "1 stopped" in str(world.observations("selected_roots", RUN)[0].description)
    world.control = SearchControl()
    world.materialize(["explored_trees"], key)
    assert set(journal(world).values()) == {1}


def test_a_tree_begun_with_other_settings_is_moved_aside_and_told(world: World) -> None:
    world.materialize(TO_ROOTS, RUN)
    key = str(world.keys[0])
    world.control = stopping_in_round(2)
    world.run(["explored_trees"], key)
    begun = journal(world)
    world.control, world.settings = SearchControl(), settings(search={"max_depth": 1})
    result = world.materialize(["explored_trees"], key)
    aside = world.folder / "output" / "superseded" / Path(*key.split("|")) / "1"
    assert (aside / "work" / "journal.jsonl").is_file()
    logged = [entry.user_message for entry in world.instance.all_logs(result.run_id) if not entry.dagster_event]
    assert any("settings.max_depth was 2, now 1" in line and str(aside) in line for line in logged)
    assert set(journal(world)) & set(begun), "it began anew, from the first edge"
    assert max(row["depth"] for row in tables.NODES.rows(world.folders.of_root(world.keys[0]).tree)) == 1


def test_tables_of_earlier_code_are_written_anew_from_the_journal_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.materialize(TO_ROOTS, RUN)
    key = str(world.keys[0])
    world.materialize(["explored_trees"], key)
    begun = journal(world)

    def write_otherwise(*arguments: Any) -> None:
        written.append(key)
        write_tree(*arguments)
        file = world.folders.asset("explored_trees", key) / "tree.json"
        file.write_text("\n" + file.read_text())

    written: list[str] = []
    monkeypatch.setattr("coral_pipeline.search.explore.write_tree", write_otherwise)
    monkeypatch.setitem(versions.CODE, "explored_trees", versions.CODE["explored_trees"] + 1)
    for _ in range(2):
        world.materialize(["explored_trees"], key)
        made = world.folders.storage.provenance("explored_trees", key)
        assert made is not None and made.code == versions.CODE["explored_trees"]
        assert written == [key]
    assert (world.folders.asset("explored_trees", key) / "tree.json").read_text().startswith("\n")
    assert journal(world) == begun, "nothing was run again"


def test_a_second_run_of_the_same_tree_is_refused_while_one_is_at_it(world: World) -> None:
    world.materialize(TO_ROOTS, RUN)
    key = str(world.keys[0])
    refused: list[dg.ExecuteInProcessResult] = []

    def intrude(partition: str, progress: Progress) -> None:
        if progress.round == 2 and not refused:
            world.control = SearchControl()
            refused.append(world.run(["explored_trees"], key))

    world.control = SearchControl(watch=intrude)
    world.materialize(["explored_trees"], key)
    (second,) = refused
    assert "another run is at work there" in failure(second)


def test_a_tree_that_another_version_of_the_teacher_began_is_refused_and_stays(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.materialize(TO_ROOTS, RUN)
    key = str(world.keys[0])
    world.control = stopping_in_round(2)
    world.run(["explored_trees"], key)
    begun = journal(world)
    monkeypatch.setattr(AnswerTeacher, "describe", lambda self: {"kind": "test", "version": 2})
    world.control = SearchControl()
    assert "teacher.version was absent, now 2" in failure(world.run(["explored_trees"], key))
    assert journal(world) == begun
