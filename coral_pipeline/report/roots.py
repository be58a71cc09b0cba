"""What became of one root, in the few numbers a person looks at first."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from coral_pipeline import tables
from coral_pipeline.explored import TREE_FILE
from coral_pipeline.settings import orient


@dataclass(frozen=True)
class RootReport:
    """A finished tree and its ranked paths."""

    root_score: float
    best_score: float
    """Best raw score in the tree, the root's included."""
    improved: bool
    """The best score beats the root's."""
    valid_edges: int
    failed_edges: int
    """Edges that made no child."""
    good_leaves: int
    stop_reason: str
    candidates: int
    """Paths that took part in the ranking."""
    selected: int


def root_report(tree: Path, ranked: Path) -> RootReport:
    """The numbers of a root, from its folders of ``explored_trees`` and ``ranked_paths``."""
    info = json.loads((tree / TREE_FILE).read_bytes())
    nodes = tables.NODES.rows(tree)
    paths = tables.RANKED_PATHS.rows(ranked)
    root_score, direction = nodes[0]["score"], info["direction"]
    best = max((node["path_best_score"] for node in nodes), key=lambda score: orient(score, direction))
    return RootReport(
        root_score=root_score,
        best_score=best,
        improved=orient(best, direction) > orient(root_score, direction),
        valid_edges=info["counts"]["valid_edges"],
        failed_edges=info["counts"]["failed_edges"],
        good_leaves=info["counts"]["good_leaves"],
        stop_reason=info["stop_reason"],
        candidates=sum(path["candidate"] for path in paths),
        selected=sum(path["selected"] for path in paths),
    )
