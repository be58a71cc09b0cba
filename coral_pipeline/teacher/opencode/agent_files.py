"""Files in a folder that an agent can write to, read and written without following a link it may have laid."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path


class AgentFolder:
    """A folder below one of ours, every step on the way to it a real folder at the moment it is used."""

    def __init__(self, base: Path, inside: str) -> None:
        """``base``: ours, trusted. ``inside``: relative path below it, the agent's."""
        self._base = base
        self._inside = inside

    def names(self) -> frozenset[str]:
        """What lies in it; nothing where it is no folder any more."""
        try:
            folder = self._open()
        except OSError:
            return frozenset()
        try:
            return frozenset(os.listdir(folder))  # noqa: PTH208 (a descriptor, not a path)
        finally:
            os.close(folder)

    def read(self, name: str, limit: int) -> bytes | None:
        """The first bytes of a regular file in it; None where it is none."""
        try:
            folder = self._open()
        except OSError:
            return None
        try:
            file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
            with os.fdopen(file, "rb") as opened:
                return opened.read(limit) if stat.S_ISREG(os.fstat(file).st_mode) else None
        except OSError:
            return None
        finally:
            os.close(folder)

    def write(self, name: str, data: bytes) -> None:
        """Write a file in it, whole or not at all, in place of whatever has that name. Raises ``OSError``."""
        folder = self._open()
        try:
            partial = f".{name}.{secrets.token_hex(8)}.partial"  # a name that nobody can lay something at before
            file = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644, dir_fd=folder)
            with os.fdopen(file, "wb") as opened:
                opened.write(data)
            try:
                os.replace(partial, name, src_dir_fd=folder, dst_dir_fd=folder)
            except OSError:
                os.unlink(partial, dir_fd=folder)
                raise
        finally:
            os.close(folder)

    def remove(self, name: str) -> None:
        """Remove a file from it; nothing where it is not there. Raises ``OSError``."""
        folder = self._open()
        try:
            os.unlink(name, dir_fd=folder)
        except FileNotFoundError:
            pass
        finally:
            os.close(folder)

    def _open(self) -> int:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        folder = os.open(self._base, flags)
        for step in Path(self._inside).parts:
            try:
                below = os.open(step, flags | os.O_NOFOLLOW, dir_fd=folder)
            finally:
                os.close(folder)
            folder = below
        return folder
