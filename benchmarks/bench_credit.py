"""Values and advantages of one large tree, against a plain recursion over its nodes that follows method C1–C4.

The tree has ``--nodes`` nodes (20,000) with the method's branching (three children at the root, two below, so that
it is about 40 deep), ties, nodes without a score, and open leaves. Both sides start from the tree in memory
and end with every reward, prior, backup, refined value and advantage, once per estimator:

  - the recursion visits each node once, as C2 puts it: children before parents. It is given all a plain program
    would have: linked nodes, a sorted population and bisection for the ranks, no value computed twice.
  - ours is ``prepare``, checks included, until the arrays of its batch are there.

Shown besides, without a target for its speed: a chain, the shape that suits columns least; and with ``--literal`` the
recursion with ranks counted as the formula is written, which takes a minute.

Targets: at least 20 times faster, no number further off than 1e-12. CPU time, the fastest of several rounds each,
in turn.

    python benchmarks/bench_credit.py [--nodes 20000] [--rounds 10] [--literal]
"""

from __future__ import annotations

import argparse
import gc
import math
import random
import sys
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from coral_pipeline.credit import Batch, Constant, DirectBranchTd, Estimator, Grpo, RewardConfig, prepare
from coral_pipeline.explored import GOOD_LEAVES, ExploredTree

MIN_SPEEDUP = 20.0
MAX_DIFFERENCE = 1e-12
REWARDS = RewardConfig(gamma=0.99, soft_weight=0.1)
PRIOR = 0.3
STD_OFFSET = 1e-6


@dataclass
class Node:
    """A node of the plain program, with the edge that made it."""

    score: float | None
    parent: Node | None = None
    children: list[Node] = field(default_factory=list)
    good_leaf: bool = False
    duration: int = 0
    soft: float = 0.0
    rank: float = 0.0
    reward: float = 0.0
    prior: float | None = None
    backup: float | None = None
    refined: float = 0.0
    returns: list[float] = field(default_factory=list)
    """Returns of the good leaves at and below it."""
    td: float = 0.0
    grpo: float | None = None


def grow(count: int, chain: bool, seed: int = 7) -> list[Node]:
    """A tree of ``count`` nodes in the order of their ids."""
    rng = random.Random(seed)
    nodes = [Node(0.5)]
    growing = [nodes[0]]
    while len(nodes) < count:
        place = len(growing) - 1 if chain else rng.randrange(len(growing))
        parent = growing[place]
        score = None if rng.random() < 0.03 else round(rng.random(), 3)
        node = Node(score, parent, duration=rng.randrange(1, 40), soft=rng.random())
        parent.children.append(node)
        nodes.append(node)
        growing.append(node)
        if len(parent.children) == (2 if parent.parent else 3):
            growing[place] = growing[-1]
            growing.pop()
    for node in nodes:
        node.good_leaf = not node.children and rng.random() < 0.8
    return nodes


def columns(nodes: list[Node]) -> ExploredTree:
    """The same tree as ``ExploredTree.read`` gives it."""
    ids = {id(node): index for index, node in enumerate(nodes)}
    depth = [0] * len(nodes)
    for index, node in enumerate(nodes[1:], start=1):
        depth[index] = depth[ids[id(node.parent)]] + 1
    order = sorted(range(len(nodes)), key=lambda index: (depth[index], index))
    position = {index: place for place, index in enumerate(order)}
    rows = [nodes[index] for index in order]
    quality = np.array([math.nan, *(node.soft for node in rows[1:])])
    return ExploredTree(
        folder=Path("memory"),
        name="benchmark",
        direction="maximize",
        node_id=np.array(order),
        parent=np.array([-1, *(position[ids[id(node.parent)]] for node in rows[1:])]),
        depth=np.array(depth)[order],
        score=np.array([math.nan if node.score is None else node.score for node in rows]),
        good_leaf=np.array([node.good_leaf for node in rows]),
        leaf_kind=tuple(GOOD_LEAVES[0] if node.good_leaf else None if node.children else "open" for node in rows),
        edge_id=np.array(order) - 1,
        duration=np.array([node.duration for node in rows]),
        cleanliness=quality,
        knowledge=quality,
        soft=quality,
    )


def bisected(population: list[float]) -> Callable[[float], float]:
    ordered = sorted(population)

    def rank(x: float) -> float:
        below = bisect_left(ordered, x)
        return (below + 0.5 * (bisect_right(ordered, x) - below)) / len(ordered)

    return rank


def counted(population: list[float]) -> Callable[[float], float]:
    def rank(x: float) -> float:
        return (sum(v < x for v in population) + 0.5 * sum(v == x for v in population)) / len(population)

    return rank


