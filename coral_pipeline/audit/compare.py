"""Two tables, or two JSON values, held against each other: which cell differs."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from coral_pipeline.audit.findings import Review, shown
from coral_pipeline.tables import Table

REORDERED = 1e-9
"""Relative difference up to which two sums of the same numbers in another order are equal."""

KEYS: Mapping[str, tuple[str, ...]] = {
    "filtered_snapshots": ("snapshot",),
    "rejected_snapshots": ("snapshot",),
    "stage_labels": ("snapshot",),
    "selected_roots": ("root",),
    "nodes": ("node_id",),
    "edges": ("edge_id",),
    "turns": ("edge_id", "turn"),
    "rounds": ("round", "node_id"),
    "messages": ("message_id",),
    "ranked_paths": ("leaf_id",),
    "critic_targets": ("node_id",),
    "tokens": ("message_id",),
    "sft": ("root", "leaf_id"),
    "branches": ("root", "leaf_id"),
}
"""By table: the columns that name a row."""


def compare_tables(
    review: Review, table: Table, found: pa.Table, expected: pa.Table, tolerance: float = 0.0, file: str | None = None
) -> None:
    """Hold the columns of ``expected`` against those of ``found``, row by row; each cell that differs is a finding.

    Where the tables have equally many rows these belong together in order, otherwise by ``KEYS``.
    ``tolerance``: relative difference up to which floats are equal.
    """
    file = file or table.file_name
    names = [column.name for column in table.columns if column.name in expected.column_names]
    review.looked_at["rows"] += found.num_rows
    review.looked_at["cells"] += found.num_rows * len(names)
    if found.num_rows != expected.num_rows:
        review.find(file, f"has {found.num_rows} rows, expected {expected.num_rows}")
        found, expected = _common_rows(review, table, file, found, expected)
    for name in names:
        one, other = found.column(name), expected.column(name)
        if one.equals(other):
            continue
        pairs = zip(one.to_pylist(), other.to_pylist(), strict=True)
        for row, (is_there, should_be) in enumerate(pairs):
            if not equal(review, is_there, should_be, tolerance):
                where = f"{file}, {_row_name(table, expected, row)}, {name}"
                review.find(where, difference(is_there, should_be), kind=f"{file}, {name}")


def compare_json(review: Review, where: str, found: Any, expected: Any, tolerance: float = 0.0) -> None:
    """Hold two JSON values against each other; each leaf that differs is a finding."""
    if isinstance(found, dict) and isinstance(expected, dict):
        for key in dict.fromkeys((*expected, *found)):
            place = f"{where}, {key}"
            if key not in found:
                review.find(place, f"is missing, expected {shown(expected[key])}")
            elif key not in expected:
                review.find(place, f"is {shown(found[key])}, expected to be absent")
            else:
                compare_json(review, place, found[key], expected[key], tolerance)
        return
    review.looked_at["values"] += 1
    if not equal(review, found, expected, tolerance):
        review.find(where, difference(found, expected))


class Lines:
    """A JSON Lines file that is held, line by line and piece by piece, against what it should be."""

    def __init__(self, review: Review, file: str, found: Path) -> None:
        """``file``: its name in findings; ``found``: where it is, opened when the first line is needed."""
        self.file = file
        self._review, self._found, self._number = review, _lines(found), 0

    def expect(self, piece: Path) -> None:
        """The next lines should be those of this file; each that differs is a finding."""
        for line in _lines(piece):
            self._compare(next(self._found, None), line)

    def expect_end(self) -> None:
        """No more lines should be there."""
        for line in self._found:
            self._compare(line, None)

    def _compare(self, line: bytes | None, should_be: bytes | None) -> None:
        self._number += 1
        self._review.looked_at["lines"] += 1
        if line == should_be:
            return
        where = f"{self.file}, line {self._number}"
        if line is None or should_be is None:
            self._review.find(where, "is missing" if line is None else "should not be there", kind=self.file)
        else:
            at = next((i for i, (a, b) in enumerate(zip(line, should_be, strict=False)) if a != b), len(should_be))
            problem = f"differs from byte {at} on: {_around(line, at)}, expected {_around(should_be, at)}"
            self._review.find(where, problem, kind=self.file)


def compare_lines(review: Review, file: str, found: Path, expected: Path) -> None:
    """Hold two JSON Lines files against each other, line by line; a line that differs is a finding."""
    lines = Lines(review, file, found)
    lines.expect(expected)
    lines.expect_end()


def _lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        yield from file


def equal(review: Review, found: Any, expected: Any, tolerance: float = 0.0) -> bool:
    """Whether two values are equal, floats within the relative ``tolerance``; keeps the largest difference."""
    if isinstance(found, float) and isinstance(expected, float):
        if found == expected or (math.isnan(found) and math.isnan(expected)):
            return True
        apart = abs(found - expected)
        if not math.isfinite(apart):
            return False
        review.largest_difference = max(review.largest_difference, apart)
        return apart <= tolerance * max(1.0, abs(found), abs(expected))
    if isinstance(found, (list, tuple)) and isinstance(expected, (list, tuple)):
        pairs = zip(found, expected, strict=False)
        return len(found) == len(expected) and all(equal(review, a, b, tolerance) for a, b in pairs)
    return bool(type(found) is type(expected) and found == expected)


def difference(found: Any, expected: Any) -> str:
    """What is there and what should be, long texts and lists from where they differ."""
    if isinstance(found, (str, list)) and isinstance(expected, (str, list)) and type(found) is type(expected):
        if len(found) != len(expected) and isinstance(found, list):
            return f"has {len(found)} entries, expected {len(expected)}"
        at = next((i for i, (a, b) in enumerate(zip(found, expected, strict=False)) if a != b), None)
        if isinstance(found, list) and at is not None:
            return f"entry {at} is {shown(found[at])}, expected {shown(expected[at])}"
        if isinstance(found, str) and len(repr(found)) + len(repr(expected)) > 160:
            at = min(len(found), len(expected)) if at is None else at
            begin = max(0, at - 10)
            return f"at character {at}: {shown(found[begin : at + 30])}, expected {shown(expected[begin : at + 30])}"
    return f"is {shown(found)}, expected {shown(expected)}"


def _around(line: bytes, at: int) -> str:
    return repr(line[max(0, at - 10) : at + 30].decode(errors="replace"))


def _row_name(table: Table, rows: pa.Table, row: int) -> str:
    keys = KEYS.get(table.name, ())
    named = ", ".join(f"{key} {rows.column(key)[row].as_py()}" for key in keys if key in rows.column_names)
    return f"row {row}" + (f" ({named})" if named else "")


def _keys(table: Table, rows: pa.Table) -> list[Hashable]:
    return list(zip(*(rows.column(key).to_pylist() for key in KEYS[table.name]), strict=True))


def _common_rows(
    review: Review, table: Table, file: str, found: pa.Table, expected: pa.Table
) -> tuple[pa.Table, pa.Table]:
    """The rows that both have, in the order of ``expected``; the others are findings."""
    there = {key: row for row, key in reversed(list(enumerate(_keys(table, found))))}
    wanted = _keys(table, expected)
    for key in _without(wanted, there):
        review.find(f"{file}, {_named(table, key)}", "is missing", kind=f"{file}, missing rows")
    for key in _without(there, set(wanted)):
        review.find(f"{file}, {_named(table, key)}", "should not be there", kind=f"{file}, surplus rows")
    common = [(there[key], row) for row, key in enumerate(wanted) if key in there]
    rows = pa.array([row for row, _ in common], pa.int64()), pa.array([row for _, row in common], pa.int64())
    return found.take(rows[0]), expected.take(rows[1])


def _without(keys: Sequence[Hashable] | Mapping[Hashable, int], others: Any) -> Iterator[Hashable]:
    return (key for key in keys if key not in others)


def _named(table: Table, key: Any) -> str:
    return ", ".join(f"{name} {value}" for name, value in zip(KEYS[table.name], key, strict=True))
