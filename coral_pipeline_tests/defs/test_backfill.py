"""What `coral-pipeline backfill` asks the daemon for."""

from __future__ import annotations

from collections.abc import Sequence

import dagster as dg
import pytest

from coral_pipeline.defs.backfill import backfill_roots
from coral_pipeline.defs.folders import PER_ROOT
from coral_pipeline.defs.partitions import RootKey
from coral_pipeline.errors import BadInput
from coral_pipeline_tests.defs.test_exploring import exploring
from coral_pipeline_tests.defs.world import RUN, TO_ROOTS, World, settings

pytestmark = pytest.mark.slow


def asked_for(world: World, backfill: str | None) -> dict[str, set[str]]:
    """Partitions of a backfill, by asset."""
    assert backfill is not None
    found = world.instance.get_backfill(backfill)
    assert found is not None and found.asset_backfill_data is not None
    target = found.asset_backfill_data.target_subset.partitions_subsets_by_asset_key
    return {key.to_user_string(): set(subset.get_partition_keys()) for key, subset in target.items()}


def names(keys: Sequence[RootKey]) -> set[str]:
    return set(map(str, keys))


def test_what_is_missing_stale_or_under_way_is_told_apart(world: World) -> None:
    world.materialize(TO_ROOTS, RUN)
    done, first, second = world.keys
    world.materialize(PER_ROOT, str(done))

    asked = backfill_roots(RUN, world.lineage, world.instance)
    assert (asked.roots, asked.current, asked.under_way, asked.daemon_runs) == (2, 1, 0, False)
    assert asked_for(world, asked.backfill) == dict.fromkeys(PER_ROOT, names([first, second]))

    started = dg.DagsterRunStatus.STARTED
    world.instance.create_run_for_job(exploring, status=started, tags={"dagster/partition": str(second)})
    asked = backfill_roots(RUN, world.lineage, world.instance, limit=5)
    assert (asked.roots, asked.under_way) == (1, 1)
    assert asked_for(world, asked.backfill) == dict.fromkeys(PER_ROOT, names([first]))

    world.settings = settings(paths={"top_k": 1})
    asked = backfill_roots(RUN, world.lineage, world.instance)
    assert asked_for(world, asked.backfill) == {
        "explored_trees": names([first]),
        "ranked_paths": names([done, first]),
        "advantage_batches": names([done, first]),
    }


def test_where_all_is_done_nothing_is_asked_for(world: World) -> None:
    world.materialize(TO_ROOTS, RUN)
    for key in world.keys:
        world.materialize(PER_ROOT, str(key))
    asked = backfill_roots(RUN, world.lineage, world.instance)
    assert (asked.backfill, asked.roots, asked.current) == (None, 0, 3)
    assert not world.instance.get_backfills()


def test_a_student_run_without_roots_is_told_with_those_that_have(world: World) -> None:
    world.materialize(TO_ROOTS, RUN)
    with pytest.raises(BadInput, match=rf"'nobody': has no roots in .* \(those that have: {RUN}\); turn on the sensor"):
        backfill_roots("nobody", world.lineage, world.instance)
