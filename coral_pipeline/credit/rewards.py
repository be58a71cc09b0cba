"""Rewards of searched edges (method C1)."""

from __future__ import annotations

import numpy as np

from coral_pipeline.errors import BadInput
from coral_pipeline.explored import ExploredTree, FloatArray
from coral_pipeline.ranks import percentile_ranks
from coral_pipeline.settings import RewardConfig
from coral_pipeline.tree_file import REMAKE


def node_ranks(tree: ExploredTree) -> FloatArray:
    """Percentile rank of each node's score among the tree's scored nodes; one without score takes its parent's.

    Raises ``BadInput`` where the root, from which others may have to take theirs, has no score.
    """
    scored = np.isfinite(tree.score)
    if not scored[0]:
        raise BadInput(f"{tree.folder}, node {tree.node_id[0]}", "the root has no score", REMAKE)
    ranks = np.full(len(tree), np.nan)
    ranks[scored] = percentile_ranks(tree.oriented_score[scored])
    for level in tree.levels[1:]:
        np.copyto(ranks[level], ranks[tree.parent[level]], where=~scored[level])
    return ranks


def edge_rewards(tree: ExploredTree, rewards: RewardConfig) -> FloatArray:
    """R = w_gain * (rank(child) - rank(parent)) + w_soft * soft, at the position of the child; NaN at the root."""
    reward = node_ranks(tree)
    reward -= reward[tree.parent]
    reward *= rewards.gain_weight
    reward += rewards.soft_weight * tree.soft
    reward[0] = np.nan
    return reward
