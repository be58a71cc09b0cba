"""Ways of tampering with files, undone afterwards."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from coral_pipeline import provenance
from coral_pipeline.tables import JSON_LIST, Table


@contextmanager
def put_back(path: Path) -> Iterator[None]:
    """Whatever the block does to the file, it is as before afterwards."""
    before = path.read_bytes() if path.exists() else None
    try:
        yield
    finally:
        if before is None:
            path.unlink(missing_ok=True)
        else:
            path.write_bytes(before)


@contextmanager
def changed_byte(path: Path, at: int | None = None) -> Iterator[None]:
    """One bit of one byte of the file is another (the middle one, unless told)."""
    with put_back(path):
        data = bytearray(path.read_bytes())
        data[len(data) // 2 if at is None else at] ^= 1
        path.write_bytes(data)
        yield


@contextmanager
def changed_cell(
    table: Table, folder: Path, column: str, row: int, value: Callable[[Any], Any] | None = None
) -> Iterator[Any]:
    """One cell of the table in ``folder`` is another; gives what it was."""
    with put_back(folder / table.file_name):
        rows = table.read(folder)
        cells = rows.column(column).to_pylist()
        was = cells[row]
        cells[row] = other_value(was, rows.schema.field(column).type) if value is None else value(was)
        assert cells[row] != was
        kind = rows.schema.field(column).type
        stored = pa.list_(pa.string()) if kind == JSON_LIST else kind
        place = rows.column_names.index(column)
        table.write(rows.set_column(place, rows.schema.field(column), pa.array(cells, stored).cast(kind)), folder)
        yield was


@contextmanager
def changed_json(path: Path, change: Callable[[Any], None]) -> Iterator[None]:
    """The JSON value in the file is changed in place."""
    with put_back(path):
        value = json.loads(path.read_bytes())
        change(value)
        path.write_text(json.dumps(value, indent=2) + "\n")
        yield


@contextmanager
def forged(folder: Path) -> Iterator[None]:
    """Provenance says that the files of the folder are as they should be, whatever has been done to them."""
    with put_back(folder / provenance.PROVENANCE_FILE):
        made = provenance.read(folder)
        assert made is not None
        files = provenance.checksums(folder, made.files)
        provenance.write(made.model_copy(update={"files": files}), folder)
        yield


def other_value(value: Any, kind: pa.DataType) -> Any:
    """Another value of the same type."""
    if value is None:
        return _some_value(kind)
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return value * 1.5 + 0.25
    if isinstance(value, str):
        return f"{value}x"
    if isinstance(value, dict):
        return value | {"text": f"{value['text'] or ''}x"}
    if isinstance(value, tuple):  # an entry of a map
        return value[0], other_value(value[1], kind)
    if not value:
        return [_some_value(getattr(kind, "value_type", pa.string()))]
    return [*value[:-1], other_value(value[-1], getattr(kind, "value_type", pa.string()))]


def _some_value(kind: pa.DataType) -> Any:
    if pa.types.is_boolean(kind):
        return True
    if pa.types.is_integer(kind):
        return 1
    if pa.types.is_floating(kind):
        return 0.5
    if pa.types.is_list(kind):
        return [_some_value(kind.value_type)]
    return "x"
