"""Folders and locks by which processes of one machine keep out of each other's way.

Locks are taken on folders themselves and end with the process that holds them, however it ends.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from coral_pipeline.errors import BadInput
from coral_pipeline.tree_copy import remove_tree

_WRITING = ".writing-"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """The folder, made where it is missing, for this thread of this process alone; waits for others."""
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if _is_at(folder, lock):  # else it was moved away while we waited
                yield
                return
        finally:
            os.close(lock)


@contextmanager
def alone(place: Path, thing: str) -> Iterator[None]:
    """Hold a file beside ``place`` for the length of the block. Raises ``BadInput`` where another process does."""
    place.parent.mkdir(parents=True, exist_ok=True)
    lock = os.open(_beside(place), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BadInput(thing, "another run is at work there", "wait until it has ended") from error
        yield
    finally:
        os.close(lock)


def is_held(place: Path) -> bool:
    """Whether someone is in ``locked`` or ``alone`` with ``place``. Nothing is made to find out."""
    return any(map(_is_locked, (place, _beside(place))))


@contextmanager
def workshop(inside: Path) -> Iterator[Path]:
    """A new empty folder in ``inside``, removed when the block ends unless it was moved from there.

    What processes that were killed have left there is removed as well.
    """
    with locked(inside):
        _remove_abandoned(inside)
        path = Path(tempfile.mkdtemp(prefix=_WRITING, dir=inside))
        in_use = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(in_use, fcntl.LOCK_EX)
    try:
        yield path
    finally:
        if path.exists():
            remove_tree(path)
        os.close(in_use)


def _beside(place: Path) -> Path:
    return place.with_name(f".{place.name}.lock")


def _is_locked(path: Path) -> bool:
    try:
        lock = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def _is_at(folder: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(folder.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _remove_abandoned(inside: Path) -> None:
    for path in inside.glob(f"{_WRITING}*"):
        with suppress(FileNotFoundError):  # its owner has just ended
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove_tree(path)
            except BlockingIOError:
                pass
            finally:
                os.close(lock)
