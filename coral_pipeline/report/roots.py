"""What became of one root, in the few numbers a person looks at first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from coral_pipeline import tables
from coral_pipeline.explored import GOOD_LEAVES
from coral_pipeline.settings import orient
from coral_pipeline.tree_file import read_tree_info


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
    selected: int | None
    """Paths; None: not ranked yet."""


def root_report(tree: Path, ranked: Path) -> RootReport:
    """The numbers of a root, from its folders of ``explored_trees`` and ``ranked_paths``."""
    info = read_tree_info(tree, "stop_reason")
    return report_of(info, tables.NODES.read(tree), tables.EDGES.read(tree), tables.RANKED_PATHS.read(ranked))


def report_of(info: Mapping[str, Any], nodes: pa.Table, edges: pa.Table, ranked: pa.Table | None) -> RootReport:
    """The same from what ``tree.json`` says and the tables; ``ranked``: None where there is no ranking yet."""
    root_score, direction = nodes["score"][0].as_py(), info["direction"]
    best = max(nodes["path_best_score"].to_pylist(), key=lambda score: orient(score, direction))
    return RootReport(
        root_score=root_score,
        best_score=best,
        improved=orient(best, direction) > orient(root_score, direction),
        valid_edges=len(nodes) - 1,
        failed_edges=edges["child_id"].null_count,
        good_leaves=sum(kind in GOOD_LEAVES for kind in nodes["leaf_kind"].to_pylist()),
        stop_reason=info["stop_reason"],
        selected=None if ranked is None else sum(ranked["selected"].to_pylist()),
    )
