"""Asking a deployment's Dagster daemon to work on roots: a backfill, as the UI launches it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import dagster as dg
from dagster._core.definitions.assets.graph.asset_graph_subset import AssetGraphSubset
from dagster._core.execution.backfill import PartitionBackfill
from dagster._core.utils import make_new_backfill_id

from coral_pipeline.defs.exploring import STUDENT_RUN
from coral_pipeline.defs.folders import PER_ROOT
from coral_pipeline.defs.lineage import Lineage
from coral_pipeline.defs.partitions import ROOTS, ROOTS_NAME, RootKey, age
from coral_pipeline.defs.under_way import partitions_under_way
from coral_pipeline.errors import BadInput


@dataclass(frozen=True)
class Asked:
    """What was asked for."""

    backfill: str | None
    """Its id; None where there is nothing to do."""
    roots: int
    under_way: int
    """Roots left out because they wait or are being worked on already."""
    current: int
    """Roots left out because they are what would be made now."""
    daemon_runs: bool
    """Whether a Dagster daemon is there to carry it out."""


def backfill_roots(student_run: str, lineage: Lineage, instance: dg.DagsterInstance, limit: int | None = None) -> Asked:
    """Ask for what is missing or stale of the Student run's roots, at most ``limit`` of them, oldest first.

    Raises ``BadInput`` where it has no roots.
    """
    keys = _roots(student_run, instance)
    busy = partitions_under_way(instance)
    wanted = {key: lineage.stale(key, instance) for key in keys if str(key) not in busy}
    chosen = [key for key, assets in wanted.items() if assets][:limit]
    return Asked(
        backfill=_launch(student_run, {key: wanted[key] for key in chosen}, instance) if chosen else None,
        roots=len(chosen),
        under_way=len(keys) - len(wanted),
        current=sum(not assets for assets in wanted.values()),
        daemon_runs=any(status.healthy for status in instance.get_daemon_statuses().values()),
    )


def _roots(student_run: str, instance: dg.DagsterInstance) -> list[RootKey]:
    keys = [RootKey.parse(key) for key in instance.get_dynamic_partitions(ROOTS_NAME)]
    own = sorted((key for key in keys if key.student_run == student_run), key=age)
    if not own:
        known = ", ".join(sorted({key.student_run for key in keys})) or "none"
        raise BadInput(
            f"Student run {student_run!r}",
            f"has no roots in {instance.root_directory} (those that have: {known})",
            "turn on the sensor `arrivals`, or materialize selected_roots of it",
        )
    return own


def _launch(student_run: str, assets_by_root: dict[RootKey, Sequence[str]], instance: dg.DagsterInstance) -> str:
    wanted = {asset: [str(key) for key, assets in assets_by_root.items() if asset in assets] for asset in PER_ROOT}
    subsets = {dg.AssetKey(asset): ROOTS.subset_with_partition_keys(keys) for asset, keys in wanted.items() if keys}
    backfill = PartitionBackfill.from_asset_graph_subset(
        backfill_id=make_new_backfill_id(),
        backfill_timestamp=time.time(),
        tags={STUDENT_RUN: student_run},
        dynamic_partitions_store=instance,
        asset_graph_subset=AssetGraphSubset(subsets),  # type: ignore[call-arg]  # both its fields have defaults
        title=f"coral-pipeline backfill {student_run}",
        description=None,
        run_config=None,
    )
    instance.add_backfill(backfill)
    return str(backfill.backfill_id)
