"""Which processes of a family are alive."""

from __future__ import annotations

import time
from collections.abc import Callable

import psutil

from coral_pipeline.teacher.processes import MARKER_VARIABLE


def living(prefix: str) -> list[str]:
    """Command lines of the processes whose marker begins so; a zombie has ended already."""
    found = []
    for process in psutil.process_iter():
        try:
            marker = process.environ().get(MARKER_VARIABLE, "")
            if marker.startswith(prefix) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(" ".join(process.cmdline()))
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def until(holds: Callable[[], bool], what: str) -> None:
    """Wait for something that another process or thread brings about; fails where it does not for a minute."""
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline, f"did not come about: {what}"
        time.sleep(0.01)
