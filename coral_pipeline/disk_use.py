"""How much disk space folders take."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path


def disk_bytes(folder: Path) -> int:
    """Bytes the files under a folder take on disk: sparse ones less than their length, each hard link once.

    What agents hide behind permissions, and what vanishes meanwhile, is not counted; blocks that files
    share by reflinks are counted in each.
    """
    total = 0
    seen: set[tuple[int, int]] = set()
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError, PermissionError):
                status = (Path(parent) / name).lstat()
                if stat.S_ISREG(status.st_mode) and (status.st_dev, status.st_ino) not in seen:
                    seen.add((status.st_dev, status.st_ino))
                    total += status.st_blocks * 512
    return total


def readable(size: int) -> str:
    """A number of bytes for people: ``640 kB``, ``2.1 GB``."""
    if size < 1_000:
        return f"{size} B"
    value, units = float(size), iter(("kB", "MB", "GB", "TB"))
    while True:
        value, unit = value / 1_000, next(units)
        if value < 999.5 or unit == "TB":
            return f"{value:.3g} {unit}"
