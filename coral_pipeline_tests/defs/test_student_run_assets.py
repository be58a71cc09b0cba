"""The first three assets, materialized by Dagster on a small Student run."""

from __future__ import annotations

import base64
from pathlib import Path

import dagster as dg

from coral_pipeline import tables
from coral_pipeline.defs.pools import POOL, limit_trees_at_once
from coral_pipeline.student_run.reading import read_student_run
from coral_pipeline.student_run.roots import select_roots
from coral_pipeline.student_run.stages import label_stages
from coral_pipeline_tests.defs.world import RUN, SCORES, TO_ROOTS, World, failure, settings
from coral_pipeline_tests.student_runs import snapshot_name, write_student_run


def test_the_tables_are_those_of_the_stages_themselves(world: World) -> None:
    world.materialize(TO_ROOTS, RUN)
    student_run = world.folders.student_run(RUN)
    run = read_student_run(student_run)
    labels = label_stages(run.filtered, run.direction, world.settings.selection)
    roots = select_roots(labels, run.filtered, RUN, world.settings.selection)
    for asset, table, expected in (
        ("filtered_snapshots", tables.FILTERED_SNAPSHOTS, run.filtered),
        ("filtered_snapshots", tables.REJECTED_SNAPSHOTS, run.rejected),
        ("stage_labels", tables.STAGE_LABELS, labels),
        ("selected_roots", tables.SELECTED_ROOTS, roots),
    ):
        assert table.read(world.folders.asset(asset, RUN)).equals(expected)


def test_each_root_is_copied_becomes_a_partition_and_is_reported_with_its_version(world: World) -> None:
    world.materialize(TO_ROOTS, RUN)
    roots = tables.SELECTED_ROOTS.rows(world.folders.asset("selected_roots", RUN))
    assert [key.root for key in world.keys] == sorted(row["root"] for row in roots)
    for key in world.keys:
        assert (world.folders.root(key) / "code" / "solve.py").is_file()
        (observation,) = world.observations("root_folders", str(key))
        assert observation.tags["dagster/data_version"]


def test_materializing_again_changes_no_version(world: World) -> None:
    versions = []
    for _ in range(2):
        world.materialize(TO_ROOTS, RUN)
        versions.append([world.tags(asset, RUN)["dagster/data_version"] for asset in TO_ROOTS])
    assert versions[0] == versions[1]
    observed = [world.observations("root_folders", str(key)) for key in world.keys]
    assert all(len({o.tags["dagster/data_version"] for o in twice}) == 1 and len(twice) == 2 for twice in observed)


def test_people_see_counts_reasons_and_the_curve(world: World) -> None:
    (world.folders.student_run(RUN) / "all_snapshots" / "no snapshot").mkdir()
    world.materialize(TO_ROOTS, RUN)
    seen = world.metadata("filtered_snapshots", RUN)
    assert (seen["kept"].value, seen["rejected"].value) == (len(SCORES), 1)
    assert seen["eligible"].value == sum(score is not None for score in SCORES)
    assert [record.data for record in seen["rejected by reason"].records] == [{"reason": "name", "count": 1}]
    assert seen["dagster/row_count"].value == len(SCORES)
    for asset, picture in (("stage_labels", "score curve"), ("selected_roots", "score curve with roots")):
        markdown = world.metadata(asset, RUN)[picture].md_str
        encoded = markdown.removeprefix(f"![{picture}](data:image/svg+xml;base64,").removesuffix(")")
        assert base64.b64decode(encoded).startswith(b"<?xml")
    stages = [record.data for record in world.metadata("selected_roots", RUN)["roots by stage"].records]
    assert [stage["stage"] for stage in stages] == ["early", "middle", "late"]
    assert sum(stage["by_quota"] + stage["by_backfill"] for stage in stages) == 3


def test_a_run_that_cannot_be_used_fails_in_one_line_and_is_not_tried_again(world: World) -> None:
    (world.folders.student_run(RUN) / "task.yaml").unlink()
    result = world.run(TO_ROOTS, RUN)
    assert failure(result).startswith(f"{world.folders.student_run(RUN)}/task.yaml: is missing; ")
    (failed,) = [event for event in result.all_events if event.is_step_failure]
    assert failed.step_key == "filtered_snapshots"


def test_a_snapshot_whose_name_cannot_be_a_key_is_told_when_it_becomes_a_root(tmp_path: Path) -> None:
    world = World(tmp_path, settings(selection={"num_roots": 12}))
    snapshots = world.folders.student_run(RUN) / "all_snapshots"
    (snapshots / snapshot_name(1)).rename(snapshots / "eval-000001-agent 2-356a192b7913")
    assert "'eval-000001-agent 2-356a192b7913': cannot be part of a partition key" in failure(world.run(TO_ROOTS, RUN))


def test_two_student_runs_do_not_touch_each_other(world: World) -> None:
    write_student_run(world.folder / "student_runs" / "other", [3.0, 2.0, 1.0], "minimize", first_index=20)
    world.instance.add_dynamic_partitions("student_runs", ["other"])
    world.materialize(TO_ROOTS, RUN)
    before = {key: world.observations("root_folders", str(key)) for key in world.keys}
    world.materialize(TO_ROOTS, "other")
    assert {key.student_run for key in world.keys} == {RUN, "other"} and len(world.keys) == 6
    assert all(world.observations("root_folders", str(key)) == seen for key, seen in before.items())


def test_a_pool_has_an_explicit_limit_which_is_the_users_once_set() -> None:
    with dg.instance_for_test() as instance:
        limit_trees_at_once(instance, 2)
        (pool,) = instance.event_log_storage.get_pool_limits()
        assert (pool.name, pool.limit, pool.from_default) == (POOL, 2, False)
        instance.event_log_storage.set_concurrency_slots(POOL, 7)
        limit_trees_at_once(instance, 2)
        (pool,) = instance.event_log_storage.get_pool_limits()
        assert pool.limit == 7


def test_the_student_run_is_never_written_to(world: World) -> None:
    student_run = world.folders.student_run(RUN)
    before = {path: path.stat().st_mtime_ns for path in student_run.rglob("*")}
    world.materialize(TO_ROOTS, RUN)
    assert {path: path.stat().st_mtime_ns for path in student_run.rglob("*")} == before
