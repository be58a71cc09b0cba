"""Group-relative advantages over one tree (seed estimation, method C4)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from coral_pipeline.credit.columns import AdvantageColumns, EdgeColumns
from coral_pipeline.credit.estimator import Advantage, Edge, Estimator
from coral_pipeline.credit.values import TreeValues, discount
from coral_pipeline.explored import FloatArray, IntArray
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
        columns = EdgeColumns.of(edges)
        order = np.argsort(columns.depth, kind="stable")
        depth, completed = columns.depth[order], columns.completed[order]
        above = _edge_above(columns.node[order], columns.parent[order])
        starts = np.flatnonzero(np.diff(depth, prepend=-1)).tolist()
        levels = [slice(start, stop) for start, stop in zip(starts, [*starts[1:], len(depth)], strict=True)]
        reward, factor = columns.reward[order], discount(values.gamma, columns.duration[order])
        returns = _returns(levels, above, reward, factor)
        total = _sum_below(levels, above, np.where(completed, returns, 0.0))
        leaves = _sum_below(levels, above, completed.astype(np.float64))
        mean_return = np.full(len(depth), np.nan)
        np.divide(total, leaves, out=mean_return, where=leaves > 0)
        advantage = self._normalised(mean_return, returns[completed])
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return AdvantageColumns(advantage[back], {"mean_return": mean_return[back], "good_leaves": leaves[back]})

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
        mean = math.fsum(returns) / len(returns)
        std = math.sqrt(math.fsum((returns - mean) ** 2) / len(returns))
        scaled: FloatArray = (mean_return - mean) / (std + self.settings.std_offset)
        return scaled


def _edge_above(node: IntArray, parent: IntArray) -> IntArray:
    """For each edge, the place of the edge that leads to its parent; -1 where none does: the parent is the root."""
    by_node = np.argsort(node)
    place = np.searchsorted(node, parent, sorter=by_node).clip(max=max(len(node) - 1, 0))
    found = by_node[place]
    return np.where(node[found] == parent, found, -1)


def _returns(levels: Sequence[slice], above: IntArray, reward: FloatArray, factor: FloatArray) -> FloatArray:
    """Discounted sum of rewards from the root to the end of each edge; edges of each level in one slice."""
    returns, discounts = np.zeros(len(reward) + 1), np.ones(len(reward) + 1)  # the last entry, -1, is the root's
    for level in levels:
        up = above[level]
        returns[level] = returns[up] + discounts[up] * reward[level]
        discounts[level] = discounts[up] * factor[level]
    return returns[:-1]


def _sum_below(levels: Sequence[slice], above: IntArray, own: FloatArray) -> FloatArray:
    """Sum of ``own`` over each edge and all below it."""
    total = np.append(own, 0.0)
    for level in reversed(levels):
        np.add.at(total, above[level], total[level])
    return total[:-1]
