"""The Dagster instance that ``coral-pipeline run`` keeps under its output folder, for the UI to open afterwards."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg

from coral_pipeline.defs.under_way import unfinished_runs
from coral_pipeline.errors import BadInput

HOME = "dagster_home"
"""Under the output folder: ``DAGSTER_HOME`` of its runs."""
IN_PROCESS_RUN = "coral_pipeline/in_process_run"
"""Tag of the runs that ``coral-pipeline run`` executes itself: their own id, so that copies of it mean nothing."""
CONFIGURATION, IN_PROCESS = "dagster.yaml", "dagster_in_process.yaml"
"""Files beside this one that are copied into the home: for the UI and its daemon, and for ``coral-pipeline run``."""


@contextmanager
def instance_under(output: Path) -> Iterator[dg.DagsterInstance]:
    """The instance under ``output``, made where there is none; alone there as far as ``coral-pipeline run`` goes.

    Runs that an earlier process left unfinished when it was killed are marked as cancelled. Raises ``BadInput``
    where another process is at it, or the folder cannot be written.
    """
    home = output.absolute() / HOME
    try:
        home.mkdir(parents=True, exist_ok=True)
        for name in (CONFIGURATION, IN_PROCESS):
            if name == IN_PROCESS or not (home / name).exists():
                shutil.copyfile(Path(__file__).with_name(name), home / name)
        lock = os.open(home / "coral_pipeline_run.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise BadInput(error.filename or home, f"cannot be used ({error.strerror})", "choose another --out") from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            problem = "another coral-pipeline run is writing there"
            raise BadInput(output, problem, "wait until it has ended, or choose another --out") from error
        with dg.DagsterInstance.from_config(str(home), IN_PROCESS) as instance:
            # For every run Dagster configures Python's logging anew. That takes locks which runs in other threads
            # hold while they wait for the event log, whose holder waits for logging's lock: a deadlock, seen. Our
            # file has no handlers, so there is nothing to configure.
            instance.get_yaml_python_handlers = tuple  # type: ignore[method-assign]  # for the reason above
            for run in unfinished_runs(instance):
                if run.tags.get(IN_PROCESS_RUN) == run.run_id:
                    instance.report_run_canceled(run, message="The process that executed this run was killed.")
            yield instance
    finally:
        os.close(lock)
