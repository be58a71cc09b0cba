"""The processes that execute runs, where Dagster has lost sight of them.

With Dagster's default launcher the code server watches the workers it started, and stops them. When the machine goes
down with both, their runs stay "started", keep their places in the pool, and let no other run of the same root begin:
they are marked as failed, so that they are tried again. When only the code server is gone its workers go on, and
nobody else could stop them. So every run notes which process executes it. Only Linux tells, and only of processes of
the same machine.
"""

from __future__ import annotations

import os
import platform
import signal
from dataclasses import dataclass
from pathlib import Path

import dagster as dg

WORKER = "coral_pipeline/worker"
"""Tag of a run: its own id (retries inherit tags), then host, boot, id and start time of its process."""
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_START_TIME = 19
"""Place of the start time among the fields of /proc/<pid>/stat that come after the process's name."""


@dataclass(frozen=True)
class _Worker:
    """A process."""

    host: str
    boot: str
    pid: int
    started: str

    @classmethod
    def of(cls, run: dg.DagsterRun) -> _Worker | None:
        """The one that has noted that it executes the run, if any."""
        run_id, *process = run.tags.get(WORKER, "").split(" ")
        if run_id != run.run_id or len(process) != 4:
            return None
        host, boot, pid, started = process
        return cls(host, boot, int(pid), started)

    @property
    def is_of_this_machine(self) -> bool:
        return self.host == platform.node()

    @property
    def lives_here(self) -> bool:
        return self.is_of_this_machine and self.boot == _boot() and self.started == _start_time(self.pid)


def note_worker(context: dg.AssetExecutionContext) -> None:
    """Note on the run of ``context`` that this process executes it."""
    started = _start_time(os.getpid())
    if started:
        value = f"{context.run.run_id} {platform.node()} {_boot()} {os.getpid()} {started}"
        context.instance.add_run_tags(context.run.run_id, {WORKER: value})


def interrupt_worker(run: dg.DagsterRun) -> bool:
    """Interrupt the process that executes the run, as its code server would; False where it is not to be found here."""
    worker = _Worker.of(run)
    if worker is None or not worker.lives_here:
        return False
    try:
        os.kill(worker.pid, signal.SIGINT)
    except OSError:  # it has just ended, or is someone else's
        return False
    return True


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
    worker = _Worker.of(run)
    return worker is not None and worker.is_of_this_machine and not worker.lives_here


def _boot() -> str:
    return _BOOT.read_text().strip() if _BOOT.exists() else ""


def _start_time(pid: int) -> str | None:
    """When the process started, in ticks since boot; None where there is none, or the machine does not tell."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    return stat.rpartition(")")[2].split()[_START_TIME]
