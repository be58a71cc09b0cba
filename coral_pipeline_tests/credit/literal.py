"""Method C1–C4 written down once more, as literally as can be: recursion, nothing kept, ranks counted."""

from __future__ import annotations

import math
from collections.abc import Sequence

from coral_pipeline.settings import RewardConfig
from coral_pipeline_tests.trees import N


class Literal:
    """Rewards, values and advantages of a tree by node id; None where there is none."""

    def __init__(self, nodes: Sequence[N], rewards: RewardConfig, prior: float, sign: float = 1.0) -> None:
        self.nodes, self.config, self.v_phi, self.sign = nodes, rewards, prior, sign
        self.population = [sign * n.score for n in nodes if n.score is not None]

    def children(self, node: int) -> list[int]:
        return [child for child, n in enumerate(self.nodes) if n.parent == node]

    def good(self, node: int) -> bool:
        return not self.children(node) and self.nodes[node].leaf != "open"

    def rank(self, node: int) -> float:
        score, parent = self.nodes[node].score, self.nodes[node].parent
        if score is None:
            assert parent is not None
            return self.rank(parent)
        x = self.sign * score
        lower, equal = sum(v < x for v in self.population), sum(v == x for v in self.population)
        return (lower + 0.5 * equal) / len(self.population)

    def reward(self, child: int) -> float:
        parent = self.nodes[child].parent
        assert parent is not None
        gain = self.rank(child) - self.rank(parent)
        return self.config.gain_weight * gain + self.config.soft_weight * self.nodes[child].soft

    def prior(self, node: int) -> float:
        return 0.0 if self.good(node) else self.v_phi

    def backup(self, node: int) -> float | None:
        below = self.children(node)
        if not below:
            return None
        returns = [self.reward(c) + self.config.gamma ** self.nodes[c].steps * self.refined(c) for c in below]
        return math.fsum(returns) / len(below)

    def refined(self, node: int) -> float:
        backup, n, kappa = self.backup(node), len(self.children(node)), self.config.value_prior_strength
        return self.prior(node) if backup is None else (kappa * self.prior(node) + n * backup) / (kappa + n)

    def direct_branch_td(self, child: int) -> float:
        parent = self.nodes[child].parent
        assert parent is not None
        after = self.reward(child) + self.config.gamma ** self.nodes[child].steps * self.refined(child)
        return after - self.refined(parent)

    def path_return(self, leaf: int) -> float:
        """Discounted sum of the rewards along the path from the root."""
        edges: list[int] = []
        at = leaf
        while (parent := self.nodes[at].parent) is not None:
            edges.insert(0, at)
            at = parent
        steps = [sum(self.nodes[e].steps for e in edges[:k]) for k in range(len(edges))]
        return sum(self.config.gamma**before * self.reward(e) for before, e in zip(steps, edges, strict=True))

    def good_leaves(self, node: int) -> list[int]:
        return (
            [node] if self.good(node) else [leaf for child in self.children(node) for leaf in self.good_leaves(child)]
        )

    def grpo(self, child: int) -> float | None:
        returns = [self.path_return(leaf) for leaf in self.good_leaves(0)]
        below = [self.path_return(leaf) for leaf in self.good_leaves(child)]
        if not below:
            return None
        mean = math.fsum(returns) / len(returns)
        std = math.sqrt(math.fsum((r - mean) ** 2 for r in returns) / len(returns))
        return (math.fsum(below) / len(below) - mean) / (std + 1e-6)
