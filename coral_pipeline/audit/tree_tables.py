"""The tables of one tree in columns, for asserting the method's rules on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from coral_pipeline import tables
from coral_pipeline.audit.compare import REORDERED
from coral_pipeline.audit.findings import Review, shown
from coral_pipeline.audit.replay import search_settings
from coral_pipeline.errors import BadInput
from coral_pipeline.explored import BoolArray, FloatArray, IntArray
from coral_pipeline.settings import SearchSettings
from coral_pipeline.tables import Table
from coral_pipeline.tree_file import REMAKE, read_tree_info

NONE = -1
"""Stands for null in columns of ids."""


@dataclass(frozen=True)
class Columns:
    """One table: integers with ``NONE`` for null, floats with NaN for null, texts with None."""

    table: Table
    rows: pa.Table
    key: str
    """Column by which findings name a row."""
    within: str = ""
    """Where these rows stand in the table, where they are some of it; for findings."""

    def __len__(self) -> int:
        """Number of rows."""
        return int(self.rows.num_rows)

    def __getitem__(self, name: str) -> NDArray[Any]:
        """A column."""
        column = self.rows.column(name)
        if pa.types.is_integer(column.type):
            return np.asarray(column.fill_null(NONE).to_numpy(), dtype=np.int64)
        if pa.types.is_floating(column.type):
            return np.asarray(column.to_numpy(), dtype=np.float64)
        if pa.types.is_boolean(column.type):
            return np.asarray(column.to_numpy(), dtype=np.bool_)
        return np.array(column.to_pylist(), dtype=object)

    def expect(self, review: Review, name: str, expected: NDArray[Any], rule: str, at: BoolArray | None = None) -> None:
        """Each cell of a column is as expected (floats to ``REORDERED``); ``at``: only of these rows."""
        found = self[name]
        if found.dtype.kind == "f":
            wrong = ~np.isclose(found, expected, rtol=REORDERED, atol=REORDERED, equal_nan=True)
            apart = np.abs(found - expected)
            finite = np.isfinite(apart) if at is None else np.isfinite(apart) & at
            review.largest_difference = max(review.largest_difference, float(apart[finite].max(initial=0.0)))
        else:
            wrong = np.asarray(found != expected, dtype=np.bool_)
        if at is not None:
            wrong &= at
        review.looked_at["cells"] += len(found) if at is None else int(at.sum())
        for row in np.flatnonzero(wrong).tolist():
            problem = f"is {shown(_plain(found[row]))}, expected {shown(_plain(expected[row]))} ({rule})"
            review.find(f"{self.named(row)}, {name}", problem, kind=f"{self.table.file_name}, {name} ({rule})")

    def require(self, review: Review, holds: BoolArray, problem: str) -> None:
        """Something holds for every row; ``problem`` says what does not where it does not."""
        review.looked_at["rows"] += len(holds)
        for row in np.flatnonzero(~holds).tolist():
            review.find(self.named(row), problem, kind=f"{self.table.file_name}: {problem}")

    def named(self, row: int) -> str:
        """How a finding names a row."""
        name = f"{self.key} {_plain(self[self.key][row])}"
        return (
            f"{self.table.file_name}, {self.within}, {name}"
            if self.within
            else f"{self.table.file_name}, row {row} ({name})"
        )


def _plain(value: Any) -> Any:
    """A numpy scalar as a plain value, null as None."""
    plain = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(plain, float) and np.isnan(plain) else plain


@dataclass(frozen=True)
class TreeTables:
    """Tables and description of one tree; ids are row numbers, which ``read`` makes sure of."""

    info: Mapping[str, Any]
    settings: SearchSettings
    nodes: Columns
    edges: Columns
    turns: Columns
    rounds: Columns

    @staticmethod
    def read(folder: Path) -> TreeTables:
        """The tree in ``folder``.

        Raises ``BadInput`` where node or edge ids do not count up from 0, or name rows that are not there: nothing
        else can be told of such tables.
        """
        info = read_tree_info(folder)
        nodes = Columns(tables.NODES, tables.NODES.read(folder), "node_id")
        edges = Columns(tables.EDGES, tables.EDGES.read(folder), "edge_id")
        turns = Columns(tables.TURNS, tables.TURNS.read(folder), "edge_id")
        rounds = Columns(tables.ROUNDS, tables.ROUNDS.read(folder), "node_id")
        for columns in (nodes, edges):
            wrong = np.flatnonzero(columns[columns.key] != np.arange(len(columns)))
            if len(wrong):
                where = f"{columns.table.file_name}, row {wrong[0]}, {columns.key}"
                raise BadInput(where, f"is {columns[columns.key][wrong[0]]}, expected {wrong[0]} (T12)", REMAKE)
        for columns, name, limit, nullable in (
            (nodes, "parent_id", len(nodes), True),
            (edges, "parent_id", len(nodes), False),
            (edges, "child_id", len(nodes), True),
            (turns, "edge_id", len(edges), False),
            (rounds, "node_id", len(nodes), False),
        ):
            ids = columns[name]
            wrong = np.flatnonzero((ids < (NONE if nullable else 0)) | (ids >= limit))
            if len(wrong):
                where = f"{columns.table.file_name}, row {wrong[0]}, {name}"
                raise BadInput(where, f"{ids[wrong[0]]} is not in the tree", REMAKE)
        return TreeTables(info, search_settings(info), nodes, edges, turns, rounds)

    @cached_property
    def sign(self) -> float:
        """What turns a raw score so that higher is better."""
        return 1.0 if self.info["direction"] == "maximize" else -1.0

    @cached_property
    def made(self) -> IntArray:
        """Edge ids of the edges that made a child."""
        return np.flatnonzero(self.edges["child_id"] != NONE)

    @cached_property
    def made_in(self) -> IntArray:
        """Per node, the round in which it was made; 0 at the root."""
        rounds = np.zeros(len(self.nodes), dtype=np.int64)
        rounds[self.edges["child_id"][self.made]] = self.edges["round"][self.made]
        return rounds

    @cached_property
    def levels(self) -> list[IntArray]:
        """Node ids by depth, below the root."""
        depth = self.nodes["depth"]
        return [np.flatnonzero(depth == level) for level in range(1, int(depth.max(initial=0)) + 1)]

    def inherited(self, values: FloatArray) -> FloatArray:
        """Per node, its own value, or where that is NaN the nearest ancestor's."""
        parent, result = self.nodes["parent_id"], values.copy()
        for level in self.levels:
            result[level] = np.where(np.isnan(values[level]), result[parent[level]], values[level])
        return result

    @cached_property
    def best_on_path(self) -> FloatArray:
        """Per node, the best oriented score from the root to it, nodes without score skipped (T10)."""
        parent, result = self.nodes["parent_id"], self.sign * self.nodes["score"]
        for level in self.levels:
            result[level] = np.fmax(result[level], result[parent[level]])
        return result
