"""A Teacher that answers from a file: for tests, for trying out settings, for replaying other searches.

JSON Lines, one object per edge::

    {"path": [0], "expansion": 1, "turns": [{"score": 0.5, "tool_calls": 12, "context_tokens": 21000}, {…}]}

``path`` lists, from the root down, the ``expansion`` of each edge that made the nodes on the way; ``expansion``
counts every fork taken from a node, failed ones and second tries included. Of a turn's fields, those of
``protocol.Turn``, none is required.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, ValidationError, model_validator

from coral_pipeline.errors import BadInput
from coral_pipeline.teacher.protocol import Count, EdgeRequest, Fork, TeacherError, Turn

FORMAT = 1
_MEND = 'write one JSON object per line, like {"path": [0], "expansion": 1, "turns": [{"score": 0.5}, {"score": null}]}'


class ScriptedTurn(Turn):
    """A turn in which whatever the script leaves out is none: no score, no calls, no tokens."""

    step_turns: Count = 1
    tool_calls: Count = 0
    failed_tool_calls: Count = 0
    knowledge_read: bool = False
    knowledge_write: bool = False
    context_tokens: Count = 0
    seconds: float = Field(default=0.0, ge=0, allow_inf_nan=False)

    @model_validator(mode="after")
    def _consistent(self) -> ScriptedTurn:
        if self.failed_tool_calls > self.tool_calls:
            raise ValueError("failed_tool_calls is more than tool_calls")
        return self


class _ScriptedEdge(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    path: tuple[NonNegativeInt, ...]
    expansion: NonNegativeInt
    turns: tuple[ScriptedTurn, ...] = Field(min_length=1, max_length=2)


class ScriptedTeacher:
    """Answers every edge from its line of the script."""

    name = "scripted"

    def __init__(self, script: Path) -> None:
        """Read the script. Raises ``BadInput`` naming the line that cannot be used."""
        self._script = script
        self._turns = dict(_read(script))

    def describe(self) -> dict[str, Any]:
        """Only the format: a script to which the missing edges were added still continues its tree."""
        return {"format": FORMAT}

    @contextmanager
    def fork(self, edge: EdgeRequest, state: str | None, stop: threading.Event) -> Iterator[Fork]:
        """The edge's line; raises ``TeacherError`` where the script has none."""
        turns = self._turns.get((edge.path, edge.expansion))
        if turns is None:
            raise TeacherError(f"{self._script} has no line for {_place(edge)}; add one and resume")
        yield _ScriptedFork(f"{self._script}: {_place(edge)}", turns)

    def release(self, state: str | None) -> None:
        """There are no states."""


class _ScriptedFork:
    def __init__(self, place: str, turns: tuple[ScriptedTurn, ...]) -> None:
        self._place = place
        self._turns = turns

    def run_turn(self, turn: int) -> Turn:
        if turn > len(self._turns):
            raise TeacherError(f"{self._place} has no turn {turn}; add it and resume")
        return self._turns[turn - 1]


def _place(edge: EdgeRequest) -> str:
    return f'"path": {list(edge.path)}, "expansion": {edge.expansion}'


def _read(script: Path) -> Iterator[tuple[tuple[tuple[int, ...], int], tuple[ScriptedTurn, ...]]]:
    lines: dict[tuple[tuple[int, ...], int], int] = {}
    for number, text in enumerate(_lines(script), start=1):
        if not text.strip():
            continue
        line = f"{script}, line {number}"
        try:
            edge = _ScriptedEdge.model_validate(json.loads(text))
        except ValidationError as error:
            raise BadInput(line, _first_problem(error), _MEND) from error
        except (ValueError, RecursionError) as error:
            raise BadInput(line, f"is not JSON ({error})", _MEND) from error
        place = (edge.path, edge.expansion)
        if place in lines:
            raise BadInput(line, f"answers the same edge as line {lines[place]}", "keep one of the two")
        lines[place] = number
        yield place, edge.turns


def _lines(script: Path) -> list[str]:
    try:
        return script.read_text(encoding="utf-8").split("\n")
    except OSError as error:
        raise BadInput(script, f"cannot be read ({error.strerror})", "give a script with --script FILE") from error
    except UnicodeDecodeError as error:
        raise BadInput(script, f"is not UTF-8 (byte {error.start})", _MEND) from error


def _first_problem(error: ValidationError) -> str:
    """The first thing wrong with a line, and where in the line."""
    problem = error.errors()[0]
    where = ".".join(map(str, problem["loc"]))
    return f"{where}: {problem['msg']}" if where else problem["msg"]
