"""An append-only file of records that survives being killed at any instant.

JSON Lines; the last member of each object, ``crc``, is the CRC-32 of the line without it. A record counts
once ``append`` has returned: it is on the disk then. What a crash leaves behind a last whole record is cut
off on opening, and its writer had not been told that it counts.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import zlib
from pathlib import Path
from typing import Any

from coral_pipeline.durable import sync
from coral_pipeline.errors import BadInput
from coral_pipeline.teacher.protocol import InfrastructureFault

_CRC = b',"crc":"'


class RecordFile:
    """The file, open for appending; safe to use from several threads."""

    def __init__(self, path: Path) -> None:
        """Open or make the file, read ``records`` from it and cut off a torn end.

        Raises ``BadInput`` where a record that is not the last one is damaged.
        """
        self.path = path
        self._lock = threading.Lock()
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            self.records, self._size = _read(path)
            os.ftruncate(self._file, self._size)
            os.fsync(self._file)
            sync(path.parent)
        except BaseException:
            os.close(self._file)
            raise

    def append(self, record: dict[str, Any]) -> None:
        """Write the record and flush it to the disk, or raise ``InfrastructureFault`` and leave nothing of it."""
        line = encode(record)
        with self._lock:
            try:
                write_all(self._file, line, self._size)
                os.fsync(self._file)
            except OSError as error:
                with contextlib.suppress(OSError):  # the next record is written over the remains
                    os.ftruncate(self._file, self._size)
                raise InfrastructureFault(f"{self.path} cannot be written ({error.strerror})") from error
            self._size += len(line)

    def close(self) -> None:
        """Close the file; every appended record is on the disk already, and no further one is taken."""
        with self._lock:
            os.close(self._file)
            self._file = -1  # the system may give the old number to another file


def encode(record: dict[str, Any]) -> bytes:
    """The record as its line."""
    body = json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode()
    return body[:-1] + _CRC + b'%08x"}\n' % zlib.crc32(body)


def decode(line: bytes) -> dict[str, Any] | None:
    """The record of a line; None where the line is damaged."""
    start = line.rfind(_CRC)
    body = line[:start] + b"}"
    if start < 0 or line[start:] != _CRC + b'%08x"}\n' % zlib.crc32(body):
        return None
    record: dict[str, Any] = json.loads(body)
    return record


def _read(path: Path) -> tuple[list[dict[str, Any]], int]:
    """The whole records and the bytes they take."""
    records: list[dict[str, Any]] = []
    size = 0
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            record = decode(line)
            if record is None:
                if file.read(1):
                    raise BadInput(
                        f"{path}, line {number}",
                        "is damaged, though whole records follow it",
                        "bring the file back from a copy, or delete its folder and explore the root anew",
                    )
                break
            records.append(record)
            size += len(line)
    return records, size


def write_all(file: int, data: bytes, offset: int) -> None:
    """Write all of ``data`` at ``offset``; a full disk may take only a part, and then raises ``OSError``."""
    view = memoryview(data)
    while view:
        written = os.pwrite(file, view, offset)
        view, offset = view[written:], offset + written
