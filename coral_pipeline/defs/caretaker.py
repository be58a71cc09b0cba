"""The sensor that keeps a deployment's runs in order."""

from __future__ import annotations

import datetime

import dagster as dg

from coral_pipeline.defs.exploring import end_nights
from coral_pipeline.defs.partition_status import mend_statuses
from coral_pipeline.defs.workers import fail_abandoned
from coral_pipeline.settings import AutomationSettings


def caretaker_sensor(automation: AutomationSettings) -> dg.SensorDefinition:
    """The sensor ``caretaker``. On from the start: it begins nothing, and mends what others left behind."""

    @dg.sensor(
        minimum_interval_seconds=automation.seconds_between_looks,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=(
            "Stops what a night began when its hours are over (trees go on where they were another time), marks runs "
            "as failed whose process is gone, so that they are tried again, and has Dagster look anew where it shows "
            "partitions as missing that are materialized."
        ),
    )
    def caretaker(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        done = {
            "stopped": end_nights(context.instance, datetime.datetime.now(datetime.UTC)),
            "gone": fail_abandoned(context.instance),
            "looked at anew": mend_statuses(context.instance),
        }
        told = [f"{what}: {', '.join(which)}" for what, which in done.items() if which]
        return dg.SkipReason("; ".join(told) or "nothing to do")

    return caretaker
