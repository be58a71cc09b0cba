"""What Dagster shows as materialized is what was."""

from __future__ import annotations

from collections.abc import Iterator

import dagster as dg
import pytest
from dagster._core.loader import LoadingContextForTest
from dagster._core.storage.event_log.base import AssetRecord
from dagster._core.storage.partition_status_cache import get_and_update_asset_status_cache_value

from coral_pipeline.defs.partition_status import mend_statuses
from coral_pipeline.defs.partitions import ROOTS

TREES = dg.AssetKey("explored_trees")
FIRST, SECOND, THIRD = (f"run|eval-00000{number}-agent-1-0123456789ab" for number in (1, 2, 3))


@dg.asset(name="explored_trees", partitions_def=ROOTS)
def trees() -> None: ...


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions("roots", [FIRST, SECOND, THIRD])
        yield instance


def make(instance: dg.DagsterInstance, partition: str) -> None:
    assert dg.materialize([trees], partition_key=partition, instance=instance).success


def shown(instance: dg.DagsterInstance, context: LoadingContextForTest | None = None) -> set[str]:
    """What the UI shows as materialized, found as its server does."""
    kept = get_and_update_asset_status_cache_value(instance, TREES, ROOTS, loading_context=context)
    assert kept is not None
    return set(kept.deserialize_materialized_partition_subsets(ROOTS).get_partition_keys())


def test_a_partition_that_dagster_passed_over_is_shown_again(instance: dg.DagsterInstance) -> None:
    make(instance, FIRST)
    assert shown(instance) == {FIRST} and mend_statuses(instance) == []
    # what the server does while the second is materialized and the third is planned
    looking = LoadingContextForTest(instance)
    AssetRecord.blocking_get(looking, TREES)
    make(instance, SECOND)
    job = dg.Definitions([trees]).resolve_implicit_global_asset_job_def()
    instance.create_run_for_job(job, tags={"dagster/partition": THIRD}, asset_selection=frozenset({TREES}))
    assert shown(instance, looking) == {FIRST}
    assert shown(instance) == {FIRST}, "Dagster has mended this: mend_statuses is no longer needed"
    assert mend_statuses(instance) == ["explored_trees"]
    assert shown(instance) == {FIRST, SECOND} and mend_statuses(instance) == []


def test_what_dagster_has_not_yet_looked_at_is_not_passed_over(instance: dg.DagsterInstance) -> None:
    assert mend_statuses(instance) == []
    make(instance, FIRST)
    assert mend_statuses(instance) == []
    shown(instance)
    make(instance, SECOND)
    assert mend_statuses(instance) == [] and shown(instance) == {FIRST, SECOND}


def test_a_dropped_root_is_not_missed(instance: dg.DagsterInstance) -> None:
    make(instance, FIRST)
    make(instance, SECOND)
    instance.delete_dynamic_partition("roots", FIRST)
    assert shown(instance) == {SECOND} and mend_statuses(instance) == []
