"""The storage behind an output folder or URL."""

from __future__ import annotations

import hashlib
import os
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from coral_pipeline.storage.interface import Storage
from coral_pipeline.storage.local import LocalStorage

if TYPE_CHECKING:
    from coral_pipeline.storage.remote import RemoteStorage

SCRATCH = "CORAL_PIPELINE_SCRATCH"
"""Environment variable: folder of this machine for what is fetched from a store, grows, or is about to be sent."""
_NAME = 16


def is_url(output: str) -> bool:
    """Whether an output is a URL, not a folder of this machine."""
    return "://" in output


def open_storage(output: str | Path) -> Storage:
    """The storage of a folder, or of a URL such as ``s3://bucket/prefix``.

    Raises ``BadInput`` where nothing installed here knows the kind of URL.
    """
    return open_url(str(output)) if is_url(str(output)) else LocalStorage(Path(output).absolute())


def open_url(url: str) -> RemoteStorage:
    """The storage of a URL; raises as ``open_storage``."""
    return _opened(url.rstrip("/"), _scratch())


@lru_cache(maxsize=16)
def _opened(url: str, scratch: Path) -> RemoteStorage:
    from coral_pipeline.storage.remote import RemoteStorage
    from coral_pipeline.storage.store import ObjectStore

    return RemoteStorage(ObjectStore(url), scratch / hashlib.sha256(url.encode()).hexdigest()[:_NAME])


def _scratch() -> Path:
    named = os.environ.get(SCRATCH)
    if named:
        return Path(named).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / "coral-pipeline"
