"""Objects by name, on whatever fsspec reaches; its many kinds of errors become ``OSError`` that names the object."""

from __future__ import annotations

import datetime as dt
import errno
import importlib
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fsspec.core import url_to_fs

from coral_pipeline.errors import BadInput

_FILE_SYSTEMS = frozenset({"file", "local", "ftp", "sftp", "ssh", "smb", "hdfs"})
"""Protocols on which a file is seen while it is being written. Object stores show an object when it is whole."""
_CLOUD = "in the checkout, pip install --editable '.[cloud]'"


class ObjectStore:
    """All objects below one URL; names are relative to it, ``/`` between their parts."""

    def __init__(self, url: str) -> None:
        """Raises ``BadInput`` where nothing installed here knows the kind of URL."""
        self._url = url.rstrip("/")
        protocol = url.partition("://")[0]
        self._whole_at_once = protocol not in _FILE_SYSTEMS
        try:
            # What others have written since must be seen, so no listings are remembered.
            options: Mapping[str, Any] = {"auto_mkdir": True} if protocol in ("file", "local") else {}
            self._fs, path = url_to_fs(url, use_listings_cache=False, skip_instance_cache=True, **options)
        except ImportError as error:
            raise BadInput(url, f"needs a package that is not installed ({error})", _CLOUD) from error
        except ValueError as error:
            raise BadInput(url, str(error), "give a folder or a URL such as s3://bucket/prefix") from error
        self._base = path.rstrip("/")

    def address(self, name: str) -> str:
        """The URL of an object."""
        return f"{self._url}/{name}"

    def names(self, folder: str) -> list[str]:
        """All objects below ``folder``, relative to it."""
        return sorted(self._found(folder))

    def modified(self, folder: str) -> dict[str, dt.datetime]:
        """When each object below ``folder`` was written, by name relative to it."""
        return {name: _time(detail) for name, detail in self._found(folder).items()}

    def read(self, name: str) -> bytes | None:
        """An object's bytes; None where there is none."""
        try:
            with self._told(name):
                content: bytes = self._fs.cat_file(self._path(name))
        except FileNotFoundError:
            return None
        return content

    def write(self, name: str, content: bytes) -> None:
        """Write a small object, in place of an earlier one, so that no reader sees half of it."""
        path = self._path(name)
        with self._told(name):
            if self._whole_at_once:
                self._fs.pipe_file(path, content)
            else:
                partial = f"{path}.{uuid.uuid4().hex}"
                self._fs.pipe_file(partial, content)
                self._fs.mv(partial, path)

    def upload(self, file: Path, name: str) -> None:
        """Write a file as an object."""
        with self._told(name):
            self._fs.put_file(str(file), self._path(name))

    def download(self, name: str, file: Path) -> None:
        """Write an object as a file; where there is no such object, no file."""
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            with self._told(name):
                self._fs.get_file(self._path(name), str(file))
        except FileNotFoundError:
            file.unlink(missing_ok=True)  # some begin it before they know

    def copy(self, name: str, new: str) -> None:
        """Copy an object within the store."""
        with self._told(name):
            self._fs.cp_file(self._path(name), self._path(new))

    def remove(self, *names: str) -> None:
        """Remove objects; those that are not there are passed over."""
        for name in names:
            try:
                with self._told(name):
                    self._fs.rm_file(self._path(name))
            except FileNotFoundError:
                pass

    def remove_below(self, folder: str) -> None:
        """Remove all objects below ``folder``."""
        self.remove(*(f"{folder}/{name}" for name in self.names(folder)))

    def _found(self, folder: str) -> dict[str, Mapping[str, Any]]:
        top = self._path(folder)
        with self._told(folder):
            found: dict[str, Mapping[str, Any]] = self._fs.find(top, detail=True)
        return {path.removeprefix(f"{top}/"): detail for path, detail in found.items() if path != top}

    def _path(self, name: str) -> str:
        return f"{self._base}/{name}"

    @contextmanager
    def _told(self, name: str) -> Iterator[None]:
        kinds = _kinds()
        try:
            yield
        except tuple(kinds) as error:
            number = next(number for kind, number in kinds.items() if isinstance(error, kind))
            text = " ".join(str(getattr(error, "strerror", None) or error).split())
            raise OSError(getattr(error, "errno", None) or number, text, self.address(name)) from error


def _kinds() -> dict[type[Exception], int]:
    """What the libraries behind fsspec raise where a store refuses or cannot be reached, and what number that is.

    Their errors mostly have none. The first kind that fits counts.
    """
    kinds: dict[type[Exception], int] = {
        FileNotFoundError: errno.ENOENT,
        PermissionError: errno.EACCES,
        FileExistsError: errno.EEXIST,
        TimeoutError: errno.ETIMEDOUT,
        OSError: errno.EIO,
    }
    with suppress(ImportError):
        boto = importlib.import_module("botocore.exceptions")
        kinds |= {boto.NoCredentialsError: errno.EACCES, boto.BotoCoreError: errno.EIO, boto.ClientError: errno.EIO}
    return kinds


def _time(detail: Mapping[str, Any]) -> dt.datetime:
    """When an object was written; now, where the store does not tell."""
    for key in ("LastModified", "mtime", "modified", "last_modified", "created"):
        value = detail.get(key)
        if isinstance(value, (int, float)):
            return dt.datetime.fromtimestamp(value, dt.UTC)
        if isinstance(value, dt.datetime):
            return value if value.tzinfo else value.replace(tzinfo=dt.UTC)
    return dt.datetime.now(dt.UTC)
