"""Opening what a Student run holds, and nothing outside it.

A run is written by agents that may do anything: links to the machine's files, pipes that never answer,
JSON without end. Every name is opened relative to its folder's descriptor and without following links;
a link is followed only where it ends inside the run. Opening never blocks.

What the machine cannot read just now (a failing disk, no descriptors left) says nothing about the run: everything
here raises ``OSError`` then, which names the file.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from coral_pipeline.errors import is_outage

JSON_LIMIT = 64 * 2**20
"""Bytes of the largest JSON file that is read."""

_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_PROBLEMS = {
    errno.ENOENT: "is missing",
    errno.ENOTDIR: "is not a folder",
    errno.ELOOP: "is a link that leads nowhere",
}


class Unreadable(Exception):
    """A file or folder that cannot be used; the message says why, for example ``is not a regular file``."""


class Missing(Unreadable):
    """There is no file or folder of that name."""


class Folder:
    """A folder of a Student run, open for reading; a context manager."""

    def __init__(self, path: str, descriptor: int, run: str) -> None:
        """``path``: for resolving links; ``run``: real path of the Student run, no trailing slash."""
        self.path = path
        self._descriptor = descriptor
        self._run = run

    @classmethod
    def of_run(cls, student_run: Path) -> Folder:
        """The Student run itself, which may be reached through links."""
        path = os.path.realpath(student_run)
        with _told(path):
            return cls(path, os.open(path, _OPEN | os.O_DIRECTORY), path)

    def folder(self, name: str) -> Folder:
        """The folder ``name`` in this one. Raises ``Unreadable``, or ``Missing`` where there is none."""
        return Folder(f"{self.path}/{name}", self._open(name, os.O_DIRECTORY), self._run)

    def read(self, name: str, limit: int = JSON_LIMIT) -> bytes:
        """The bytes of the file ``name``. Raises ``Unreadable`` (larger than ``limit`` too), or ``Missing``."""
        descriptor = self._open(name)
        try:
            with _told(f"{self.path}/{name}"):
                status = os.fstat(descriptor)
                if not stat.S_ISREG(status.st_mode):
                    raise Unreadable("is not a regular file")
                if status.st_size > limit:
                    raise Unreadable(f"is larger than {limit} bytes")
                data = os.read(descriptor, status.st_size)
                while len(data) < status.st_size and (more := os.read(descriptor, status.st_size - len(data))):
                    data += more
                return data
        finally:
            os.close(descriptor)

    def json(self, name: str) -> Any:
        """The JSON value in the file ``name``. Raises as ``read`` and ``parse_json`` do."""
        return parse_json(self.read(name))

    def names(self) -> list[str]:
        """Names of everything in this folder, sorted."""
        with _told(self.path):
            return sorted(os.listdir(self._descriptor))  # noqa: PTH208 (by descriptor)

    def real_path(self) -> Path:
        """Where the folder really lies, every link resolved."""
        return Path(os.path.realpath(self.path))

    def __enter__(self) -> Folder:
        """This folder."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        os.close(self._descriptor)

    def _open(self, name: str, flags: int = 0) -> int:
        path = f"{self.path}/{name}"
        with _told(path):
            try:
                return os.open(name, _OPEN | flags, dir_fd=self._descriptor)
            except OSError as error:
                if error.errno not in (errno.ELOOP, errno.ENOTDIR) or not Path(path).is_symlink():
                    raise
            target = os.path.realpath(path)
            if not target.startswith(self._run + os.sep):
                raise Unreadable("is a link that leads outside the Student run")
            return os.open(target, _OPEN | flags)


def parse_json(data: bytes) -> Any:
    """The JSON value in ``data``, UTF-8 with or without BOM, NaN allowed as CORAL writes it. Raises ``Unreadable``."""
    try:
        return json.loads(data.decode("utf-8").removeprefix("\ufeff"))
    except UnicodeDecodeError as error:
        raise Unreadable(f"is not UTF-8 (byte {error.start})") from error
    except json.JSONDecodeError as error:
        raise Unreadable(f"is not JSON ({error})") from error
    except RecursionError as error:
        raise Unreadable("is JSON nested too deeply") from error
    except ValueError as error:  # an integer of more digits than Python converts
        raise Unreadable("is JSON with a number too long to read") from error


@contextlib.contextmanager
def _told(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if is_outage(error):
            raise OSError(error.errno, error.strerror, path) from error
        problem = _PROBLEMS.get(error.errno or 0, f"cannot be read ({error.strerror})")
        raise (Missing if error.errno == errno.ENOENT else Unreadable)(problem) from error
