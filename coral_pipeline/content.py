"""Versions of contents: the same contents, the same version, whatever the encoding of the files."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from coral_pipeline.search.root_folder import RootFolder
from coral_pipeline.student_run.layout import GRADER_FOLDER, METADATA_FILE, PRIVATE_FOLDER, TASK_FILE
from coral_pipeline.tables import Table

SUPERSEDED_FILE = "superseded.json"
"""In each folder of a root that is no longer chosen: since when, and by which run. No part of what they hold."""
_DIGITS = 32
"""Hex digits of a version: so many fit into a tag."""
_CHUNK = 1 << 20
_ROWS = 64
"""Of a table held at a time: a row of messages or tokens may have megabytes."""


def tables_version(contents: Mapping[str, pa.Table]) -> str:
    """Version of tables by their values alone: not by file format, compression or order of the tables."""
    return _rows_version((name, contents[name].to_batches()) for name in sorted(contents))


def folder_version(tables: Iterable[Table], folder: Path) -> str:
    """The same version, of the tables as they lie in a folder, of which a few rows at a time are held.

    Raises ``BadInput`` where one is missing or is not Parquet.
    """
    by_name = sorted(tables, key=lambda table: table.name)
    return _rows_version((table.name, table.batches(folder, _ROWS)) for table in by_name)


def root_version(root: RootFolder) -> str:
    """Version of a copied root: its metadata, why it was chosen left out, every file beside them, and its task."""
    digest = hashlib.sha256(_canonical(root.node.fingerprint))
    left_out = {root.path / METADATA_FILE, root.path / SUPERSEDED_FILE}
    _add_files(digest, root.path, (path for path in root.path.rglob("*") if path not in left_out))
    if root.task is not None:
        _add_task(digest, root.task)
    return _short(digest)


def task_version(task: Path) -> str:
    """Version of a copied task, which that of each root beside it tells as well."""
    digest = hashlib.sha256()
    _add_task(digest, task)
    return _short(digest)


def _add_task(digest: Any, task: Path) -> None:
    parts = [task / name for name in (TASK_FILE, GRADER_FOLDER, PRIVATE_FOLDER)]
    digest.update(b"task\0")
    _add_files(digest, task, (path for part in parts for path in (part, *part.rglob("*"))))


def _add_files(digest: Any, folder: Path, paths: Iterable[Path]) -> None:
    """Add names and contents of the files and links among ``paths``, which lie in ``folder``."""
    for path in sorted(paths, key=os.fsencode):
        name = os.fsencode(path.relative_to(folder))
        if path.is_symlink():
            digest.update(b"link %s\0%s\0" % (name, os.fsencode(path.readlink())))
        elif path.is_file():
            digest.update(b"file %s\0%d\0" % (name, path.stat().st_size))
            with path.open("rb") as file:
                while piece := file.read(_CHUNK):
                    digest.update(piece)


def combined(*parts: str) -> str:
    """One version of several."""
    return digest_of(parts)


def digest_of(value: Any) -> str:
    """Version of a JSON value."""
    return _short(hashlib.sha256(_canonical(value)))


def _rows_version(contents: Iterable[tuple[str, Iterable[pa.RecordBatch]]]) -> str:
    digest = hashlib.sha256()
    for name, batches in contents:
        digest.update(_canonical(name))
        for batch in batches:
            for row in batch.to_pylist():
                digest.update(_canonical(row))
    return _short(digest)


def _canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode() + b"\n"


def _short(digest: Any) -> str:
    return str(digest.hexdigest())[:_DIGITS]
