"""Runs whose process is gone, found and marked as failed, so that they are tried again.

With Dagster's default launcher the code server watches the workers it started. When the machine goes down with both,
nobody does: their runs stay "started", keep their places in the pool, and let no other run of the same root begin.
So every run notes which process executes it. Only Linux tells, and only of processes of the same machine.
"""

from __future__ import annotations

import os
import platform
from pathlib import Path

import dagster as dg

WORKER = "coral_pipeline/worker"
"""Tag of a run: its own id (retries inherit tags), then host, boot, id and start time of its process."""
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_START_TIME = 19
"""Place of the start time among the fields of /proc/<pid>/stat that come after the process's name."""


def note_worker(context: dg.AssetExecutionContext) -> None:
    """Note on the run of ``context`` that this process executes it."""
    started = _start_time(os.getpid())
    if started:
        value = f"{context.run.run_id} {platform.node()} {_boot()} {os.getpid()} {started}"
        context.instance.add_run_tags(context.run.run_id, {WORKER: value})


def fail_abandoned(instance: dg.DagsterInstance) -> list[str]:
    """Mark started runs as failed whose process is gone; returns their ids."""
    started = instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED]))
    gone = [run.run_id for run in started if _is_gone(run)]
    for run_id in gone:
        run = instance.get_run_by_id(run_id)
        if run is not None and run.status == dg.DagsterRunStatus.STARTED:  # it may have ended since
            instance.report_run_failed(run, "The process that executed this run is gone.")
    return gone


def _is_gone(run: dg.DagsterRun) -> bool:
    run_id, *process = run.tags.get(WORKER, "").split(" ")
    if run_id != run.run_id or len(process) != 4:
        return False
    host, boot, pid, started = process
    return host == platform.node() and (boot != _boot() or started != _start_time(int(pid)))


def _boot() -> str:
    return _BOOT.read_text().strip() if _BOOT.exists() else ""


def _start_time(pid: int) -> str | None:
    """When the process started, in ticks since boot; None where there is none, or the machine does not tell."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    return stat.rpartition(")")[2].split()[_START_TIME]
