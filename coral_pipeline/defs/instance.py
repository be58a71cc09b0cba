"""The Dagster instance that ``coral-pipeline run`` keeps under its output folder, for the UI to open afterwards."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg

from coral_pipeline.errors import BadInput

HOME = "dagster_home"
"""Under the output folder: ``DAGSTER_HOME`` of its runs."""
LAUNCHED_BY = {"coral_pipeline/launched_by": "run"}
"""Tag of the runs that this process executes itself."""
_SHARED = """\
telemetry:
  enabled: false
nux:
  enabled: false
concurrency:
  pools:
    granularity: run  # runs that wait for a free slot stay queued; with granularity op too many start
"""
FILES = {
    "dagster.yaml": _SHARED
    + """\
python_logs:
  managed_python_loggers: [coral_pipeline]
  python_log_level: INFO
run_monitoring:
  enabled: true
  free_slots_after_run_end_seconds: 60  # else a cancelled run keeps its slot of the pool
""",
    # Dagster captures what steps print by pointing the process's stdout and stderr elsewhere. Here they are the user's,
    # and runs side by side would put them back in the wrong order.
    "coral_pipeline_run.yaml": _SHARED
    + """\
compute_logs:
  module: dagster._core.storage.noop_compute_log_manager
  class: NoOpComputeLogManager
""",
}
"""What is put into the home: the configuration of the UI and its daemon, and that of ``coral-pipeline run``."""
_UNFINISHED = (
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
)


@contextmanager
def instance_under(output: Path) -> Iterator[dg.DagsterInstance]:
    """The instance under ``output``, made where there is none; alone there as far as ``coral-pipeline run`` goes.

    Runs that an earlier process left unfinished when it was killed are marked as cancelled. Raises ``BadInput``
    where another process is at it, or the folder cannot be written.
    """
    home = output.absolute() / HOME
    try:
        home.mkdir(parents=True, exist_ok=True)
        for name, content in FILES.items():
            if not (home / name).exists():
                (home / name).write_text(content)
        lock = os.open(home / "coral_pipeline_run.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise BadInput(error.filename or home, f"cannot be used ({error.strerror})", "choose another --out") from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            problem = "another coral-pipeline run is writing there"
            raise BadInput(output, problem, "wait until it has ended, or choose another --out") from error
        with dg.DagsterInstance.from_config(str(home), "coral_pipeline_run.yaml") as instance:
            # For every run Dagster configures Python's logging anew. That takes locks which runs in other threads
            # hold while they wait for the event log, whose holder waits for logging's lock: a deadlock, seen. Our
            # file has no handlers, so there is nothing to configure.
            instance.get_yaml_python_handlers = tuple  # type: ignore[method-assign]
            for run in instance.get_runs(dg.RunsFilter(statuses=_UNFINISHED, tags=LAUNCHED_BY)):
                instance.report_run_canceled(run, message="The process that executed this run was killed.")
            yield instance
    finally:
        os.close(lock)
