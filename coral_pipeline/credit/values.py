"""Values of a tree's checkpoints: the critic's prediction, the backup of the direct branches, and both refined."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from coral_pipeline.credit.columns import node_at
from coral_pipeline.credit.estimator import Node
from coral_pipeline.explored import ExploredTree, FloatArray, IntArray
from coral_pipeline.settings import RewardConfig


class MissingValue(KeyError):
    """A checkpoint without the value that was asked for."""

    def __init__(self, node_id: int, kind: str) -> None:
        """``kind``: prior | backup | refined."""
        super().__init__(f"node {node_id} has no {kind} value")
        self.node_id = node_id
        self.kind = kind


class NodeValues(Mapping[Node, float]):
    """One kind of value by checkpoint, of those that have one. Looking up another raises ``MissingValue``."""

    def __init__(self, kind: str, tree: ExploredTree, by_position: FloatArray) -> None:
        """``kind``: prior | backup | refined. NaN in ``by_position`` (N values): the node there has none."""
        self.kind = kind
        self.tree = tree
        self.by_position = by_position

    def __getitem__(self, node: Node) -> float:
        """The node's value."""
        value = float(self.by_position[self.tree.positions(np.array([node.node_id]))[0]])
        if np.isnan(value):
            raise MissingValue(node.node_id, self.kind)
        return value

    def __iter__(self) -> Iterator[Node]:
        """The nodes that have a value, by depth and id."""
        return (node_at(self.tree, int(position)) for position in np.flatnonzero(~np.isnan(self.by_position)))

    def __len__(self) -> int:
        """How many nodes have a value."""
        return int(np.count_nonzero(~np.isnan(self.by_position)))


@dataclass(frozen=True)
class TreeValues:
    """The values of every checkpoint of a tree (method C2), and the discount they were made with."""

    prior: NodeValues
    """V_phi, the critic's prediction; 0 at a good leaf."""
    backup: NodeValues
    """Mean of R + gamma^d * refined(child) over the direct branches: the critic's target. None at a leaf."""
    refined: NodeValues
    """Prior and backup weighed together; 0 at a good leaf, the prior at an open one."""
    gamma: float
    """Discount per step turn."""

    @property
    def tree(self) -> ExploredTree:
        """The tree they belong to."""
        return self.prior.tree


def discount(gamma: float, duration: IntArray) -> FloatArray:
    """gamma^d for each duration, of which many are equal."""
    longest = int(duration.max(initial=0))
    if longest > len(duration):
        return np.asarray(np.power(gamma, duration.astype(np.float64)))
    return np.asarray(np.power(gamma, np.arange(longest + 1.0))[duration])


def tree_values(tree: ExploredTree, reward: FloatArray, prior: FloatArray, rewards: RewardConfig) -> TreeValues:
    """The values of a tree, children before parents (method C2).

    ``reward`` and ``prior`` by position, the prior of good leaves 0; a NaN prior is a prediction that is not
    there: whatever depends on it is not there either.
    """
    backup, refined = np.full(len(tree), np.nan), prior.copy()
    factor = discount(rewards.gamma, tree.duration)
    kappa, n, inner = rewards.value_prior_strength, tree.children, tree.children > 0
    for above, below in zip(tree.levels[-2::-1], tree.levels[:0:-1], strict=True):
        returns = reward[below] + factor[below] * refined[below]
        total = np.bincount(tree.slot[below], returns, minlength=above.stop - above.start)
        np.divide(total, n[above], out=backup[above], where=inner[above])
        weighed = kappa * prior[above] + n[above] * backup[above]
        np.divide(weighed, kappa + n[above], out=refined[above], where=inner[above])
    return TreeValues(
        prior=NodeValues("prior", tree, prior),
        backup=NodeValues("backup", tree, backup),
        refined=NodeValues("refined", tree, refined),
        gamma=rewards.gamma,
    )
