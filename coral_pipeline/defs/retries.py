"""Which failures are tried again: those of the machinery are, those that would only be repeated are not.

dagster.yaml has failed runs retried, but not those in which a step failed. A step that failed for want of a
model endpoint, disk or sandbox marks its run, and is retried all the same; so is a run whose process was killed.
Retries are runs of their own: with an op's ``RetryPolicy`` a terminated search would begin again at once.
"""

from __future__ import annotations

import threading
from typing import Protocol

import dagster as dg
from dagster._core.storage.tags import RETRY_NUMBER_TAG, RETRY_ON_ASSET_OR_OP_FAILURE_TAG

from coral_pipeline.errors import causes, is_outage
from coral_pipeline.settings import AutomationSettings
from coral_pipeline.teacher.protocol import InfrastructureFault, Stopped

FAULT = "coral_pipeline/fault"
"""Tag of a failed run: ``INFRASTRUCTURE``, or ``INPUT`` for what a retry would not mend."""
INFRASTRUCTURE, INPUT = "infrastructure", "input"


class RunContext(Protocol):
    """What is known wherever something of a run is carried out."""

    @property
    def instance(self) -> dg.DagsterInstance:
        """The instance that keeps the run."""

    @property
    def run(self) -> dg.DagsterRun:
        """The run, its tags as they were when it began."""


def is_infrastructure(error: BaseException) -> bool:
    """Whether the error, or one that it was raised from, is the machinery's and may be gone the next time.

    So may what another run replaced while this one read it.
    """
    return is_outage(error) or any(isinstance(cause, InfrastructureFault) for cause in causes(error))


def mark_run(context: RunContext, error: BaseException) -> None:
    """Note on the run of ``context`` why it fails, so that Dagster retries it or does not."""
    kind = INFRASTRUCTURE if is_infrastructure(error) else INPUT
    retried = str(kind == INFRASTRUCTURE).lower()
    context.instance.add_run_tags(context.run.run_id, {FAULT: kind, RETRY_ON_ASSET_OR_OP_FAILURE_TAG: retried})


def forget_earlier_mark(context: RunContext) -> None:
    """A retry inherits the mark of the run before: whether it is tried again is for its own failure to say."""
    if context.run.tags.get(RETRY_ON_ASSET_OR_OP_FAILURE_TAG) == "true":
        context.instance.add_run_tags(context.run.run_id, {RETRY_ON_ASSET_OR_OP_FAILURE_TAG: "false"})


def pause_before_retry(
    context: dg.AssetExecutionContext, automation: AutomationSettings, stop: threading.Event
) -> None:
    """Wait where this run is a retry. Raises ``Stopped`` where ``stop`` is set.

    Meanwhile it keeps its place in the pool: while the machinery is broken others need not fail as fast.
    """
    number, pauses = int(context.run.tags.get(RETRY_NUMBER_TAG, 0)), automation.seconds_before_retry
    if number and pauses:
        seconds = pauses[min(number, len(pauses)) - 1]
        context.log.info(f"retry {number}: going on in {seconds:g} s")
        if stop.wait(seconds):
            raise Stopped("while waiting to try again")
