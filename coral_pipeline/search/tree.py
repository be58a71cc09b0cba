"""The tree of one root, as plain data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from coral_pipeline.settings import Direction, SearchSettings, Stage, orient
from coral_pipeline.teacher.protocol import EdgeRequest, Turn

FailureReason = Literal["no_score", "tool_errors"]
KeptBy = Literal["fallback", "exemption"]
LeafKind = Literal["token_limit", "depth_limit", "exhausted", "open"]
StopReason = Literal["leaf_target", "edge_budget", "exhausted"]

TURNS_PER_EDGE = 2
"""A logical edge is two Rollout Turns in one forked session (method T2)."""


@dataclass(frozen=True)
class RootNode:
    """The snapshot a tree grows from."""

    key: str
    """Snapshot folder name, unique in its Student run."""
    student_run: str | None
    """Folder name of the Student run; None: unknown."""
    score: float
    """Raw score of the snapshot's attempt, finite (method T1)."""
    fingerprint: str
    """Hash of the snapshot's metadata: a journal is continued only on the root it was begun on."""
    commit_hash: str | None = None
    stage: Stage | None = None
    """Stage that the selection gave the snapshot (method S12); None: not selected."""


@dataclass(slots=True)
class Node:
    """One node; the three counters grow with the tree, the rest stands."""

    node_id: int
    parent_id: int | None
    edge_id: int | None
    """Edge that made it; None for the root."""
    depth: int
    path: tuple[int, ...]
    """Expansion ordinals of the edges that lead here from the root."""
    score: float | None
    """Raw; None for a kept child without a score."""
    nearest_score: float
    """Its score, or where it has none that of the nearest scored ancestor (method T6)."""
    path_best_score: float
    """Best raw score from the root to here (method T10)."""
    max_token_total: int
    process: float
    """Mean soft score over the path's edges (method T10)."""
    kept_by: KeptBy | None = None
    commit_hash: str | None = None
    session_id: str | None = None
    state: str | None = None
    """The Teacher's name of the state to fork; None at the root."""
    expansions: int = 0
    """Forks taken, running ones included."""
    children: int = 0
    failed_expansions: int = 0
    """Forks that failed and made no child."""


@dataclass(frozen=True, slots=True)
class EdgeFigures:
    """What the turns of an edge add up to (method T2, T6–T8)."""

    best_score: float | None
    improved: bool
    step_turns: int
    tool_calls: int
    failed_tool_calls: int
    tool_error_rate: float
    max_token_total: int
    has_knowledge_action: bool
    regressed_rate: float
    seconds: float


@dataclass(frozen=True, slots=True)
class SoftParts:
    """The soft verifier score and its parts (method T9)."""

    outcome: float
    cleanliness: float
    knowledge: float
    soft: float


@dataclass(frozen=True, slots=True)
class Edge:
    """One logical edge that ended."""

    edge_id: int
    name: str
    """``EdgeRequest.name``: under this name its messages are kept."""
    parent_id: int
    child_id: int | None
    """None: failed, and not kept."""
    depth: int
    round: int
    expansion: int
    turns: tuple[Turn, ...]
    """One or two, without their messages."""
    figures: EdgeFigures
    failure_reason: FailureReason | None
    kept_by: KeptBy | None
    soft: SoftParts | None
    """None where the edge made no child."""


@dataclass(slots=True)
class Selection:
    """One active candidate in one round: its ranks, its Select score, the forks it was given (method T10–T12)."""

    round: int
    node_id: int
    score_rank: float
    best_rank: float
    process: float
    q: float
    t: float
    select: float
    expansions: int = 0
    """Forks it was given in the round; the rest stands once it is ranked."""


@dataclass(frozen=True, slots=True)
class Job:
    """One expansion to carry out."""

    edge: EdgeRequest
    parent_id: int
    depth: int
    slot: int
    """Place of its child among the children of the round: node ids are given in this order."""
    state: str | None
    """State of the parent node."""
    kept_if_failed: KeptBy | None
    """Why it makes a child even where it fails; None: it is pruned then (method T4)."""


Result = tuple[Job, tuple[Turn, ...]]
"""A job and the turns that were run for it."""


@dataclass
class Tree:
    """A growing tree. ``nodes[i]`` has id i, ``edges[i]`` has id i; the root is node 0."""

    root: RootNode
    direction: Direction
    settings: SearchSettings
    round: int = 0
    """Round that was begun last, from 1."""
    stop_reason: StopReason | None = None
    """None while the tree grows."""
    nodes: list[Node] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    selections: list[Selection] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Plant the root (method T1)."""
        self.nodes.append(
            Node(
                node_id=0,
                parent_id=None,
                edge_id=None,
                depth=0,
                path=(),
                score=self.root.score,
                nearest_score=self.root.score,
                path_best_score=self.root.score,
                max_token_total=0,
                process=self.settings.root_process,
                commit_hash=self.root.commit_hash,
            )
        )

    @property
    def valid_edges(self) -> int:
        """Edges that made a child, kept ones included (method T13)."""
        return len(self.nodes) - 1

    def better(self, first: float, second: float) -> float:
        """The better of two raw scores."""
        return max(first, second, key=lambda score: orient(score, self.direction))

    def path_edges(self, node: Node) -> Iterator[Edge]:
        """The edges from ``node`` up to the root."""
        while node.edge_id is not None:
            edge = self.edges[node.edge_id]
            yield edge
            node = self.nodes[edge.parent_id]
