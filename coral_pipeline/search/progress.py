"""How far a tree has grown, for logs and for the eye."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

from coral_pipeline.search.rules import good_leaves
from coral_pipeline.search.tree import Tree


@dataclass(frozen=True)
class Progress:
    """One look at a growing tree; the counts are those of the rounds already applied."""

    tree: Tree
    """The tree itself, to be read before the observer returns."""
    round: int
    valid_edges: int
    failed_edges: int
    """Edges that made no child."""
    good_leaves: int
    best_score: float
    """Best raw score in the tree, the root's included."""
    tokens: int
    """Tokens the edges added to their parents' contexts."""
    disk_bytes: int
    """Disk space the tree's folder took when the last round had ended; 0 where nobody measures."""
    max_logical_edges: int
    """The budget ``valid_edges`` is held against."""
    target_good_leaf_count: int
    running: Mapping[str, int]
    """Edges in flight: name to Rollout Turn."""
    fraction: float
    """Estimated share of the search that is done: by edges or by good leaves, whichever is further."""


def progress_of(tree: Tree, disk_bytes: int = 0) -> Progress:
    """A look at ``tree`` with no edge in flight."""
    settings = tree.settings
    leaves = good_leaves(tree)
    fraction = max(leaves / settings.target_good_leaf_count, tree.valid_edges / settings.max_logical_edges)
    return Progress(
        tree=tree,
        round=tree.round,
        valid_edges=tree.valid_edges,
        failed_edges=len(tree.edges) - tree.valid_edges,
        good_leaves=leaves,
        best_score=best_score(tree),
        tokens=tokens(tree),
        disk_bytes=disk_bytes,
        max_logical_edges=settings.max_logical_edges,
        target_good_leaf_count=settings.target_good_leaf_count,
        running={},
        fraction=1.0 if tree.stop_reason else min(fraction, 1.0),
    )


def best_score(tree: Tree) -> float:
    """Best raw score in the tree, the root's included."""
    return functools.reduce(tree.better, (node.path_best_score for node in tree.nodes))


def tokens(tree: Tree) -> int:
    """Tokens the edges, failed ones included, added to their parents' contexts."""
    return sum(max(0, edge.figures.max_token_total - tree.nodes[edge.parent_id].max_token_total) for edge in tree.edges)
