"""The read ends of a child's pipes: all is read, the first bytes of each are kept."""

from __future__ import annotations

import fcntl
import os
import selectors
from types import TracebackType

_READ_BYTES = 1 << 16


class Pipes:
    """Named pipes of one child; a context manager that closes them."""

    def __init__(self) -> None:
        """No pipe is open yet."""
        self.kept: dict[str, bytearray] = {}
        """First bytes of each, up to its limit."""
        self.cut: set[str] = set()
        """Pipes that brought more than that."""
        self._limits: dict[str, int] = {}
        self._read_ends: dict[str, int] = {}
        self._write_ends: list[int] = []
        self._selector = selectors.DefaultSelector()

    def __enter__(self) -> Pipes:
        """The pipes themselves."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close every end that is still open."""
        self.close_write_ends()
        self._selector.close()
        for descriptor in self._read_ends.values():
            os.close(descriptor)

    def open(self, name: str, limit: int) -> int:
        """Open a pipe of which ``limit`` bytes are kept; returns its write end."""
        read_end, write_end = os.pipe()
        self._read_ends[name], self._limits[name], self.kept[name] = read_end, limit, bytearray()
        self._write_ends.append(write_end)
        os.set_blocking(read_end, False)
        self._selector.register(read_end, selectors.EVENT_READ, name)
        return write_end

    def close_write_ends(self) -> None:
        """To be called when the child has its own copies of them."""
        while self._write_ends:
            os.close(self._write_ends.pop())

    def wait(self, descriptor: int, seconds: float) -> bool:
        """Read what comes within ``seconds``; True when ``descriptor``, another one, became readable."""
        if descriptor not in self._selector.get_map():
            self._selector.register(descriptor, selectors.EVENT_READ)
        ready = False
        for key, _ in self._selector.select(seconds):
            if key.fd == descriptor:
                ready = True
            elif not self._read(key.data):
                self._selector.unregister(key.fd)
        return ready

    def drain(self) -> None:
        """Read what the pipes hold, and no more: a descendant may still be writing."""
        for name, descriptor in self._read_ends.items():
            left = fcntl.fcntl(descriptor, fcntl.F_GETPIPE_SZ)
            while left > 0 and (count := self._read(name)):
                left -= count

    def _read(self, name: str) -> int:
        """Read once; how many bytes came, 0 at the end of the pipe or when it is empty."""
        try:
            data = os.read(self._read_ends[name], _READ_BYTES)
        except BlockingIOError:
            return 0
        room = self._limits[name] - len(self.kept[name])
        if len(data) > room:
            self.cut.add(name)
        self.kept[name] += data[:room]
        return len(data)
