"""Which partitions Dagster shows as materialized, held against its own events.

Dagster keeps, of each asset, the partitions that are materialized up to some event, and adds those of later events.
A partition that is materialized while it looks, just before another one is planned, is passed over and shows as
missing for ever (dagster #27203 is about this place): in a backfill of hundreds of roots that happens.
"""

from __future__ import annotations

import dagster as dg

from coral_pipeline.defs.folders import PER_ROOT
from coral_pipeline.defs.partitions import ROOTS, STUDENT_RUNS
from coral_pipeline.tables import TABLES


def mend_statuses(instance: dg.DagsterInstance) -> list[str]:
    """Have Dagster find the materialized partitions anew of assets of which it has passed some over; their names."""
    passed_over = [asset for asset in TABLES if _passed_over(asset, instance)]
    instance.wipe_asset_cached_status([dg.AssetKey(asset) for asset in passed_over])
    return passed_over


def _passed_over(asset: str, instance: dg.DagsterInstance) -> set[str]:
    """Partitions of the asset that are materialized and will never show as such."""
    key, partitions = dg.AssetKey(asset), ROOTS if asset in PER_ROOT else STUDENT_RUNS
    record = next(iter(instance.get_asset_records([key])), None)
    kept = record.asset_entry.cached_status if record else None
    if kept is None:
        return set()
    shown = set(kept.deserialize_materialized_partition_subsets(partitions).get_partition_keys())
    made = instance.get_materialized_partitions(key, before_cursor=kept.latest_storage_id + 1)
    return made.intersection(instance.get_dynamic_partitions(partitions.name or "")) - shown
