"""How much disk space folders take."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from coral_pipeline.tree_copy import LONG_PATH


def disk_bytes(folder: Path) -> int:
    """Bytes the files under a folder take on disk: sparse ones less than their length, each hard link once.

    What agents hide behind permissions, and what vanishes meanwhile, is not counted; blocks that files
    share by reflinks are counted in each.
    """
    total = 0
    seen: set[tuple[int, int]] = set()
    for entry in entries_below(folder):
        with contextlib.suppress(FileNotFoundError, PermissionError):
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISREG(status.st_mode) and (status.st_dev, status.st_ino) not in seen:
                seen.add((status.st_dev, status.st_ino))
                total += status.st_blocks * 512
    return total


def entries_below(folder: Path) -> Iterator[os.DirEntry[str]]:
    """All that lies under a folder, folders before what is in them (Python 3.11's ``os.walk`` recurses).

    Links are not followed; folders that cannot be read, or are too deep for a path, are not gone into.
    """
    folders = [str(folder)]
    while folders:
        with contextlib.suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False) and len(os.fsencode(entry.path)) < LONG_PATH:
                    folders.append(entry.path)
                yield entry


def readable(size: int) -> str:
    """A number of bytes for people: ``640 kB``, ``2.1 GB``."""
    if size < 1_000:
        return f"{size} B"
    value, units = float(size), iter(("kB", "MB", "GB", "TB"))
    while True:
        value, unit = value / 1_000, next(units)
        if value < 999.5 or unit == "TB":
            return f"{value:.3g} {unit}"
