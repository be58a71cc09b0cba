"""Compressed files (zstd): what is kept of a turn repeats itself, a conversation in every request."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

_CODEC = pa.Codec("zstd", compression_level=9)
"""At this level the window (4 MB) is wider than a whole conversation: repetitions cost next to nothing."""


def pack(path: Path, data: bytes) -> None:
    """Write ``data`` compressed."""
    path.write_bytes(_CODEC.compress(data, asbytes=True))


def unpacked(path: Path) -> bytes:
    """What a compressed file holds."""
    with pa.CompressedInputStream(str(path), "zstd") as file:
        return bytes(file.read())
