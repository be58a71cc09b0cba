"""A Teacher that draws what happens from distributions: for planning a budget before paying for GPUs.

Every turn's outcome is drawn from a generator seeded with the edge's name and the turn, so it is the same
whatever the order and the timing of the calls. Nothing runs and nothing sleeps: ``seconds`` are virtual.
A state's name holds all there is to know of it.
"""

from __future__ import annotations

import math
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from coral_pipeline.settings import Direction, SimulationSettings, orient
from coral_pipeline.teacher.protocol import EdgeRequest, Fork, InfrastructureFault, Stopped, TeacherError, Turn

BEHAVIOUR_VERSION = 1
"""Raised whenever the same edge may be answered otherwise than before."""


class SimulatedState(BaseModel):
    """A session, as far as the simulation goes; its JSON is the state's name."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tokens: int
    """Context length."""
    best: float
    """Best raw score so far, the root's included."""


_Draw = Callable[[int, SimulatedState], tuple[Turn, SimulatedState]]


class SimulatedTeacher:
    """A Teacher (see ``teacher.protocol``) that only pretends."""

    name = "simulated"

    def __init__(self, settings: SimulationSettings, root_score: float, direction: Direction, seed: int) -> None:
        """``root_score``: raw, the scale of gains and losses."""
        self._settings = settings
        self._root_score = root_score
        self._direction = direction
        self._seed = seed
        self._faults: Counter[tuple[str, int]] = Counter()
        self._lock = threading.Lock()

    def describe(self) -> dict[str, Any]:
        """Everything that decides what the teacher answers on a given root."""
        settings = self._settings.model_dump(mode="json")
        return {"name": self.name, "behaviour_version": BEHAVIOUR_VERSION, "seed": self._seed, "settings": settings}

    def fork(self, edge: EdgeRequest, state: str | None, stop: threading.Event) -> AbstractContextManager[Fork]:
        """A fresh fork; see ``teacher.protocol``."""
        if state is None:
            start = SimulatedState(tokens=self._settings.first_context_tokens, best=self._root_score)
        else:
            try:
                start = SimulatedState.model_validate_json(state)
            except ValidationError as error:
                raise TeacherError(f"{state!r} is no state of the simulated teacher") from error
        return self._fork(edge, start, stop)

    def release(self, state: str | None) -> None:
        """Nothing is kept, so nothing is released."""

    @contextmanager
    def _fork(self, edge: EdgeRequest, start: SimulatedState, stop: threading.Event) -> Iterator[Fork]:
        yield _SimulatedFork(partial(self._draw, edge), start, stop)

    def _draw(self, edge: EdgeRequest, turn: int, state: SimulatedState) -> tuple[Turn, SimulatedState]:
        """The turn, and the session after it; or ``InfrastructureFault``."""
        settings, key = self._settings, (edge.name, turn)
        faults = self._faults[key]
        if random.Random(f"{self._seed}/{edge.name}/{turn}/{faults}").random() < settings.infrastructure_fault_chance:
            with self._lock:
                self._faults[key] += 1
            raise InfrastructureFault(f"simulated fault {faults + 1}")
        rng = random.Random(f"{self._seed}/{edge.name}/{turn}")
        score, status = self._score(rng, state.best)
        calls = max(1, round(_lognormal(rng, settings.median_tool_calls, settings.sigma_tool_calls)))
        messy = rng.random() < settings.messy_chance
        error_chance = settings.messy_tool_error_chance if messy else settings.tool_error_chance
        tokens = state.tokens + round(_lognormal(rng, settings.median_turn_tokens, settings.sigma_turn_tokens))
        best = score if status == "improved" and score is not None else state.best
        after = SimulatedState(tokens=tokens, best=best)
        result = Turn(
            score=score,
            status=status,
            step_turns=calls + 1,
            tool_calls=calls,
            failed_tool_calls=sum(rng.random() < error_chance for _ in range(calls)),
            knowledge_read=rng.random() < settings.knowledge_read_chance,
            knowledge_write=rng.random() < settings.knowledge_write_chance,
            context_tokens=tokens,
            seconds=_lognormal(rng, settings.median_seconds, settings.sigma_seconds) + faults * settings.fault_seconds,
            state=after.model_dump_json(),
        )
        return result, after

    def _score(self, rng: random.Random, best: float) -> tuple[float | None, str]:
        settings = self._settings
        if rng.random() < settings.no_score_chance:
            return None, "crashed"
        improves = rng.random() < settings.improve_chance
        mean = settings.mean_gain if improves else settings.mean_loss
        size = rng.expovariate(1.0) * mean * (abs(self._root_score) or 1.0)
        return best + orient(size if improves else -size, self._direction), "improved" if improves else "regressed"


class _SimulatedFork:
    """A Fork (see ``teacher.protocol``)."""

    def __init__(self, draw: _Draw, state: SimulatedState, stop: threading.Event) -> None:
        self._draw = draw
        self._state = state
        self._stop = stop

    def run_turn(self, turn: int) -> Turn:
        """Draw the turn; see ``teacher.protocol``."""
        if self._stop.is_set():
            raise Stopped
        result, self._state = self._draw(turn, self._state)
        return result


def _lognormal(rng: random.Random, median: float, sigma: float) -> float:
    return rng.lognormvariate(math.log(median), sigma)
