"""The paper's segment TD advantages (seed estimation, method C3)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from coral_pipeline.credit.columns import AdvantageColumns, EdgeColumns
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
        columns = EdgeColumns.of(edges)
        for node_ids in (columns.parent, columns.node):
            unpredicted = np.isnan(values.prior.at(node_ids))
            if unpredicted.any():
                raise MissingValue(int(node_ids[unpredicted][0]), values.prior.kind)
        after = columns.reward + discount(values.gamma, columns.duration) * values.refined.at(columns.node)
        before = values.refined.at(columns.parent)
        return AdvantageColumns(after - before, {"value_before": before, "value_after": after})
