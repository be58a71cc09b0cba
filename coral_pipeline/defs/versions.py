"""Versions: of what an asset holds (from its contents), and of what made it (code, settings, inputs)."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from coral_pipeline.search.root_folder import RootFolder
from coral_pipeline.settings import PipelineSettings
from coral_pipeline.student_run.layout import METADATA_FILE
from coral_pipeline.tables import Table

CODE = {
    "filtered_snapshots": 2,
    "stage_labels": 1,
    "selected_roots": 1,
    "explored_trees": 1,
    "ranked_paths": 1,
    "advantage_batches": 1,
    "sft_dataset": 1,
}
"""By asset; raised whenever a change of the code changes what the asset holds."""
SETTINGS = {
    "stage_labels": {"selection"},
    "selected_roots": {"selection"},
    "explored_trees": {"search", "teacher"},
    "ranked_paths": {"paths"},
    "advantage_batches": {"credit"},
}
"""Sections of the settings that change what an asset holds; the Teacher's own section joins them."""
OF_TEACHER = {"embedded": "embedded", "simulated": "simulation", "opencode": "opencode"}
"""Section of each Teacher that has one."""
WHERE_A_MODEL_RUNS = {"opencode": {"endpoint", "api_key_variable"}}
"""Settings that are nobody's business later."""
DATA_VERSION_TAG = "dagster/data_version"
"""Where Dagster keeps the data version of a materialization or observation."""

_DIGITS = 32
"""Hex digits of a version: so many fit into a tag."""
_CHUNK = 1 << 20


def tables_version(contents: Mapping[str, pa.Table]) -> str:
    """Version of tables by their values alone: not by file format, compression or order of the tables."""
    return _rows_version((name, contents[name].to_batches()) for name in sorted(contents))


def folder_version(tables: Iterable[Table], folder: Path) -> str:
    """The same version, of the tables as they lie in a folder, read piece by piece."""
    files = sorted((table.name, folder / table.file_name) for table in tables)
    return _rows_version((name, pq.ParquetFile(path).iter_batches()) for name, path in files)


def root_version(root: RootFolder) -> str:
    """Version of a copied root: its metadata, why it was chosen left out, and every file beside them."""
    digest = hashlib.sha256(_canonical(root.node.fingerprint))
    for path in sorted(root.path.rglob("*"), key=os.fsencode):
        name = os.fsencode(path.relative_to(root.path))
        if path.is_symlink():
            digest.update(b"link %s\0%s\0" % (name, os.fsencode(path.readlink())))
        elif path.is_file() and name != METADATA_FILE.encode():
            digest.update(b"file %s\0%d\0" % (name, path.stat().st_size))
            with path.open("rb") as file:
                while piece := file.read(_CHUNK):
                    digest.update(piece)
    return _short(digest)


def settings_used(asset: str, settings: PipelineSettings) -> Any:
    """The settings that change what the asset holds, as JSON values.

    Only those that are not the default: what a new version of the code adds does not make the old stale. Where
    it changes a default, it raises the asset's number in ``CODE``.
    """
    return settings.model_dump(
        mode="json", include=_sections(asset, settings), exclude=WHERE_A_MODEL_RUNS, exclude_defaults=True
    )


def settings_recorded(asset: str, settings: PipelineSettings) -> dict[str, Any]:
    """All settings of the sections that change what the asset holds, as JSON values; of paths just the last names."""
    values: dict[str, Any] = _without_folders(
        settings.model_dump(include=_sections(asset, settings), exclude=WHERE_A_MODEL_RUNS)
    )
    return values


def _sections(asset: str, settings: PipelineSettings) -> set[str]:
    sections = set(SETTINGS.get(asset, ()))
    if "teacher" in sections and settings.teacher.name in OF_TEACHER:
        sections.add(OF_TEACHER[settings.teacher.name])
    return sections


def _without_folders(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _without_folders(inside) for name, inside in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_folders(inside) for inside in value]
    return value.name if isinstance(value, Path) else value


def method_version(asset: str, settings: Any) -> str:
    """Version of how an asset is made: its code, and the settings it uses (JSON values)."""
    return _short(hashlib.sha256(_canonical([asset, CODE[asset], settings])))


def code_version(asset: str, settings: PipelineSettings) -> str:
    """The same as Dagster shows it: short, the number of the code first."""
    return f"{CODE[asset]}-{method_version(asset, settings_used(asset, settings))[:8]}"


def combined(*parts: str) -> str:
    """One version of several."""
    return _short(hashlib.sha256(_canonical(parts)))


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
