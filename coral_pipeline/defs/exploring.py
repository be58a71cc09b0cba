"""Nights of exploring: a schedule that begins them, and what ends them.

One schedule serves every Student run, each with a budget of its own from the settings. Schedules are part of
the code location, which Dagster builds when it loads it and not again: with a schedule per Student run, one
that arrived since would be explored by none until someone reloaded the code. What this one serves it finds out
when it ticks, and it reads the settings anew then, so that a budget or a pause holds from the next night on.
"""

from __future__ import annotations

import datetime
import itertools
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import dagster as dg
from dagster._core.errors import DagsterUserCodeUnreachableError
from dagster._core.storage.tags import PARTITION_NAME_TAG, RETRY_NUMBER_TAG

from coral_pipeline.defs.checks import refused_partitions
from coral_pipeline.defs.folders import TREES
from coral_pipeline.defs.latest import latest_tags
from coral_pipeline.defs.lineage import INPUTS
from coral_pipeline.defs.partitions import STUDENT_RUNS_NAME, RootKey, age, roots_of
from coral_pipeline.defs.settings import sensor_status
from coral_pipeline.defs.under_way import latest_runs, unfinished_runs
from coral_pipeline.defs.versions import DATA_VERSION_TAG
from coral_pipeline.defs.workers import interrupt_worker
from coral_pipeline.settings import AutomationSettings, StudentRunBudget

logger = logging.getLogger(__name__)

BEFORE_TREES = ("filtered_snapshots", "stage_labels", "selected_roots", "root_folders")
"""Assets whose failed checks keep roots from being explored."""
STUDENT_RUN, NIGHT, UNTIL = "coral_pipeline/student_run", "coral_pipeline/night", "coral_pipeline/until"
"""Tags of a night's runs: whose root it is, when the night began, and when the run is stopped (both ISO 8601)."""


@dataclass(frozen=True)
class Budget:
    """What a Student run may have of one night."""

    roots: int | None
    hours: float | None

    @classmethod
    def of(cls, student_run: str, automation: AutomationSettings) -> Budget | None:
        """None where the Student run is paused."""
        own = automation.student_runs.get(student_run, StudentRunBudget())
        if own.paused:
            return None
        return cls(own.roots_per_night or automation.roots_per_night, own.hours_per_night or automation.hours_per_night)


def unexplored(student_run: str, instance: dg.DagsterInstance) -> list[RootKey]:
    """The roots that have no finished tree, as they are now: those whose last run failed at the end, else oldest first.

    A tree that other settings would grow otherwise is finished; it is explored again only where someone asks
    for it. That a root failed does not keep the others waiting night after night.
    """
    keys = roots_of(student_run, instance)
    names = list(map(str, keys))
    roots = instance.event_log_storage.get_latest_tags_by_partition(
        dg.AssetKey("root_folders"), dg.DagsterEventType.ASSET_OBSERVATION, [DATA_VERSION_TAG], names
    )
    trees = latest_tags(TREES, names, instance)

    def is_grown(name: str) -> bool:
        return name in trees and trees[name].get(INPUTS) == roots.get(name, {}).get(DATA_VERSION_TAG)

    missing = [key for key in keys if not is_grown(str(key))]
    latest = latest_runs(instance, map(str, missing))

    def has_failed(key: RootKey) -> bool:
        run = latest.get(str(key))
        return run is not None and run.status == dg.DagsterRunStatus.FAILURE

    return sorted(missing, key=lambda key: (has_failed(key), age(key)))


