"""A finished tree as the stages after the search read it: the folder ``explore`` wrote, checked, in columns.

Every node but the root was made by exactly one edge, so one row holds a node and the edge that made it.
Failed edges made no node and are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from coral_pipeline import tables
from coral_pipeline.errors import BadInput
from coral_pipeline.settings import Direction
from coral_pipeline.tree_file import REMAKE, read_tree_info

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

GOOD_LEAVES = ("token_limit", "depth_limit", "exhausted")
"""Leaf kinds of paths that ended normally (method T14)."""
OPEN_LEAF = "open"
"""Leaf kind of a node that was still a candidate when the search stopped (method T14)."""


@dataclass(frozen=True)
class ExploredTree:
    """The nodes of one root's tree, N rows ordered by (depth, node id): the root first, parents before children.

    A *position* is a row number. Columns of the edge that made a node are NaN, or for ids -1, at the root.
    """

    folder: Path
    """Where it was read from."""
    name: str
    """Snapshot folder name of the root."""
    direction: Direction
    node_id: IntArray
    parent: IntArray
    """Position of the parent; -1 at the root."""
    depth: IntArray
    score: FloatArray
    """Raw score; NaN where the node has none."""
    leaf_kind: tuple[str | None, ...]
    """None where the node has children."""
    good_leaf: BoolArray
    """Whether the path to the node ended normally (method T14)."""
    edge_id: IntArray
    duration: IntArray
    """Step turns of the edge (method C1); 0 at the root."""
    cleanliness: FloatArray
    knowledge: FloatArray
    soft: FloatArray

    @staticmethod
    def read(folder: Path) -> ExploredTree:
        """The tree in ``folder``.

        Raises ``BadInput`` where ``tree.json`` is missing (the search has not finished) or the tables do not
        describe one tree.
        """
        info = read_tree_info(folder)
        return ExploredTree.of_tables(folder, info, tables.NODES.read(folder), tables.EDGES.read(folder))

    @staticmethod
    def of_tables(folder: Path, info: Mapping[str, Any], nodes: pa.Table, edges: pa.Table) -> ExploredTree:
        """The tree of two tables and its description (``root``, ``direction``); ``folder`` is where they are from."""
        return _assemble(folder, info, nodes, edges)

    def __len__(self) -> int:
        """Number of nodes."""
        return len(self.node_id)

    @cached_property
    def oriented_score(self) -> FloatArray:
        """Scores turned so that higher is better; NaN where there is none."""
        return self.score if self.direction == "maximize" else -self.score

    @cached_property
    def children(self) -> IntArray:
        """Number of children per node."""
        return np.bincount(self.parent[1:], minlength=len(self)).astype(np.int64)

    @cached_property
    def levels(self) -> tuple[slice, ...]:
        """Positions of each depth, from the root down."""
        starts = np.searchsorted(self.depth, np.arange(self.depth[-1] + 2)).tolist()
        return tuple(map(slice, starts, starts[1:]))

    @cached_property
    def slot(self) -> IntArray:
        """Place of each node's parent within the parent's level; -1 at the root."""
        starts = np.array([0, *(level.start for level in self.levels)])
        slot: IntArray = self.parent - starts[self.depth]
        return slot

    @cached_property
    def edge_order(self) -> IntArray:
        """Positions of the non-root nodes in the order of the edges that made them."""
        return _argsort(self.edge_id[1:]) + 1

    @cached_property
    def id_order(self) -> IntArray:
        """Positions of all nodes in the order of their ids."""
        return _argsort(self.node_id)

    def positions(self, node_ids: IntArray) -> IntArray:
        """Positions of nodes by id; ``KeyError`` where one is not in the tree."""
        by_id = self.id_order
        last = len(self) - 1
        if self.node_id[by_id[0]] == 0 and self.node_id[by_id[-1]] == last:  # ids 0 … N-1: no search needed
            found = by_id[np.clip(node_ids, 0, last)]
        else:
            found = by_id[np.searchsorted(self.node_id, node_ids, sorter=by_id).clip(max=last)]
        unknown = self.node_id[found] != node_ids
        if unknown.any():
            raise KeyError(int(node_ids[unknown][0]))
        return found

    def path(self, position: int) -> Iterator[int]:
        """Positions from the node at ``position`` up to the root, both included."""
        while position >= 0:
            yield position
            position = int(self.parent[position])


def _argsort(ids: IntArray) -> IntArray:
    """Order of unique ids. Ours count up from 0 with few gaps: each then has its place in a short table."""
    top = int(ids.max(initial=-1))
    if ids.min(initial=0) < 0 or top >= 4 * len(ids):
        return np.argsort(ids)
    place = np.full(top + 1, -1, dtype=np.int64)
    place[ids] = np.arange(len(ids))
    return place[place >= 0]


@dataclass(frozen=True)
class _Columns:
    """A table with the file it came from, for errors."""

    file: Path
    table: pa.Table

    def ints(self, name: str) -> IntArray:
        column = self.table.column(name)
        if column.null_count:
            raise BadInput(self.file, f"{name} has nulls", REMAKE)
        return np.asarray(column.to_numpy(), dtype=np.int64)

    def floats(self, name: str) -> FloatArray:
        """Nulls as NaN."""
        return np.asarray(self.table.column(name).to_numpy(), dtype=np.float64)


def _assemble(folder: Path, info: Mapping[str, Any], node_table: pa.Table, edge_table: pa.Table) -> ExploredTree:
    order = pa.array(np.lexsort((node_table.column("node_id"), node_table.column("depth"))))
    nodes = _Columns(folder / tables.NODES.file_name, node_table.take(order))
    edges = _Columns(folder / tables.EDGES.file_name, edge_table.filter(edge_table.column("child_id").is_valid()))
    node_id, depth = nodes.ints("node_id"), nodes.ints("depth")
    _require_unique(nodes, "node_id")
    _require_unique(edges, "child_id")
    _require_unique(edges, "edge_id")
    parent = _parents(nodes, node_id, depth)
    leaf_kind = tuple(nodes.table.column("leaf_kind").to_pylist())
    _check_leaves(nodes.file, node_id, parent, leaf_kind)
    made = _positions(node_id, edges, "child_id")
    _check_edges(edges, node_id, parent, made)

    def of_edges(values: NDArray[Any], at_root: float) -> NDArray[Any]:
        column = np.full(len(node_id), at_root, dtype=values.dtype)
        column[made] = values
        return column

    for name in ("cleanliness", "knowledge", "soft"):
        missing = ~np.isfinite(edges.floats(name))
        if missing.any():
            thing = f"{edges.file}, edge {edges.ints('edge_id')[missing][0]}"
            raise BadInput(thing, f"made a node but has no {name}", REMAKE)
    score = nodes.floats("score")
    return ExploredTree(
        folder=folder,
        name=info["root"],
        direction=info["direction"],
        node_id=node_id,
        parent=parent,
        depth=depth,
        score=np.where(np.isfinite(score), score, np.nan),
        leaf_kind=leaf_kind,
        good_leaf=np.array([kind in GOOD_LEAVES for kind in leaf_kind], dtype=np.bool_),
        edge_id=of_edges(edges.ints("edge_id"), -1),
        duration=of_edges(edges.ints("step_turns"), 0),
        cleanliness=of_edges(edges.floats("cleanliness"), np.nan),
        knowledge=of_edges(edges.floats("knowledge"), np.nan),
        soft=of_edges(edges.floats("soft"), np.nan),
    )


def _require_unique(columns: _Columns, name: str) -> None:
    values, counts = np.unique(columns.ints(name), return_counts=True)
    if (counts > 1).any():
        raise BadInput(columns.file, f"{name} {values[counts > 1][0]} appears more than once", REMAKE)


def _positions(node_id: IntArray, columns: _Columns, name: str) -> IntArray:
    """Positions of the nodes a column names; ``BadInput`` where one is not in the tree."""
    wanted = columns.ints(name)
    unknown = ~np.isin(wanted, node_id)
    if unknown.any():
        raise BadInput(columns.file, f"{name} {wanted[unknown][0]} is not a node of the tree", REMAKE)
    by_id = np.argsort(node_id)
    return by_id[np.searchsorted(node_id, wanted, sorter=by_id)]


def _parents(nodes: _Columns, node_id: IntArray, depth: IntArray) -> IntArray:
    """Positions of the parents. Depths that grow by one along every link also rule out cycles."""
    is_root = nodes.table.column("parent_id").is_null().to_numpy()
    if is_root.sum() != 1 or not is_root[0]:
        raise BadInput(nodes.file, f"{int(is_root.sum())} nodes without a parent, expected one, at depth 0", REMAKE)
    parent = np.full(len(node_id), -1, dtype=np.int64)
    parent[1:] = _positions(node_id, _Columns(nodes.file, nodes.table.slice(1)), "parent_id")
    expected = np.concatenate([[0], depth[parent[1:]] + 1])
    if (depth != expected).any():
        at = int(np.flatnonzero(depth != expected)[0])
        raise BadInput(f"{nodes.file}, node {node_id[at]}", f"depth {depth[at]}, expected {expected[at]}", REMAKE)
    return parent


def _check_leaves(file: Path, node_id: IntArray, parent: IntArray, leaf_kind: tuple[str | None, ...]) -> None:
    """Every childless node has one of the leaf kinds, and no other node has any (method T14)."""
    childless = np.bincount(parent[1:], minlength=len(node_id)) == 0
    for node, is_leaf, kind in zip(node_id, childless, leaf_kind, strict=True):
        if (kind in (*GOOD_LEAVES, OPEN_LEAF)) if is_leaf else kind is None:
            continue
        problem = f"leaf_kind {kind!r} on a node {'without' if is_leaf else 'with'} children"
        raise BadInput(f"{file}, node {node}", problem, REMAKE)


def _check_edges(edges: _Columns, node_id: IntArray, parent: IntArray, made: IntArray) -> None:
    """Every node but the root was made by one edge, which comes from its parent (``made``: positions of children)."""
    expected = np.arange(len(node_id)) > 0
    found = np.bincount(made, minlength=len(node_id)) > 0
    if (found != expected).any():
        at = int(np.flatnonzero(found != expected)[0])
        raise BadInput(edges.file, f"{'an' if found[at] else 'no'} edge leads to node {node_id[at]}", REMAKE)
    wrong = node_id[parent[made]] != edges.ints("parent_id")
    if wrong.any():
        raise BadInput(edges.file, f"the edge to node {node_id[made[wrong]][0]} does not come from its parent", REMAKE)
