"""The conversations of a finished tree: its messages as a graph, each stored once, checked.

Every edge continues the session of the edge that made its parent, so a path's conversation is what its
edges added, one after another. Directions taken from the root each begin a session of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coral_pipeline import tables
from coral_pipeline.errors import BadInput
from coral_pipeline.explored import ExploredTree
from coral_pipeline.message_links import Row, chains, message_rows
from coral_pipeline.tree_file import REMAKE, read_tree_info


@dataclass(frozen=True)
class TreePath:
    """A path from the root of a tree to one of its leaves."""

    leaf_id: int
    edge_ids: tuple[int, ...]
    """From the root down."""
    columns: Row
    """What else is known of it: the other columns of ``tables.RANKED_PATHS``, or nothing."""


@dataclass(frozen=True)
class Conversations:
    """The messages of one root's tree. A *position* is the place of a message in the table."""

    folder: Path
    info: Row
    """``tree.json``."""
    rows: Sequence[Row]
    of_edge: Mapping[int, tuple[int, ...]]
    """Positions of the messages each edge added, in order; () where it has none."""
    edge_paths: Mapping[int, tuple[int, ...]]
    """Every edge, failed ones too: the edges from the root down to it, itself last."""
    searched: frozenset[int]
    """Edges that made a child (method C1)."""
    tree: ExploredTree

    @staticmethod
    def read(folder: Path) -> Conversations:
        """The conversations of the tree in ``folder``.

        Raises ``BadInput`` where the messages do not continue one another along the edges of the tree:
        a parent that is missing, links in a circle, two conversations in one edge.
        """
        tree = ExploredTree.read(folder)
        edge_paths, searched = _edge_paths(folder, tree)
        rows = message_rows(folder)
        of_edge = chains(folder, rows, edge_paths)
        return Conversations(folder, read_tree_info(folder), rows, of_edge, edge_paths, searched, tree)

    @property
    def root(self) -> str:
        """Snapshot folder name of the root."""
        return self.tree.name

    @property
    def student_run(self) -> str:
        """Folder name of the Student run; empty where ``tree.json`` does not say."""
        return self.info.get("student_run") or ""

    @property
    def tools(self) -> list[Any] | None:
        """Tool definitions the Teacher was given, where ``tree.json`` recorded them."""
        return self.info.get("tools") or None

    def path(self, edge_ids: Iterable[int]) -> list[int]:
        """Positions of the messages along a path, given its edges from the root down.

        An edge of which a Teacher told no messages adds none.
        """
        return [position for edge_id in edge_ids for position in self.of_edge[edge_id]]

    def leaf_paths(self) -> list[TreePath]:
        """The paths to every childless node but the root, by leaf id."""
        tree = self.tree
        edge_of = dict(zip(tree.node_id.tolist(), tree.edge_id.tolist(), strict=True))
        leaves = sorted(
            node
            for node, children, depth in zip(tree.node_id.tolist(), tree.children, tree.depth, strict=True)
            if not children and depth
        )
        return [TreePath(leaf, self.edge_paths[edge_of[leaf]], {}) for leaf in leaves]

    def selected_paths(self, ranked: Path) -> list[TreePath]:
        """The selected paths of ``ranked_paths`` in the folder ``ranked``, best first."""
        file = ranked / tables.RANKED_PATHS.file_name
        selected = sorted((row for row in tables.RANKED_PATHS.rows(ranked) if row["selected"]), key=_rank)
        for row in selected:
            edge_ids = tuple(row["edge_ids"])
            if not edge_ids or self.edge_paths.get(edge_ids[-1]) != edge_ids or not self.searched.issuperset(edge_ids):
                mend = f"rank {self.folder} again"
                raise BadInput(f"{file}, leaf {row['leaf_id']}", f"its edges {list(edge_ids)} are no path", mend)
        return [TreePath(row["leaf_id"], tuple(row["edge_ids"]), row) for row in selected]


def shared_prefixes(paths: Iterable[Sequence[int]]) -> list[int]:
    """Per path, how many of its leading messages an earlier path already carries.

    In a tree the messages two paths share are the first of both, so one number says it all.
    """
    seen: set[int] = set()
    shared = []
    for positions in paths:
        shared.append(sum(1 for position in positions if position in seen))
        seen.update(positions)
    return shared


def _rank(row: Row) -> int:
    rank: int | None = row["rank"]
    if rank is None:
        raise BadInput(f"path to leaf {row['leaf_id']}", "is selected but has no rank", "rank the tree again")
    return rank


def _edge_paths(folder: Path, tree: ExploredTree) -> tuple[dict[int, tuple[int, ...]], frozenset[int]]:
    """The edges from the root to every edge, and the edges that made a child."""
    to_node: dict[int, tuple[int, ...]] = {int(tree.node_id[0]): ()}
    for position in range(1, len(tree)):
        above = to_node[int(tree.node_id[tree.parent[position]])]
        to_node[int(tree.node_id[position])] = (*above, int(tree.edge_id[position]))
    paths = {edges[-1]: edges for edges in to_node.values() if edges}
    searched = frozenset(paths)
    for row in tables.EDGES.read(folder).select(["edge_id", "parent_id", "child_id"]).to_pylist():
        if row["child_id"] is None:
            file = f"{folder / tables.EDGES.file_name}, edge {row['edge_id']}"
            if row["edge_id"] in paths:
                raise BadInput(file, "appears more than once", REMAKE)
            if row["parent_id"] not in to_node:
                raise BadInput(file, f"leaves node {row['parent_id']}, which the tree does not have", REMAKE)
            paths[row["edge_id"]] = (*to_node[row["parent_id"]], row["edge_id"])
    return paths, searched
