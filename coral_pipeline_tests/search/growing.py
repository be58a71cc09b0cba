"""Growing trees in tests: a Teacher that answers from a dict, and the tables of the tree as plain rows."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from coral_pipeline.search import output
from coral_pipeline.search.explorer import Explorer
from coral_pipeline.search.tree import FailureReason, RootNode, StopReason, Tree
from coral_pipeline.settings import Direction, RetrySettings, SearchSettings
from coral_pipeline.teacher.protocol import EdgeRequest, Fork, Turn

ROOT = RootNode("eval-000003-agent-1-0123456789ab", "run-a", 1.0, "fingerprint", "0123456789abcdef", "middle")
IMPATIENT = RetrySettings(attempts=2, first_delay_seconds=0)

Answer = Callable[[EdgeRequest, int], Turn]


def turn(
    score: float | None = 1.0, *, calls: int = 10, failed: int = 0, tokens: int = 1000, knows: bool = False, **more: Any
) -> Turn:
    """A turn as a test states it: by default it neither gains nor loses on a root of score 1."""
    fields: dict[str, Any] = {
        "score": score,
        "step_turns": 3,
        "tool_calls": calls,
        "failed_tool_calls": failed,
        "knowledge_read": knows,
        "knowledge_write": False,
        "context_tokens": tokens,
        "seconds": 2.0,
    }
    return Turn(**(fields | more))


@dataclass
class AnswerTeacher:
    """Answers by a function of edge and turn; remembers what it was asked. Every turn leaves a state of its own."""

    answer: Answer
    asked: list[tuple[str, int]] = field(default_factory=list)
    forked: dict[str, str | None] = field(default_factory=dict)
    """State each edge was forked from last."""
    released: list[str | None] = field(default_factory=list)
    name: str = "answers"
    described: dict[str, Any] = field(default_factory=lambda: {"kind": "test"})
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def describe(self) -> dict[str, Any]:
        return self.described

    @contextmanager
    def fork(self, edge: EdgeRequest, state: str | None, stop: threading.Event) -> Iterator[Fork]:
        with self._lock:
            self.forked[edge.name] = state
        yield _AnswerFork(self, edge)

    def release(self, state: str | None) -> None:
        self.released.append(state)

    def run(self, edge: EdgeRequest, number: int) -> Turn:
        with self._lock:
            self.asked.append((edge.name, number))
        answer = self.answer(edge, number)
        return answer.model_copy(update={"state": f"{edge.name}/{number}"})


@dataclass
class _AnswerFork:
    teacher: AnswerTeacher
    edge: EdgeRequest

    def run_turn(self, turn: int) -> Turn:
        return self.teacher.run(self.edge, turn)


def answers(script: Mapping[str, Sequence[Turn]] | None = None, default: Turn | None = None) -> Answer:
    """The answers of ``script``, by edge name; every other turn is ``default``."""
    otherwise = default or turn()

    def answer(edge: EdgeRequest, number: int) -> Turn:
        turns = (script or {}).get(edge.name)
        return otherwise if turns is None else turns[number - 1]

    return answer


class Forgetful:
    """Stands in for the journal where nothing is to be kept."""

    def turns(self, edge: EdgeRequest) -> tuple[Turn, ...]:
        return ()

    def record_turn(self, edge: EdgeRequest, number: int, turn: Turn) -> Turn:
        return turn

    def record_edge(self, edge: EdgeRequest, turns: int, failure: FailureReason | None) -> None:
        pass


@dataclass
class Grown:
    """A finished tree as its tables tell it."""

    teacher: AnswerTeacher
    stop_reason: StopReason
    nodes: list[dict[str, Any]]
    edges: list[dict[str, Any]]
    turns: list[dict[str, Any]]
    rounds: list[dict[str, Any]]

    @property
    def valid_edges(self) -> int:
        return sum(e["child_id"] is not None for e in self.edges)

    def edge(self, parent: int, expansion: int) -> dict[str, Any]:
        """The edge that was this fork of the node."""
        (row,) = (e for e in self.edges if (e["parent_id"], e["expansion"]) == (parent, expansion))
        return row

    def selected(self, round: int) -> list[tuple[int, int]]:
        """(node, expansions given) of a round's candidates, best first."""
        return [(r["node_id"], r["expansions"]) for r in self.rounds if r["round"] == round]


def grow(
    script: Mapping[str, Sequence[Turn]] | Answer | None = None,
    *,
    default: Turn | None = None,
    root: RootNode = ROOT,
    direction: Direction = "maximize",
    teacher: AnswerTeacher | None = None,
    **settings: Any,
) -> Grown:
    """Grow a tree in memory. ``settings`` are those of the search."""
    teacher = teacher or AnswerTeacher(script if callable(script) else answers(script, default))
    tree = Tree(root, direction, SearchSettings(**settings))
    reason = Explorer(tree, teacher, Forgetful(), IMPATIENT, threading.Event()).run()
    rows = (output.node_rows, output.edge_rows, output.turn_rows, output.round_rows)
    return Grown(teacher, reason, *(list(table(tree)) for table in rows))


ROUND_ONE_ONLY = {"max_logical_edges": 3}
"""Settings under which a tree ends after round 1."""