def recursion(root: Node, edges: list[Node], ranks: Callable[[list[float]], Callable[[float], float]]) -> None:
    """C1 and C2 for every node."""
    population = [node.score for node in (root, *edges) if node.score is not None]
    rank = ranks(population)

    def down(node: Node) -> None:
        parent = node.parent
        node.rank = rank(node.score) if node.score is not None else parent.rank if parent else math.nan
        if parent:
            node.reward = REWARDS.gain_weight * (node.rank - parent.rank) + REWARDS.soft_weight * node.soft
        for child in node.children:
            down(child)

    def up(node: Node) -> float:
        if node.good_leaf:
            node.prior, node.refined = 0.0, 0.0
            return 0.0
        node.prior = node.refined = PRIOR
        if node.children:
            n = len(node.children)
            node.backup = sum([c.reward + REWARDS.gamma**c.duration * up(c) for c in node.children]) / n
            kappa = REWARDS.value_prior_strength
            node.refined = (kappa * node.prior + n * node.backup) / (kappa + n)
        return node.refined

    down(root)
    up(root)


def plain_td(edges: list[Node]) -> None:
    """C3 for every edge."""
    for node in edges:
        assert node.parent
        node.td = node.reward + REWARDS.gamma**node.duration * node.refined - node.parent.refined


def plain_grpo(root: Node, edges: list[Node]) -> None:
    """C4 for every edge."""

    def returns(node: Node, total: float, factor: float) -> list[float]:
        if node.good_leaf:
            node.returns = [total]
        else:
            node.returns = []
            for child in node.children:
                below = returns(child, total + factor * child.reward, factor * REWARDS.gamma**child.duration)
                node.returns.extend(below)
        return node.returns

    population = returns(root, 0.0, 1.0)
    mean = math.fsum(population) / len(population)
    std = math.sqrt(math.fsum((r - mean) ** 2 for r in population) / len(population))
    for node in edges:
        below = node.returns
        node.grpo = ((math.fsum(below) / len(below) - mean) / (std + STD_OFFSET) if std else 0.0) if below else None


def seconds(run: Callable[[], object]) -> float:
    """CPU seconds of one run: other processes do not count."""
    gc.collect()
    start = time.process_time()
    run()
    return time.process_time() - start


def difference(nodes: list[Node], td: Batch, grpo: Batch) -> float:
    """The largest difference between the two sides; infinite where one has a number and the other has none."""
    order = np.argsort(td.tree.node_id)
    pairs = [
        (td.edges.reward, [node.reward for node in nodes[1:]]),
        (td.values.prior.by_position[order], [node.prior for node in nodes]),
        (td.values.backup.by_position[order], [node.backup for node in nodes]),
        (td.values.refined.by_position[order], [node.refined for node in nodes]),
        (td.advantages.values, [node.td for node in nodes[1:]]),
        (grpo.advantages.values, [node.grpo for node in nodes[1:]]),
    ]
    worst = 0.0
    for ours, plain in pairs:
        theirs = np.array(plain, dtype=np.float64)
        if (np.isnan(ours) != np.isnan(theirs)).any():
            return math.inf
        worst = max(worst, float(np.nanmax(np.abs(ours - theirs))))
    return worst


def measure(nodes: list[Node], rounds: int) -> tuple[dict[str, float], float, Callable[[], None]]:
    """Speed-up per estimator, the largest difference, and the recursion with counted ranks."""
    tree, (root, *edges) = columns(nodes), nodes
    batches: dict[str, Batch] = {}

    def ours(estimator: Estimator) -> Callable[[], None]:
        def run() -> None:
            for cached in ("oriented_score", "children", "levels", "edge_order", "slot", "id_order"):
                tree.__dict__.pop(cached, None)  # every round computes all of it
            batches[estimator.name] = prepare(tree, estimator, REWARDS, Constant(PRIOR))

        return run

    def plain(advantages: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            recursion(root, edges, bisected)
            advantages()

        return run

    speedups = {}
    sides = {
        "DirectBranchTd": (DirectBranchTd(), lambda: plain_td(edges)),
        "Grpo": (Grpo(), lambda: plain_grpo(root, edges)),
    }
    for name, (estimator, advantages) in sides.items():
        pairs = [(seconds(plain(advantages)), seconds(ours(estimator))) for _ in range(rounds)]
        slow, fast = (min(column) for column in zip(*pairs, strict=True))
        speedups[name] = slow / fast
        print(f"  {name:<15} recursion {1e3 * slow:8.2f} ms   ours {1e3 * fast:6.2f} ms   {slow / fast:6.1f} times")
    return (
        speedups,
        difference(nodes, batches["direct_branch_td"], batches["grpo"]),
        lambda: recursion(root, edges, counted),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--literal", action="store_true")
    args = parser.parse_args()
    sys.setrecursionlimit(4 * args.nodes)

    print(f"{args.nodes} nodes, the method's branching")
    speedups, worst, literal = measure(grow(args.nodes, chain=False), args.rounds)
    print(f"  largest difference {worst:.1e}")
    if args.literal:
        print(f"  recursion with ranks counted as written, values only: {seconds(literal):.1f} s")
    print(f"{args.nodes} nodes in chains")
    _, chain_worst, _ = measure(grow(args.nodes, chain=True), args.rounds)
    print(f"  largest difference {chain_worst:.1e}")
    slowest = min(speedups.values())
    if slowest < MIN_SPEEDUP or max(worst, chain_worst) > MAX_DIFFERENCE:
        sys.exit(f"missed: {slowest:.1f} times (at least {MIN_SPEEDUP:g}), {max(worst, chain_worst):.1e} off")


if __name__ == "__main__":
    main()
