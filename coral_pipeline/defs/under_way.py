"""What runs and waits in Dagster, by partition."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import dagster as dg
from dagster._core.storage.tags import PARTITION_NAME_TAG

_UNFINISHED = (
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
)
_KEYS_AT_ONCE = 500
"""Keys in one question to Dagster's storage: SQLite takes no more than some thousand values."""


def unfinished_runs(instance: dg.DagsterInstance) -> Sequence[dg.DagsterRun]:
    """Runs that wait or are being executed."""
    return instance.get_runs(dg.RunsFilter(statuses=_UNFINISHED))


def partitions_under_way(instance: dg.DagsterInstance) -> set[str]:
    """Keys of the partitions of such runs."""
    return {key for run in unfinished_runs(instance) if (key := run.tags.get(PARTITION_NAME_TAG))}


def latest_runs(instance: dg.DagsterInstance, partitions: Iterable[str]) -> dict[str, dg.DagsterRun]:
    """The latest run of each partition that has had one."""
    keys, latest = list(partitions), dict[str, dg.DagsterRun]()
    for first in range(0, len(keys), _KEYS_AT_ONCE):
        wanted = {PARTITION_NAME_TAG: keys[first : first + _KEYS_AT_ONCE]}
        for run in instance.get_runs(dg.RunsFilter(tags=wanted)):  # the latest first
            latest.setdefault(run.tags[PARTITION_NAME_TAG], run)
    return latest
