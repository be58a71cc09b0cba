"""The objects of the estimator interface, held in columns: objects are made only where someone looks at one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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


class TreeEdges(Sequence[Edge]):
    """E edges of a tree, in the order of ``positions``, those of the nodes they made."""

    def __init__(self, tree: ExploredTree, reward_by_position: FloatArray, positions: IntArray) -> None:
        """``reward_by_position``: R of the edge that made the node at each position of the tree."""
        self.tree = tree
        self.reward_by_position = reward_by_position
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
            return self.at(self.positions[index])
        position = int(self.positions[index])
        return Edge(
            node=node_at(self.tree, position),
            parent=node_at(self.tree, int(self.tree.parent[position])),
            reward=float(self.reward_by_position[position]),
            duration=int(self.tree.duration[position]),
        )

    def at(self, positions: IntArray) -> TreeEdges:
        """The edges that made other nodes of the same tree."""
        return TreeEdges(self.tree, self.reward_by_position, positions)

    @property
    def edge_id(self) -> IntArray:
        """Edge ids, in order."""
        return self.tree.edge_id[self.positions]

    @property
    def child_id(self) -> IntArray:
        """Node ids of the children, in order."""
        return self.tree.node_id[self.positions]

    @property
    def parent_id(self) -> IntArray:
        """Node ids of the parents, in order."""
        return self.tree.node_id[self.tree.parent[self.positions]]

    @property
    def reward(self) -> FloatArray:
        """Rewards, in order."""
        return self.reward_by_position[self.positions]

    @property
    def duration(self) -> IntArray:
        """Durations, in order."""
        return self.tree.duration[self.positions]


def tree_edges(edges: Sequence[Edge], tree: ExploredTree) -> tuple[IntArray, FloatArray, IntArray]:
    """The positions of the E nodes the edges made, in order, and rewards and durations by position (N each).

    Those of ``TreeEdges`` are there already; any other edges of the tree are looked up.
    """
    if isinstance(edges, TreeEdges) and edges.tree is tree:
        return edges.positions, edges.reward_by_position, tree.duration
    positions = tree.positions(np.array([edge.node.node_id for edge in edges], dtype=np.int64))
    reward, duration = np.full(len(tree), np.nan), np.zeros(len(tree), dtype=np.int64)
    reward[positions] = [edge.reward for edge in edges]
    duration[positions] = [edge.duration for edge in edges]
    return positions, reward, duration


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
