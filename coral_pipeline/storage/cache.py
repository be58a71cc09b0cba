"""What was fetched from a store, one folder per version: immutable, so any number of processes may read it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from coral_pipeline import provenance
from coral_pipeline.provenance import Provenance
from coral_pipeline.storage import archive, workshop
from coral_pipeline.storage.interface import SEPARATOR

_UNUSED_SECONDS = 30 * 86_400
"""Versions that nobody has fetched for so long give way to a newer one."""


class Cache:
    """Versions of partitions, below one folder of this machine."""

    def __init__(self, top: Path) -> None:
        """``top``: made when it is needed."""
        self._top = top
        self._verified: set[Path] = set()

    def folder(self, asset: str, partition: str, made: Provenance) -> Path:
        """Where a version is kept."""
        return self._top.joinpath(asset, *partition.split(SEPARATOR), made.seal)

    def holds(self, folder: Path, made: Provenance) -> bool:
        """Whether a version is there as it was fetched; each process looks into it once."""
        if not self._is_intact(folder, lambda: next(provenance.changes(made, folder), None)):
            return False
        os.utime(folder)
        return True

    def holds_copied(self, folder: Path) -> bool:
        """Likewise of a copied folder within a version."""
        checksums = folder.parent / archive.checksums_of(folder.name)
        return self._is_intact(folder, lambda: archive.problem_of(folder, checksums))

    def keep(self, new: Path, folder: Path) -> None:
        """Move ``new``, which is as it should be, into the cache, where another process has not been faster."""
        folder.parent.mkdir(parents=True, exist_ok=True)
        with workshop.locked(folder.parent):
            if not folder.exists():
                new.rename(folder)
        self._verified.add(folder)

    def keep_version(self, new: Path, folder: Path) -> None:
        """Likewise of a version; others of its partition that nobody has fetched for long are removed."""
        self.keep(new, folder)
        versions = [other for other in folder.parent.iterdir() if len(other.name) == len(folder.name)]
        for other in versions:
            with suppress(FileNotFoundError):  # another process removes it as well
                if other.stat().st_mtime < time.time() - _UNUSED_SECONDS:
                    _remove(other)

    def _is_intact(self, folder: Path, problem: Callable[[], str | None]) -> bool:
        if not folder.is_dir():
            return False
        if folder not in self._verified and problem() is not None:
            _remove(folder)
            return False
        self._verified.add(folder)
        return True


def _remove(folder: Path) -> None:
    """Out of the way first, as a whole: others may be looking at it."""
    with workshop.workshop(folder.parent) as aside:
        if folder.exists():
            folder.rename(aside / folder.name)
