"""Group-relative advantages over one tree (seed estimation, method C4)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from coral_pipeline.credit.columns import AdvantageColumns, tree_edges
from coral_pipeline.credit.estimator import Advantage, Edge, Estimator
from coral_pipeline.credit.statistics import mean_and_std
from coral_pipeline.credit.values import TreeValues, discount
from coral_pipeline.explored import ExploredTree, FloatArray
from coral_pipeline.settings import CreditSettings, GrpoSettings


class Grpo(Estimator):
    """Mean return of the good leaves below an edge, centred and scaled over all good leaves of the tree.

    A leaf's return is the discounted sum of rewards along its path from the root. Needs no prediction.
    """

    name = "grpo"
    requires_completed_paths = True

    def __init__(self, settings: GrpoSettings = GrpoSettings()) -> None:
        """How the returns are scaled."""
        self.settings = settings

    @classmethod
    def from_settings(cls, settings: CreditSettings) -> Grpo:
        """Scaled as ``settings.grpo`` says."""
        return cls(settings.grpo)

    def advantages(self, edges: Sequence[Edge], values: TreeValues) -> Sequence[Advantage | None]:
        """One advantage per edge; None where no good leaf lies below it. ``edges`` must hold whole paths."""
        tree = values.tree
        at, reward, duration = tree_edges(edges, tree)
        returns = _returns(tree, reward, discount(values.gamma, duration))
        leaves = at[tree.good_leaf[at]]
        total, count = np.zeros(len(tree)), np.zeros(len(tree))
        total[leaves], count[leaves] = returns[leaves], 1.0
        mean_return, count = _sum_below(tree, total)[at], _sum_below(tree, count)[at]
        with np.errstate(invalid="ignore"):
            mean_return /= count  # NaN, unassigned, where there is no good leaf below
        advantage = self._normalised(mean_return, returns[leaves])
        return AdvantageColumns(advantage, {"mean_return": mean_return, "good_leaves": count})

    def _normalised(self, mean_return: FloatArray, returns: FloatArray) -> FloatArray:
        """(mean_return - mean) / (std + offset), mean and population std of the returns.

        Returns that are equal but for rounding have std 0: sums along different paths round differently, and
        even the mean of three equal numbers need not be that number.
        """
        if not len(returns):
            return mean_return
        low, high = float(returns.min()), float(returns.max())
        if high - low <= self.settings.tie_tolerance * max(1.0, abs(low), abs(high)):
            return np.where(np.isnan(mean_return), np.nan, 0.0)
        mean, std = mean_and_std(returns)
        scaled = mean_return - mean
        scaled /= std + self.settings.std_offset
        return scaled


def _returns(tree: ExploredTree, reward: FloatArray, factor: FloatArray) -> FloatArray:
    """By position: the discounted sum of rewards from the root to the node. ``factor``: gamma^d of its edge."""
    returns, discounts = np.zeros(len(tree)), np.ones(len(tree))
    for level in tree.levels[1:]:
        up = tree.parent[level]
        returns[level] = returns[up] + discounts[up] * reward[level]
        discounts[level] = discounts[up] * factor[level]
    return returns


def _sum_below(tree: ExploredTree, total: FloatArray) -> FloatArray:
    """By position: the sum of ``total`` over the node and all below it, made in place."""
    for above, below in zip(tree.levels[-2::-1], tree.levels[:0:-1], strict=True):
        total[above] += np.bincount(tree.slot[below], total[below], minlength=above.stop - above.start)
    return total
