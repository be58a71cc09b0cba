"""Having what was written survive the machine's sudden end."""

from __future__ import annotations

import os
from pathlib import Path


def sync(path: Path | str) -> None:
    """Return when a file's content, or the names in a folder, are on disk. Raises ``OSError``."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
