"""Declarative automation: finished trees are carried on to ranked paths, advantages and the dataset.

Trees are grown by backfills and nights of exploring alone: no condition here asks for one, so that no change of
code or settings sets off hours of models at work.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import dagster as dg

from coral_pipeline.defs.checks import lifted_refusals, refused_partitions
from coral_pipeline.defs.dataset import DATASET
from coral_pipeline.defs.folders import PER_ROOT
from coral_pipeline.defs.settings import sensor_status
from coral_pipeline.defs.under_way import partitions_under_way
from coral_pipeline.defs.versions import DATA_VERSION_TAG
from coral_pipeline.settings import AutomationSettings
from coral_pipeline.storage import SEPARATOR

FINISHED = dg.AssetKey("finished_roots")

_Condition = dg.AutomationCondition[Any]


class RootsAtRest(_Condition):
    """Student runs of which no root waits or is being worked on: thirty trees that end one by one make one dataset."""

    @property
    def name(self) -> str:
        """As the UI shows it."""
        return "roots_at_rest"

    def evaluate(self, context: dg.AutomationContext[Any]) -> dg.AutomationResult[Any]:
        """The partitions of ``context``, Student runs, for which it holds."""
        under_way = partitions_under_way(context.asset_graph_view.instance)
        busy = {key.partition(SEPARATOR)[0] for key in under_way if SEPARATOR in key}
        return _where(context, lambda key: key not in busy)


class FinishedRootsChanged(_Condition):
    """Student runs with another set of finished roots than when the asset was last asked for, or its first ones.

    Dagster's own conditions do not see what `finished_roots` reports: observations of an asset that nothing here
    materializes.
    """

    @property
    def name(self) -> str:
        """As the UI shows it."""
        return "finished_roots_changed"

    def evaluate(self, context: dg.AutomationContext[Any]) -> dg.AutomationResult[Any]:
        """The partitions of ``context``, Student runs, for which it holds."""
        storage = context.asset_graph_view.instance.event_log_storage
        made, planned = (
            storage.get_latest_storage_id_by_partition(context.key, kind)
            for kind in (dg.DagsterEventType.ASSET_MATERIALIZATION, dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED)
        )
        asked = {**made, **planned}  # a root done after it was asked for may have come too late to be in it

        def versions(**bounds: Any) -> Mapping[str, Mapping[str, str]]:
            observed = dg.DagsterEventType.ASSET_OBSERVATION
            return storage.get_latest_tags_by_partition(FINISHED, observed, [DATA_VERSION_TAG], **bounds)

        now = versions()

        def has_changed(key: str) -> bool:
            then = versions(asset_partitions=[key], before_cursor=asked[key]) if key in asked else {}
            return key in now and now[key] != then.get(key)

        return _where(context, has_changed)


class RefusalLifted(_Condition):
    """Student runs a root of which passed a blocking check after the asset was last asked for, refused until then."""

    @property
    def name(self) -> str:
        """As the UI shows it."""
        return "refusal_lifted"

    def evaluate(self, context: dg.AutomationContext[Any]) -> dg.AutomationResult[Any]:
        """The partitions of ``context``, Student runs, for which it holds."""
        instance = context.asset_graph_view.instance
        lifted: dict[str, float] = {}
        for root, when in lifted_refusals(instance, PER_ROOT).items():
            student_run = root.partition(SEPARATOR)[0]
            lifted[student_run] = max(when, lifted.get(student_run, 0.0))

        def was_asked_for_before(key: str) -> bool:
            asked = instance.get_latest_planned_materialization_info(context.key, key)
            run = instance.get_run_record_by_id(asked.run_id) if asked else None
            return run is not None and run.create_timestamp.timestamp() < lifted[key]

        return _where(context, lambda key: key in lifted and was_asked_for_before(key))


class InputRefused(_Condition):
    """Partitions that are made from what a blocking check refused.

    Dagster's own `check_failed` forgets a refusal as soon as the check waits to be evaluated again, and
    `all_deps_blocking_checks_passed` wants inputs made in the same run to have passed already.
    """

    @property
    def name(self) -> str:
        """As the UI shows it."""
        return "input_refused"

    def evaluate(self, context: dg.AutomationContext[Any]) -> dg.AutomationResult[Any]:
        """The partitions of ``context``, roots or Student runs, for which it holds."""
        view = context.asset_graph_view
        inputs = {key.to_user_string() for key in view.asset_graph.get(context.key).parent_keys}
        refused = refused_partitions(view.instance, inputs)
        return _where(context, lambda key: not refused.isdisjoint((key, key.partition(SEPARATOR)[0])))


class MadeMeanwhile(_Condition):
    """Partitions made since this look began: by a run that may be seen to have ended, but not yet to have made them."""

    @property
    def name(self) -> str:
        """As the UI shows it."""
        return "made_meanwhile"

    def evaluate(self, context: dg.AutomationContext[Any]) -> dg.AutomationResult[Any]:
        """The partitions of ``context`` for which it holds."""
        view = context.asset_graph_view
        made = view.instance.event_log_storage.get_latest_storage_id_by_partition(
            context.key, dg.DagsterEventType.ASSET_MATERIALIZATION, after_cursor=view.last_event_id
        )
        return _where(context, made.__contains__)


def _where(context: dg.AutomationContext[Any], holds: Callable[[str], bool]) -> dg.AutomationResult[Any]:
    """Those of the candidates of ``context`` for which it holds."""
    candidates = context.candidate_subset
    keys = {key for key in candidates.expensively_compute_partition_keys() if holds(key)}
    return dg.AutomationResult(context, true_subset=candidates.compute_intersection_with_partition_keys(keys))


def conditions(automation: AutomationSettings) -> dict[str, _Condition]:
    """The condition of each asset that is carried on.

    An asset is asked for when what it is made from has another version than when it was last made, or when it is
    missing and did not fail; never while something of it is under way, missing, or refused by a blocking check.
    """
    condition = dg.AutomationCondition
    changed = condition.any_deps_match(condition.data_version_changed()).with_label("an input has changed")
    lacking = condition.missing() & ~condition.execution_failed()
    missing = condition.any_deps_missing().ignore(dg.AssetSelection.assets(FINISHED))
    under_way = condition.any_deps_in_progress() | condition.in_progress()
    possible = ~missing & ~under_way & ~InputRefused() & ~MadeMeanwhile()  # the last after what is under way
    carried_on = (changed.since_last_handled() | lacking) & possible
    in_time = RootsAtRest() | condition.cron_tick_passed(automation.dataset_cron, automation.timezone)
    outdated = FinishedRootsChanged() | RefusalLifted() | (changed.since_last_handled() & ~condition.missing())
    return {**dict.fromkeys(PER_ROOT[1:], carried_on), DATASET: outdated & possible & in_time}


def automation_sensor(automation: AutomationSettings) -> dg.AutomationConditionSensorDefinition:
    """The sensor ``carry_on``, which evaluates the conditions in the code location: one of them is our own."""
    with warnings.catch_warnings():
        # Dagster calls beta what a condition of our own needs; pyproject.toml pins the version.
        warnings.simplefilter("ignore", dg.BetaWarning)
        return dg.AutomationConditionSensorDefinition(
            "carry_on",
            target=dg.AssetSelection.assets(*PER_ROOT[1:], DATASET),
            default_status=sensor_status(automation),
            minimum_interval_seconds=automation.seconds_between_looks,
            use_user_code_server=True,
            emit_backfills=False,
            description=(
                "Carries finished trees on to ranked paths and advantages, and these to the dataset of their "
                "Student run as soon as none of its roots is under way. Explores nothing."
            ),
        )
