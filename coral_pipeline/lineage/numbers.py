"""How scores, PathScores, rewards and advantages came about, in the numbers of one row, computed once more."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from coral_pipeline.credit.rewards import node_ranks
from coral_pipeline.explored import ExploredTree
from coral_pipeline.settings import CreditSettings, PathSettings, SearchSettings

_TOLERANCE = 1e-9

Row = Mapping[str, Any]


def path_score(row: Row, settings: PathSettings) -> str:
    """PathScore of a candidate (seed 3.3)."""
    terms = [
        (settings.max_score_rank_weight, "max_score_rank"),
        (settings.avg_score_rank_weight, "avg_score_rank"),
        (settings.cleanliness_weight, "avg_cleanliness"),
        (settings.knowledge_weight, "avg_knowledge"),
    ]
    return weighted("PathScore", row["PathScore"], ((weight, name, row[name]) for weight, name in terms))


def soft_score(row: Row, settings: SearchSettings) -> str:
    """Soft verifier score of an edge that made a child (method T9)."""
    weights = settings.soft_weights
    return weighted(
        "soft",
        row["soft"],
        [
            (weights.outcome, "outcome", row["outcome"]),
            (weights.cleanliness, "cleanliness", row["cleanliness"]),
            (weights.knowledge, "knowledge", row["knowledge"]),
            (weights.regression_stability, "(1 - regressed_rate)", 1 - row["regressed_rate"]),
        ],
    )


def edge_score(row: Row, turns: Iterable[Row]) -> str:
    """Score of an edge from its turns (method T6)."""
    each = ", ".join(
        f"turn {turn['turn']}: "
        + ("no score" if turn["score"] is None else f"{turn['score']:.10g}")
        + (f" ({turn['status']})" if turn["status"] else "")
        for turn in turns
    )
    best = "none" if row["best_score"] is None else f"{row['best_score']:.10g}"
    return f"best_score {best}: the better of {each}"


def reward(row: Row, tree: ExploredTree, settings: CreditSettings) -> str:
    """Reward of an edge (method C1)."""
    at = {int(edge): place for place, edge in enumerate(tree.edge_id.tolist())}[row["edge_id"]]
    ranks = node_ranks(tree)
    return weighted(
        "reward",
        row["reward"],
        [
            (settings.rewards.gain_weight, f"rank of node {row['child_id']}", float(ranks[at])),
            (-settings.rewards.gain_weight, f"rank of node {row['parent_id']}", float(ranks[tree.parent[at]])),
            (settings.rewards.soft_weight, "soft", float(tree.soft[at])),
        ],
    )


def advantage(row: Row, settings: CreditSettings) -> str:
    """Advantage of an edge, with the numbers that its estimator attached (method C3, C4)."""
    if row["advantage"] is None:
        return f"advantage: {row['estimator']} assigns none, which is not zero"
    attached = ", ".join(f"{name} {value:.10g}" for name, value in dict(row["diagnostics"]).items())
    line = f"advantage {row['advantage']:.10g} by {row['estimator']}"
    if row["estimator"] == "direct_branch_td":
        gamma = f"gamma {settings.rewards.gamma:g}, duration {row['duration']}"
        line += f": value_after (reward + gamma^duration * refined value of the child) - value_before; {gamma}"
    return f"{line}; {attached}" if attached else line


def weighted(name: str, recorded: float, terms: Iterable[tuple[float, str, float]]) -> str:
    """``name = sum of weight * term``; where the recorded number is another, the line says so."""
    terms = list(terms)
    total = math.fsum(weight * value for weight, _, value in terms)
    shown = " + ".join(f"{weight:g} * {term} {value:.6g}" for weight, term, value in terms)
    line = f"{name} {recorded:.10g} = {shown}"
    return line if abs(total - recorded) <= _TOLERANCE * max(1, abs(total)) else f"{line}: {WRONG} {total:.10g}"


WRONG = "BUT THAT IS"
"""In a line whose recorded number is not what its terms add up to."""