def plan_night(
    night: datetime.datetime, instance: dg.DagsterInstance, automation: AutomationSettings
) -> list[dg.RunRequest]:
    """The runs of a night that began at ``night``, Student runs taking turns, less those there are already."""
    tonight = instance.get_runs(dg.RunsFilter(tags={NIGHT: night.isoformat()}))
    busy = {run.tags.get(PARTITION_NAME_TAG) for run in (*tonight, *unfinished_runs(instance))}
    refused = refused_partitions(instance, BEFORE_TREES)
    left_alone = busy | refused
    plans = []
    for student_run in instance.get_dynamic_partitions(STUDENT_RUNS_NAME):
        budget = Budget.of(student_run, automation)
        if budget is None or student_run in refused:
            continue
        keys = [key for key in unexplored(student_run, instance) if str(key) not in left_alone]
        spent = len({run.tags.get(PARTITION_NAME_TAG) for run in tonight if run.tags.get(STUDENT_RUN) == student_run})
        wanted = keys if budget.roots is None else keys[: max(0, budget.roots - spent)]
        plans.append([_request(key, night, budget) for key in wanted])
    return [request for turn in itertools.zip_longest(*plans) for request in turn if request is not None]


def _request(key: RootKey, night: datetime.datetime, budget: Budget) -> dg.RunRequest:
    tags = {STUDENT_RUN: key.student_run, NIGHT: night.isoformat()}
    if budget.hours is not None:
        tags[UNTIL] = (night + datetime.timedelta(hours=budget.hours)).isoformat()
    return dg.RunRequest(run_key=f"{night.isoformat()} {key}", partition_key=str(key), tags=tags)


def nights_schedule(
    assets: Sequence[dg.AssetsDefinition], read: Callable[[], AutomationSettings]
) -> dg.ScheduleDefinition:
    """The schedule ``nights``, which materializes ``assets`` of roots. ``read`` gives the settings of the moment."""
    started = read()

    @dg.schedule(
        target=list(assets),
        cron_schedule=started.cron,
        execution_timezone=started.timezone,
        default_status=dg.DefaultScheduleStatus[sensor_status(started).name],
        description=(
            "Every night goes on exploring roots that are not done, oldest first, in the budget of each Student run "
            "(settings `automation`: roots or hours per night, pauses); of those that have arrived since, too."
        ),
    )
    def nights(context: dg.ScheduleEvaluationContext) -> Sequence[dg.RunRequest] | dg.SkipReason:
        requests = plan_night(context.scheduled_execution_time, context.instance, read())
        return requests or dg.SkipReason("nothing to explore: every root is done, under way, paused or over the budget")

    return nights


def end_nights(instance: dg.DagsterInstance, now: datetime.datetime) -> list[str]:
    """Stop the runs whose time is over; returns the keys of the roots whose runs have been told so."""
    over = [run for run in unfinished_runs(instance) if _is_over(run, now, instance)]
    return [run.tags[PARTITION_NAME_TAG] for run in over if _stop(run, instance)]


def _stop(run: dg.DagsterRun, instance: dg.DagsterInstance) -> bool:
    """Tell the run to stop; False where neither its code server nor its process could be told."""
    try:
        is_told = instance.run_coordinator.cancel_run(run.run_id)
    except DagsterUserCodeUnreachableError:  # its code server is gone, and that alone does not end it
        is_told = False
    if is_told or interrupt_worker(run):
        return True
    logger.warning("run %s could not be told to stop; Dagster's run monitoring gives it up", run.run_id)
    return False


def _is_over(run: dg.DagsterRun, now: datetime.datetime, instance: dg.DagsterInstance) -> bool:
    if UNTIL not in run.tags or run.status == dg.DagsterRunStatus.CANCELING:
        return False
    until = datetime.datetime.fromisoformat(run.tags[UNTIL])
    return until <= now and not _is_begun_by_hand(run, until, instance)


def _is_begun_by_hand(run: dg.DagsterRun, since: datetime.datetime, instance: dg.DagsterInstance) -> bool:
    """Whether someone re-executed a run of the night ``since`` then: it inherits the tags, and has time all the same.

    Automatic retries belong to what they are retries of.
    """
    record = instance.get_run_record_by_id(run.run_id)
    parent = record.dagster_run.parent_run_id if record else None
    if record is None or parent is None:
        return False
    if RETRY_NUMBER_TAG in run.tags:
        retried = instance.get_run_by_id(parent)
        return retried is not None and _is_begun_by_hand(retried, since, instance)
    return record.create_timestamp >= since
