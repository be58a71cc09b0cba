"""PathScore of every root-to-leaf path, and the best of them (seed section 3, method P1–P3)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from coral_pipeline import tables
from coral_pipeline.explored import OPEN_LEAF, ExploredTree
from coral_pipeline.ranks import PercentileRank
from coral_pipeline.scores import mean
from coral_pipeline.settings import PathSettings, orient


def rank_paths(tree_dir: Path, settings: PathSettings) -> pa.Table:
    """The ``ranked_paths`` table of the tree in ``tree_dir``, the folder ``explore`` wrote.

    Candidates come first, by rank; then the paths that are out, by leaf id. Raises ``BadInput`` where the
    tree is not finished or not whole.
    """
    return rank_tree(ExploredTree.read(tree_dir), settings)


def rank_tree(tree: ExploredTree, settings: PathSettings) -> pa.Table:
    """``rank_paths`` of a tree that has been read."""
    paths = [_path(tree, int(leaf)) for leaf in (tree.children == 0).nonzero()[0]]
    candidates = [path for path in paths if path.excluded_reason is None]
    excluded = sorted((path for path in paths if path.excluded_reason is not None), key=lambda path: path.leaf_id)
    rows = _ranked_rows(tree, candidates, settings) + [_row(path) for path in excluded]
    return tables.RANKED_PATHS.build(rows)


@dataclass(frozen=True)
class _Path:
    """A root-to-leaf path. The root is shared by all paths and belongs to none: it has no part in the means (P1)."""

    node_ids: list[int]
    """Root first."""
    edge_ids: list[int]
    scores: list[float]
    """Raw scores of the non-root nodes; NaN where one has none."""
    cleanliness: list[float]
    knowledge: list[float]
    excluded_reason: str | None

    @property
    def leaf_id(self) -> int:
        return self.node_ids[-1]


def _path(tree: ExploredTree, leaf: int) -> _Path:
    nodes = list(tree.path(leaf))[::-1]
    edges = nodes[1:]
    scores = tree.score[edges].tolist()
    return _Path(
        node_ids=tree.node_id[nodes].tolist(),
        edge_ids=tree.edge_id[edges].tolist(),
        scores=scores,
        cleanliness=tree.cleanliness[edges].tolist(),
        knowledge=tree.knowledge[edges].tolist(),
        excluded_reason=_excluded_reason(tree.leaf_kind[leaf], scores),
    )


def _excluded_reason(leaf_kind: str | None, scores: Sequence[float]) -> str | None:
    """Why a path is no candidate (P1); an unfinished path is told first. A root alone has no score to average."""
    if leaf_kind == OPEN_LEAF:
        return "open_leaf"
    return "missing_score" if not scores or any(map(math.isnan, scores)) else None


def _ranked_rows(tree: ExploredTree, candidates: list[_Path], settings: PathSettings) -> list[dict[str, Any]]:
    """Rows of the candidates, in the order of P3."""

    def oriented(score: float) -> float:
        return orient(score, tree.direction)

    rows = [
        _row(path)
        | {
            "avg_cleanliness": mean(path.cleanliness),
            "avg_knowledge": mean(path.knowledge),
            "avg_score": mean(path.scores),
            "max_score": max(path.scores, key=oriented),
        }
        for path in candidates
    ]
    avg_rank = PercentileRank([oriented(row["avg_score"]) for row in rows])
    max_rank = PercentileRank([oriented(row["max_score"]) for row in rows])
    for row in rows:
        row["avg_score_rank"] = avg_rank(oriented(row["avg_score"]))
        row["max_score_rank"] = max_rank(oriented(row["max_score"]))
        row["PathScore"] = (
            settings.max_score_rank_weight * row["max_score_rank"]
            + settings.avg_score_rank_weight * row["avg_score_rank"]
            + settings.cleanliness_weight * row["avg_cleanliness"]
            + settings.knowledge_weight * row["avg_knowledge"]
        )
    rows.sort(
        key=lambda row: (
            -round(row["PathScore"], settings.tie_decimals),
            -oriented(row["max_score"]),
            -row["avg_cleanliness"],
            row["leaf_id"],
        )
    )
    return [row | {"rank": k, "selected": k <= settings.top_k} for k, row in enumerate(rows, start=1)]


def _row(path: _Path) -> dict[str, Any]:
    """The row of a path that is not ranked."""
    return dict.fromkeys(column.name for column in tables.RANKED_PATHS.columns) | {
        "leaf_id": path.leaf_id,
        "node_ids": path.node_ids,
        "edge_ids": path.edge_ids,
        "candidate": path.excluded_reason is None,
        "excluded_reason": path.excluded_reason,
        "selected": False,
    }
