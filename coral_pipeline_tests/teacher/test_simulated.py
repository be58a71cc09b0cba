"""The simulated teacher draws what its settings say, the same whatever the order of the calls."""

from __future__ import annotations

import json
import math
import statistics
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from coral_pipeline.settings import Direction, SimulationSettings
from coral_pipeline.teacher.protocol import EdgeRequest, InfrastructureFault, Stopped, TeacherError, Turn
from coral_pipeline.teacher.simulated import SimulatedTeacher

EDGES = [EdgeRequest(root="r", path=path, expansion=n) for path in ((), (0,), (0, 1)) for n in range(3)]
MANY = [EdgeRequest(root="r", path=(), expansion=n) for n in range(2000)]
STATE = '{"tokens":20000,"best":2.0}'


def teacher(
    direction: Direction = "maximize", seed: int = 0, root_score: float = 1.0, **fields: Any
) -> SimulatedTeacher:
    return SimulatedTeacher(SimulationSettings(**fields), root_score, direction, seed)


def first_turns(of: SimulatedTeacher, edges: Sequence[EdgeRequest], state: str | None = None) -> list[Turn]:
    turns = []
    for edge in edges:
        with of.fork(edge, state, threading.Event()) as fork:
            turns.append(fork.run_turn(1))
    return turns


def test_answers_do_not_depend_on_the_order_of_the_calls() -> None:
    forwards = first_turns(teacher(), EDGES)
    backwards = first_turns(teacher(), EDGES[::-1])[::-1]
    assert forwards == backwards
    assert len({turn.seconds for turn in forwards}) == len(EDGES), "each edge is drawn on its own"
    assert first_turns(teacher(seed=1), EDGES) != forwards


def test_a_session_goes_on_from_its_state_in_any_process() -> None:
    edge = EDGES[0]
    with teacher().fork(edge, None, threading.Event()) as fork:
        first, second = fork.run_turn(1), fork.run_turn(2)
    with teacher().fork(edge, first.state, threading.Event()) as fork:
        assert fork.run_turn(2) == second
    assert second.context_tokens > first.context_tokens > SimulationSettings().first_context_tokens
    teacher().release(first.state or "")


def test_chances_are_kept() -> None:
    """2000 draws each; the bounds are five standard deviations wide."""
    turns = first_turns(
        teacher(no_score_chance=0.25, improve_chance=0.4, knowledge_read_chance=0.7, knowledge_write_chance=0.2), MANY
    )

    def share(values: Sequence[bool], expected: float) -> None:
        deviation = math.sqrt(expected * (1 - expected) / len(values))
        assert abs(sum(values) / len(values) - expected) < 5 * deviation

    scored = [turn for turn in turns if turn.score is not None]
    share([turn.score is None for turn in turns], 0.25)
    share([turn.status == "improved" for turn in scored], 0.4)
    share([turn.knowledge_read for turn in turns], 0.7)
    share([turn.knowledge_write for turn in turns], 0.2)


def test_gains_and_losses_are_shares_of_the_root_score_in_the_right_direction() -> None:
    """From a session whose best is 2, on a root of score -10: a mean gain of 0.1 is 1.0, a mean loss of 0.3 is 3.0."""
    for direction, sign in (("maximize", 1), ("minimize", -1)):
        of = teacher("maximize" if sign == 1 else "minimize", root_score=-10.0, mean_gain=0.1, mean_loss=0.3)
        turns = [turn for turn in first_turns(of, MANY, STATE) if turn.score is not None]
        changes = [(sign * ((turn.score or 0.0) - 2.0), turn.status) for turn in turns]
        gains = [change for change, status in changes if status == "improved"]
        losses = [-change for change, status in changes if status == "regressed"]
        assert min(gains) > 0 and min(losses) > 0, direction
        assert statistics.fmean(gains) == pytest.approx(1.0, rel=0.25)
        assert statistics.fmean(losses) == pytest.approx(3.0, rel=0.25)


def test_medians_are_kept_and_without_spread_nothing_varies() -> None:
    turns = first_turns(teacher(median_seconds=100, median_turn_tokens=5000, median_tool_calls=20), MANY, STATE)
    assert statistics.median(turn.seconds for turn in turns) == pytest.approx(100, rel=0.1)
    assert statistics.median(turn.context_tokens - 20_000 for turn in turns) == pytest.approx(5000, rel=0.1)
    assert statistics.median(turn.tool_calls for turn in turns) == pytest.approx(20, rel=0.1)
    still = first_turns(
        teacher(sigma_seconds=0, sigma_turn_tokens=0, sigma_tool_calls=0, median_seconds=100, median_turn_tokens=5000),
        EDGES,
        STATE,
    )
    assert {(round(turn.seconds, 6), turn.context_tokens, turn.tool_calls) for turn in still} == {(100, 25_000, 14)}


def test_messy_turns_fail_more_of_their_tool_calls() -> None:
    clean = first_turns(teacher(messy_chance=0, tool_error_chance=0.1), MANY)
    messy = first_turns(teacher(messy_chance=1, messy_tool_error_chance=0.6), MANY)
    for turns, expected in ((clean, 0.1), (messy, 0.6)):
        rate = sum(turn.failed_tool_calls for turn in turns) / sum(turn.tool_calls for turn in turns)
        assert rate == pytest.approx(expected, rel=0.1)


def test_infrastructure_faults_take_time_and_change_no_answer() -> None:
    undisturbed = first_turns(teacher(), EDGES)
    faulty = teacher(infrastructure_fault_chance=0.6, fault_seconds=50)
    faults = []
    for edge, expected in zip(EDGES, undisturbed, strict=True):
        with faulty.fork(edge, None, threading.Event()) as fork:
            count = 0
            while True:
                try:
                    turn = fork.run_turn(1)
                    break
                except InfrastructureFault:
                    count += 1
        assert turn.model_copy(update={"seconds": expected.seconds}) == expected
        assert turn.seconds == pytest.approx(expected.seconds + 50 * count)
        faults.append(count)
    assert max(faults) > 1 and min(faults) == 0


def test_it_stops_when_told() -> None:
    stop = threading.Event()
    with teacher().fork(EDGES[0], None, stop) as fork:
        stop.set()
        with pytest.raises(Stopped):
            fork.run_turn(1)


def test_a_state_of_another_teacher_is_refused() -> None:
    with pytest.raises(TeacherError, match="0-1"):
        teacher().fork(EDGES[0], "0-1", threading.Event())


def test_it_describes_all_that_decides_its_answers() -> None:
    described = teacher().describe()
    json.dumps(described)
    assert teacher(seed=1).describe() != described
    assert teacher(mean_gain=0.5).describe() != described
