"""The latest event of each of many partitions, in a few questions to Dagster's storage.

An event brings the pictures of its page along: earlier ones are not read, and not all are read at once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import dagster as dg

_EVENTS_AT_ONCE = 200


def latest_tags(asset: str, keys: Collection[str], instance: dg.DagsterInstance) -> dict[str, Mapping[str, str]]:
    """Tags of the latest materialization of each partition that was ever made."""
    records = _latest(asset, dg.DagsterEventType.ASSET_MATERIALIZATION, keys, instance)
    found = [record.asset_materialization for record in records]
    return {str(made.partition): made.tags or {} for made in found if made is not None}


def latest_observations(
    asset: str, keys: Collection[str], instance: dg.DagsterInstance
) -> dict[str, dg.AssetObservation]:
    """The latest observation of each partition that has one."""
    records = _latest(asset, dg.DagsterEventType.ASSET_OBSERVATION, keys, instance)
    found = [record.asset_observation for record in records]
    return {str(told.partition): told for told in found if told is not None}


def _latest(
    asset: str, kind: dg.DagsterEventType, keys: Collection[str], instance: dg.DagsterInstance
) -> Iterator[dg.EventLogRecord]:
    key, storage = dg.AssetKey(asset), instance.event_log_storage
    ids = list(storage.get_latest_storage_id_by_partition(key, kind, set(keys)).values())
    is_made = kind == dg.DagsterEventType.ASSET_MATERIALIZATION
    fetch = instance.fetch_materializations if is_made else instance.fetch_observations
    for first in range(0, len(ids), _EVENTS_AT_ONCE):
        wanted = dg.AssetRecordsFilter(key, storage_ids=ids[first : first + _EVENTS_AT_ONCE])
        yield from fetch(wanted, limit=_EVENTS_AT_ONCE).records
