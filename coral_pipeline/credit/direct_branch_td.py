"""The paper's segment TD advantages (seed estimation, method C3)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from coral_pipeline.credit.columns import AdvantageColumns, tree_edges
from coral_pipeline.credit.estimator import Advantage, Edge, Estimator
from coral_pipeline.credit.values import MissingValue, TreeValues, discount


class DirectBranchTd(Estimator):
    """A = R + gamma^d * refined(child) - refined(parent), for every searched edge."""

    name = "direct_branch_td"

    def advantages(self, edges: Sequence[Edge], values: TreeValues) -> Sequence[Advantage | None]:
        """One advantage per edge, its two terms as diagnostics.

        Raises ``MissingValue`` naming the first checkpoint that lacks a prediction: a parent, even where
        kappa = 0 leaves it no weight, or an open child.
        """
        at, reward, duration = tree_edges(edges, values.tree)
        parent = values.tree.parent[at]
        for positions in (parent, at):
            unpredicted = np.isnan(values.prior.by_position[positions])
            if unpredicted.any():
                raise MissingValue(int(values.tree.node_id[positions[unpredicted][0]]), values.prior.kind)
        refined = values.refined.by_position
        after = (reward + discount(values.gamma, duration) * refined)[at]
        before = refined[parent]
        return AdvantageColumns(after - before, {"value_before": before, "value_after": after})
