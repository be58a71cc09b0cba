"""The objects of the estimator interface, held in columns: objects are made only where someone looks at one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import overload

import numpy as np

from coral_pipeline.credit.estimator import Advantage, Edge, Node
from coral_pipeline.explored import BoolArray, ExploredTree, FloatArray, IntArray


def node_at(tree: ExploredTree, position: int) -> Node:
    """The node at a position of the tree."""
    score, parent = float(tree.score[position]), int(tree.parent[position])
    return Node(
        node_id=int(tree.node_id[position]),
        parent_id=int(tree.node_id[parent]) if position else None,
        depth=int(tree.depth[position]),
        score=None if np.isnan(score) else score,
        leaf_kind=tree.leaf_kind[position],
        edge_id=int(tree.edge_id[position]) if position else None,
    )


@dataclass(frozen=True)
class EdgeColumns:
    """E edges, one array of length E per property."""

    node: IntArray
    """Node ids of the children."""
    parent: IntArray
    """Node ids of the parents."""
    depth: IntArray
    """Depths of the children."""
    completed: BoolArray
    """Whether the child is a good leaf."""
    reward: FloatArray
    duration: IntArray

    @staticmethod
    def of(edges: Sequence[Edge]) -> EdgeColumns:
        """The columns of any edges; those of a ``TreeEdges`` cost no more than a slice of its tree."""
        if isinstance(edges, TreeEdges):
            return edges.columns
        return EdgeColumns(
            node=np.array([edge.node.node_id for edge in edges], dtype=np.int64),
            parent=np.array([edge.parent.node_id for edge in edges], dtype=np.int64),
            depth=np.array([edge.node.depth for edge in edges], dtype=np.int64),
            completed=np.array([edge.node.completed for edge in edges], dtype=np.bool_),
            reward=np.array([edge.reward for edge in edges], dtype=np.float64),
            duration=np.array([edge.duration for edge in edges], dtype=np.int64),
        )


class TreeEdges(Sequence[Edge]):
    """Edges of a tree in the order of ``positions``, those of the nodes they made."""

    def __init__(self, tree: ExploredTree, reward: FloatArray, positions: IntArray) -> None:
        """``reward``: R of the edge that made the node at each position of the tree."""
        self.tree = tree
        self.reward = reward
        self.positions = positions

    def __len__(self) -> int:
        """E."""
        return len(self.positions)

    @overload
    def __getitem__(self, index: int) -> Edge: ...
    @overload
    def __getitem__(self, index: slice) -> TreeEdges: ...
    def __getitem__(self, index: int | slice) -> Edge | TreeEdges:
        """An edge, made now; of a slice, its columns."""
        if isinstance(index, slice):
            return self.where(self.positions[index])
        position = int(self.positions[index])
        return Edge(
            node=node_at(self.tree, position),
            parent=node_at(self.tree, int(self.tree.parent[position])),
            reward=float(self.reward[position]),
            duration=int(self.tree.duration[position]),
        )

    def where(self, positions: IntArray) -> TreeEdges:
        """The edges of other nodes of the same tree."""
        return TreeEdges(self.tree, self.reward, positions)

    @property
    def edge_id(self) -> IntArray:
        """Edge ids, in order."""
        return self.tree.edge_id[self.positions]

    @cached_property
    def columns(self) -> EdgeColumns:
        """The edges in columns."""
        tree, at = self.tree, self.positions
        return EdgeColumns(
            node=tree.node_id[at],
            parent=tree.node_id[tree.parent[at]],
            depth=tree.depth[at],
            completed=tree.good_leaf[at],
            reward=self.reward[at],
            duration=tree.duration[at],
        )


class AdvantageColumns(Sequence[Advantage | None]):
    """Advantages of E edges. NaN in ``values`` is an unassigned edge; NaN in a diagnostic, none for that edge."""

    def __init__(self, values: FloatArray, diagnostics: Mapping[str, FloatArray] = MappingProxyType({})) -> None:
        """Every array has length E."""
        self.values = values
        self.diagnostics = diagnostics

    def __len__(self) -> int:
        """E."""
        return len(self.values)

    @overload
    def __getitem__(self, index: int) -> Advantage | None: ...
    @overload
    def __getitem__(self, index: slice) -> AdvantageColumns: ...
    def __getitem__(self, index: int | slice) -> Advantage | AdvantageColumns | None:
        """An advantage, made now; of a slice, its columns."""
        if isinstance(index, slice):
            return AdvantageColumns(
                self.values[index], {name: column[index] for name, column in self.diagnostics.items()}
            )
        value = float(self.values[index])
        if np.isnan(value):
            return None
        found = {name: float(column[index]) for name, column in self.diagnostics.items()}
        return Advantage(value, MappingProxyType({name: v for name, v in found.items() if not np.isnan(v)}))

    def spread(self, edges: BoolArray) -> AdvantageColumns:
        """Over more edges: these advantages go, in order, to those where ``edges`` is true; the rest is unassigned."""

        def widened(column: FloatArray) -> FloatArray:
            wide = np.full(len(edges), np.nan)
            wide[edges] = column
            return wide

        return AdvantageColumns(
            widened(self.values), {name: widened(column) for name, column in self.diagnostics.items()}
        )
