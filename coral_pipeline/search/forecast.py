"""What exploring would cost: trees of the simulated teacher, scheduled in virtual time.

The trees are grown by the real search. A round takes as long as its edges take on ``parallel_width`` slots,
dispatched in order; the next round begins when all of them have ended (method T12).
"""

from __future__ import annotations

import heapq
import math
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from coral_pipeline.scores import mean
from coral_pipeline.search.explorer import Explorer
from coral_pipeline.search.rules import good_leaves
from coral_pipeline.search.tree import Edge, FailureReason, RootNode, StopReason, Tree
from coral_pipeline.settings import Direction, RetrySettings, SearchSettings, SimulationSettings
from coral_pipeline.teacher.protocol import EdgeRequest, Turn
from coral_pipeline.teacher.simulated import SimulatedTeacher


@dataclass(frozen=True)
class TreeCost:
    """One simulated tree; tokens and seconds are of all its edges, failed ones included."""

    valid_edges: int
    failed_edges: int
    """Edges that made no child."""
    improved_edges: int
    depth: int
    """Of its deepest node."""
    good_leaves: int
    stop_reason: StopReason
    added_tokens: int
    """Tokens that turns added to contexts: what a server computes whose prefix cache never misses."""
    sampled_tokens: int
    """Those of them that the model samples."""
    read_tokens: int
    """Prompt tokens of all model calls together: what a server computes without a prefix cache, sampling apart."""
    busy_seconds: float
    """Seconds of all turns, summed."""
    wall_seconds: float
    """Seconds from beginning to end."""


def forecast(
    search: SearchSettings,
    simulation: SimulationSettings,
    trees: int,
    seed: int,
    root_score: float = 1.0,
    direction: Direction = "maximize",
) -> list[TreeCost]:
    """Grow so many trees, each with a seed of its own, beginning with ``seed``."""
    costs = []
    for number in range(seed, seed + trees):
        root = RootNode(key=f"simulated-{number}", student_run=None, score=root_score, fingerprint="")
        tree = Tree(root, direction, search)
        teacher = SimulatedTeacher(simulation, root_score, direction, number)
        # Pauses after faults are in the turns' seconds already; no number of faults ends the search.
        patient = RetrySettings(attempts=100, first_delay_seconds=0)
        Explorer(tree, teacher, _Forgetful(), patient, threading.Event()).run()
        costs.append(tree_cost(tree, simulation))
    return costs


class _Forgetful:
    """The memory of a search that is never resumed."""

    def turns(self, edge: EdgeRequest) -> tuple[Turn, ...]:
        return ()

    def record_turn(self, edge: EdgeRequest, number: int, turn: Turn) -> Turn:
        return turn

    def record_edge(self, edge: EdgeRequest, turns: int, failure: FailureReason | None) -> None:
        pass


def tree_cost(tree: Tree, simulation: SimulationSettings) -> TreeCost:
    """What a finished tree of the simulated teacher took."""
    assert tree.stop_reason is not None
    turns = [
        (turn, before)
        for edge in tree.edges
        for turn, before in zip(edge.turns, _contexts_before(tree, edge, simulation), strict=True)
    ]
    added = sum(turn.context_tokens - before for turn, before in turns)
    return TreeCost(
        valid_edges=tree.valid_edges,
        failed_edges=len(tree.edges) - tree.valid_edges,
        improved_edges=sum(edge.figures.improved for edge in tree.edges),
        depth=max(node.depth for node in tree.nodes),
        good_leaves=good_leaves(tree),
        stop_reason=tree.stop_reason,
        added_tokens=simulation.first_context_tokens + added,  # every session begins with the same prompt
        sampled_tokens=round(simulation.sampled_share * added),
        read_tokens=sum(turn.step_turns * (turn.context_tokens + before) // 2 for turn, before in turns),
        busy_seconds=math.fsum(turn.seconds for turn, _ in turns),
        wall_seconds=wall_seconds(tree.edges, tree.settings),
    )


def _contexts_before(tree: Tree, edge: Edge, simulation: SimulationSettings) -> list[int]:
    """Context tokens at the beginning of each of the edge's turns."""
    parent = tree.nodes[edge.parent_id]
    first = parent.max_token_total if parent.depth else simulation.first_context_tokens
    return [first, *(turn.context_tokens for turn in edge.turns[:-1])]


def wall_seconds(edges: Sequence[Edge], settings: SearchSettings) -> float:
    """Seconds the edges take, round after round; second tries of directions wait for all the first ones (T4)."""
    first_round = [edge for edge in edges if edge.round == 1]
    batches: list[list[Edge]] = []
    size = settings.root_children
    while first_round:
        batch, first_round = first_round[:size], first_round[size:]
        batches.append(batch)
        size = sum(edge.child_id is None for edge in batch)
    later = sorted((edge for edge in edges if edge.round > 1), key=lambda edge: edge.round)
    batches += [list(group) for _, group in groupby(later, key=lambda edge: edge.round)]
    return math.fsum(makespan((edge.figures.seconds for edge in batch), settings.width) for batch in batches)


def makespan(seconds: Iterable[float], slots: int) -> float:
    """When all jobs have ended that start in this order, each as soon as one of the slots is free."""
    free = [0.0] * slots
    for duration in seconds:
        heapq.heapreplace(free, free[0] + duration)
    return max(free)


@dataclass(frozen=True)
class Forecast:
    """Means per tree at one width, and what all roots take."""

    width: int
    valid_edges: float
    failed_edges: float
    improved_edges: float
    depth: float
    good_leaves: float
    stop_reasons: Counter[str]
    """How many of the trees ended so."""
    added_tokens: float
    sampled_tokens: float
    read_tokens: float
    busy_seconds: float
    wall_seconds: float

    @property
    def busy_share(self) -> float:
        """Share of the slots' time in which they work; the rest they wait for the slowest edge of the round."""
        return self.busy_seconds / (self.width * self.wall_seconds) if self.wall_seconds else 0.0


def summarise(width: int, costs: Sequence[TreeCost]) -> Forecast:
    """Means over trees (one or more) grown at this width."""
    return Forecast(
        width=width,
        valid_edges=mean([cost.valid_edges for cost in costs]),
        failed_edges=mean([cost.failed_edges for cost in costs]),
        improved_edges=mean([cost.improved_edges for cost in costs]),
        depth=mean([cost.depth for cost in costs]),
        good_leaves=mean([cost.good_leaves for cost in costs]),
        stop_reasons=Counter(cost.stop_reason for cost in costs),
        added_tokens=mean([cost.added_tokens for cost in costs]),
        sampled_tokens=mean([cost.sampled_tokens for cost in costs]),
        read_tokens=mean([cost.read_tokens for cost in costs]),
        busy_seconds=mean([cost.busy_seconds for cost in costs]),
        wall_seconds=mean([cost.wall_seconds for cost in costs]),
    )


def forecast_widths(
    widths: Iterable[int], search: SearchSettings, simulation: SimulationSettings, trees: int, seed: int
) -> Iterable[Forecast]:
    """One forecast per width, one after the other."""
    for width in widths:
        at_width = search.at_width(width)
        yield summarise(width, forecast(at_width, simulation, trees, seed))
