"""Which processes of a family are alive."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import psutil

from coral_pipeline.teacher.processes import MARKER_VARIABLE


def living(prefix: str, below: Path = Path("/")) -> list[str]:
    """Command lines of the processes whose marker begins so and that work below a folder; a zombie has ended already.

    ``below``: tests of other workers may be running the same kind of family at the same time.
    """
    found = []
    for process in psutil.process_iter():
        try:
            marker = process.environ().get(MARKER_VARIABLE, "")
            if not marker.startswith(prefix) or process.status() == psutil.STATUS_ZOMBIE:
                continue
            if Path(process.cwd()).is_relative_to(below):
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
