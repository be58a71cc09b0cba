"""The storage behind an output folder or URL."""

from __future__ import annotations

import hashlib
import os
from functools import lru_cache
from pathlib import Path

from coral_pipeline.storage.interface import Storage
from coral_pipeline.storage.local import LocalStorage

SCRATCH = "CORAL_PIPELINE_SCRATCH"
"""Environment variable: folder of this machine for what is fetched from a store, grows, or is about to be sent."""
_NAME = 16


def is_url(output: str) -> bool:
    """Whether an output is a URL, not a folder of this machine."""
    return "://" in output


def open_storage(output: str | Path) -> Storage:
    """The storage of a folder, or of a URL such as ``s3://bucket/prefix``; the same one whenever it is asked for.

    Raises ``BadInput`` where nothing installed here knows the kind of URL.
    """
    return _opened(str(output), _scratch())


@lru_cache(maxsize=16)
def _opened(output: str, scratch: Path) -> Storage:
    if not is_url(output):
        return LocalStorage(Path(output).absolute())
    from coral_pipeline.storage.remote import RemoteStorage
    from coral_pipeline.storage.store import ObjectStore

    name = hashlib.sha256(output.rstrip("/").encode()).hexdigest()[:_NAME]
    return RemoteStorage(ObjectStore(output), scratch / name)


def _scratch() -> Path:
    named = os.environ.get(SCRATCH)
    if named:
        return Path(named).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / "coral-pipeline"
