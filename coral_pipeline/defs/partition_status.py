"""Which partitions Dagster shows as materialized, held against its own events.

Dagster keeps, of each asset, the partitions that are materialized up to some event, and adds those of later events.
A partition that is materialized while it looks, just before another one is planned, is passed over and shows as
missing for ever (dagster #27203 is about this place): in a backfill of hundreds of roots that happens.
"""

from __future__ import annotations

import dagster as dg
from dagster._core.storage.event_log.base import AssetEntry

from coral_pipeline.defs.folders import PER_ROOT
from coral_pipeline.defs.partitions import ROOTS, STUDENT_RUNS
from coral_pipeline.tables import TABLES


def mend_statuses(instance: dg.DagsterInstance) -> list[str]:
    """Have Dagster find the materialized partitions anew of assets of which it has passed some over; their names."""
    entries = [record.asset_entry for record in instance.get_asset_records([dg.AssetKey(asset) for asset in TABLES])]
    passed_over = [entry.asset_key for entry in entries if _passed_over(entry, instance)]
    instance.wipe_asset_cached_status(passed_over)
    return [key.to_user_string() for key in passed_over]


def _passed_over(entry: AssetEntry, instance: dg.DagsterInstance) -> set[str]:
    """Partitions of the asset that are materialized and will never show as such."""
    kept = entry.cached_status
    if kept is None:
        return set()
    partitions = ROOTS if entry.asset_key.to_user_string() in PER_ROOT else STUDENT_RUNS
    shown = set(kept.deserialize_materialized_partition_subsets(partitions).get_partition_keys())
    made = instance.get_materialized_partitions(entry.asset_key, before_cursor=kept.latest_storage_id + 1)
    return made.intersection(instance.get_dynamic_partitions(partitions.name or "")) - shown
