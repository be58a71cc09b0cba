"""What one tree gives a trainer: advantages of its edges, targets of its critic (method C1–C5)."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from coral_pipeline import tables
from coral_pipeline.credit.columns import AdvantageColumns, TreeEdges
from coral_pipeline.credit.statistics import mean_and_std
from coral_pipeline.credit.values import NodeValues, TreeValues
from coral_pipeline.errors import BadInput
from coral_pipeline.explored import ExploredTree, FloatArray
from coral_pipeline.settings import RewardConfig

DESCRIPTION_FILE = "batch.json"


@dataclass(frozen=True)
class Batch:
    """Advantages and values of one tree, with the recipe and the rewards they were made with."""

    tree: ExploredTree
    estimator: str
    """Name of the recipe."""
    value_model: str
    """Name of the model the priors are from."""
    rewards: RewardConfig
    edges: TreeEdges
    """Every searched edge, by edge id."""
    advantages: AdvantageColumns
    """One entry per edge; None: unassigned."""
    values: TreeValues

    def advantage_by_edge(self) -> dict[int, float | None]:
        """Advantage by edge id; None: unassigned, which is not zero."""
        values = self.advantages.values.tolist()
        return {
            edge_id: None if math.isnan(value) else value
            for edge_id, value in zip(self.edges.edge_id.tolist(), values, strict=True)
        }

    def edge_table(self) -> pa.Table:
        """The batch as ``tables.CREDIT_EDGES``, by edge id."""
        edges = self.edges
        columns = (edges.edge_id, edges.parent_id, edges.child_id, edges.reward, edges.duration)
        rows = zip(*(column.tolist() for column in columns), self.advantages, strict=True)
        return tables.CREDIT_EDGES.build(
            {
                "edge_id": edge_id,
                "parent_id": parent,
                "child_id": child,
                "estimator": self.estimator,
                "reward": reward,
                "duration": duration,
                "advantage": None if advantage is None else advantage.value,
                "diagnostics": [] if advantage is None else list(advantage.diagnostics.items()),
            }
            for edge_id, parent, child, reward, duration, advantage in rows
        )

    def critic_table(self) -> pa.Table:
        """The values as ``tables.CRITIC_TARGETS``, one row per node, by node id. No estimator has a part in it (C5)."""
        order = self.tree.id_order

        def column(values: NodeValues) -> pa.Array:
            return pa.array(values.by_position[order], from_pandas=True)  # NaN becomes null

        return pa.Table.from_arrays(
            [
                pa.array(self.tree.node_id[order]),
                column(self.values.prior),
                column(self.values.backup),
                column(self.values.refined),
                pa.array(self.tree.children[order]),
            ],
            schema=tables.CRITIC_TARGETS.schema,
        )

    def write(self, folder: Path) -> list[Path]:
        """Write both tables and ``describe()`` as ``batch.json`` into ``folder``; returns the files.

        Raises ``BadInput`` for the tree's own folder, whose ``edges.parquet`` would be lost.
        """
        if folder.resolve() == self.tree.folder.resolve():
            raise BadInput(folder, "is the tree itself, whose edges.parquet would be overwritten", "choose another")
        files = [
            tables.CREDIT_EDGES.write(self.edge_table(), folder),
            tables.CRITIC_TARGETS.write(self.critic_table(), folder),
            folder / DESCRIPTION_FILE,
        ]
        with tables.replaced_when_done(files[-1]) as partial:
            partial.write_text(json.dumps(self.describe(), indent=2) + "\n")
        return files

    def describe(self) -> dict[str, Any]:
        """What went in and how the numbers are spread, as JSON values.

        ``rewards``, ``advantages``, ``targets`` and each of ``diagnostics`` hold count, mean, std (population),
        min and max; ``unassigned`` counts edges without an advantage, which are in none of them.
        """
        values = self.advantages.values
        return {
            "root": self.tree.name,
            "estimator": self.estimator,
            "value_model": self.value_model,
            "reward_config": self.rewards.model_dump(),
            "nodes": len(self.tree),
            "good_leaves": int(np.count_nonzero(self.tree.good_leaf)),
            "edges": len(self.edges),
            "unassigned": int(np.count_nonzero(np.isnan(values))),
            "positive": int(np.count_nonzero(values > 0)),
            "negative": int(np.count_nonzero(values < 0)),
            "zero": int(np.count_nonzero(values == 0)),
            "rewards": _spread(self.edges.reward),
            "advantages": _spread(values),
            "targets": _spread(self.values.backup.by_position),
            "diagnostics": {name: _spread(column) for name, column in sorted(self.advantages.diagnostics.items())},
        }


def _spread(column: FloatArray) -> dict[str, float | int | None]:
    """Statistics of the entries that are not NaN; all but the count are None where there are none."""
    values = column[~np.isnan(column)]
    if not len(values):
        return {"count": 0} | dict.fromkeys(("mean", "std", "min", "max"))
    mean, std = mean_and_std(values)
    return {"count": len(values), "mean": mean, "std": std, "min": float(values.min()), "max": float(values.max())}
