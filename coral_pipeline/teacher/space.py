"""What the machine refuses, room on its disk first of all, is an infrastructure fault (method T5)."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from coral_pipeline.disk_use import disk_bytes, readable
from coral_pipeline.teacher.protocol import InfrastructureFault


@contextmanager
def machine_faults() -> Iterator[None]:
    """What the operating system refuses says nothing about a node: disk full, no more files or processes …"""
    try:
        yield
    except OSError as error:
        what = "disk full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "the machine refuses"
        raise InfrastructureFault(f"{what}: {error}") from error


def require_free_space(folder: Path, least: int) -> None:
    """Raise ``InfrastructureFault`` where fewer than ``least`` bytes of the folder's disk are free."""
    free = shutil.disk_usage(folder).free
    if free < least:
        raise InfrastructureFault(
            f"{folder}: disk full: {readable(free)} are free, {readable(least)} are needed; make room"
        )


def require_small_tree(folder: Path, most: int, setting: str) -> None:
    """Raise ``InfrastructureFault`` where a tree's folder takes more bytes than ``setting``, ``most``, allows."""
    taken = disk_bytes(folder)
    if taken > most:
        raise InfrastructureFault(
            f"{folder}: the tree takes {readable(taken)} of disk, {setting} allows {readable(most)}; raise it"
        )
