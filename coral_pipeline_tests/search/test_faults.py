"""Infrastructure faults and stopping (method T5): what is tried again, when the root halts, what is kept."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from coral_pipeline.search.explorer import Explorer, SearchHalted
from coral_pipeline.search.tree import FailureReason, Tree
from coral_pipeline.settings import RetrySettings, SearchSettings
from coral_pipeline.teacher.protocol import EdgeRequest, Fork, InfrastructureFault, Stopped, TeacherError, Turn
from coral_pipeline_tests.search.growing import ROOT, Answer, AnswerTeacher, Forgetful, answers, turn

RETRY = RetrySettings(attempts=3, first_delay_seconds=1.0, factor=3.0)


@dataclass
class Remembering(Forgetful):
    """A journal in memory."""

    kept: dict[str, list[Turn]] = field(default_factory=dict)
    ended: dict[str, tuple[int, FailureReason | None]] = field(default_factory=dict)

    def turns(self, edge: EdgeRequest) -> tuple[Turn, ...]:
        return tuple(self.kept.get(edge.name, ()))

    def record_turn(self, edge: EdgeRequest, number: int, turn: Turn) -> Turn:
        self.kept.setdefault(edge.name, []).append(turn)
        return turn

    def record_edge(self, edge: EdgeRequest, turns: int, failure: FailureReason | None) -> None:
        self.ended[edge.name] = (turns, failure)


@dataclass
class FaultyTeacher(AnswerTeacher):
    """Raises, for an edge's turn, the errors that are left for it; turn 0 is the fork itself, 3 leaving it."""

    errors: dict[tuple[str, int], list[Exception]] = field(default_factory=dict)
    forks: list[tuple[str, str | None]] = field(default_factory=list)

    def _raise(self, name: str, number: int) -> None:
        if left := self.errors.get((name, number)):
            raise left.pop(0)

    @contextmanager
    def fork(self, edge: EdgeRequest, state: str | None, stop: threading.Event) -> Iterator[Fork]:
        self.forks.append((edge.name, state))
        self._raise(edge.name, 0)
        with super().fork(edge, state, stop) as fork:
            yield fork
        self._raise(edge.name, 3)

    def run(self, edge: EdgeRequest, number: int) -> Turn:
        self._raise(edge.name, number)
        return super().run(edge, number)


class World:
    """One search in memory: its Teacher, its journal and the pauses it took."""

    def __init__(
        self,
        errors: dict[tuple[str, int], list[Exception]],
        memory: Remembering | None = None,
        answer: Answer | None = None,
    ) -> None:
        self.teacher = FaultyTeacher(answer or answers(), errors=errors)
        self.memory = memory or Remembering()
        self.pauses: list[float] = []
        self.stop = threading.Event()

    def run(self, pause: Callable[[float], bool] | None = None, edges: int = 3, width: int = 8) -> Tree:
        def note(seconds: float) -> bool:
            self.pauses.append(seconds)
            return pause(seconds) if pause else False

        tree = Tree(ROOT, "maximize", SearchSettings(max_logical_edges=edges, parallel_width=width))
        Explorer(tree, self.teacher, self.memory, RETRY, self.stop, pause=note).run()
        return tree


def in_step() -> Answer:
    """Answers the first turn of a direction only when all three are in flight."""
    together = threading.Barrier(3, timeout=60)

    def answer(edge: EdgeRequest, number: int) -> Turn:
        if number == 1:
            together.wait()
        return turn()

    return answer


def fault(times: int = 1) -> list[Exception]:
    return [InfrastructureFault("no answer from the model") for _ in range(times)]


def test_only_the_spoiled_turn_is_run_again_from_the_state_before_it() -> None:
    world = World({("1", 2): fault(2)})
    assert world.run().valid_edges == 3
    assert [state for name, state in world.teacher.forks if name == "1"] == [None, "1/1", "1/1"]
    assert Counter(world.teacher.asked) == Counter((name, number) for name in "012" for number in (1, 2))
    assert world.pauses == [1.0, 3.0], "the pause grows"


def test_a_fault_is_no_failed_edge() -> None:
    tree = World({("0", 0): fault(2), ("1", 1): fault(2), ("2", 2): fault(2)}).run()
    assert [e.failure_reason for e in tree.edges] == [None] * 3
    assert tree.nodes[0].failed_expansions == 0


def test_each_turn_has_all_its_tries() -> None:
    world = World({("0", 1): fault(2), ("0", 2): fault(2)})
    world.run()
    assert world.pauses == [1.0, 3.0, 1.0, 3.0]


def test_the_root_halts_when_the_tries_are_used_up_and_what_was_in_flight_is_kept() -> None:
    world = World({("1", 2): fault(3)}, answer=in_step())
    with pytest.raises(SearchHalted) as halted:
        world.run()
    message = str(halted.value)
    assert (
        ROOT.key in message and "edge 1:" in message and "no answer from the model" in message and "3 tries" in message
    )
    assert {name: len(turns) for name, turns in world.memory.kept.items()} == {"0": 2, "1": 1, "2": 2}

    again = World({}, world.memory)
    assert again.run().valid_edges == 3
    assert again.teacher.asked == [("1", 2)], "only the turn that was missing"
    assert again.teacher.forks == [("1", "1/1")], "from the state after the first"


@pytest.mark.parametrize(
    ("errors", "raised"),
    [(fault(3), SearchHalted), ([TeacherError("no")], SearchHalted), ([RecursionError()], RecursionError)],
)
def test_edges_that_wait_for_a_slot_are_not_begun_once_the_root_halts(
    errors: list[Exception], raised: type[Exception]
) -> None:
    world = World({("0", 1): errors})
    with pytest.raises(raised):
        world.run(width=1)
    assert world.teacher.asked == []


def test_a_fault_while_leaving_a_finished_fork_costs_nothing() -> None:
    world = World({("1", 3): fault()})
    assert world.run().valid_edges == 3
    assert (world.pauses, len(world.teacher.forks)) == ([], 3)


def test_a_teacher_that_cannot_answer_halts_the_root_at_once_naming_the_edge() -> None:
    world = World({("2", 2): [TeacherError("the script ends here")]}, answer=in_step())
    with pytest.raises(SearchHalted, match=f"root {ROOT.key}, edge 2: the script ends here"):
        world.run()
    assert world.pauses == []
    assert sorted(world.memory.ended) == ["0", "1"]


def test_a_defect_of_the_teacher_is_shown_as_it_is() -> None:
    with pytest.raises(ZeroDivisionError):
        World({("2", 1): [ZeroDivisionError()]}).run()


def test_a_full_disk_makes_the_journal_wait_and_the_turn_is_not_run_again() -> None:
    class FullDisk(Remembering):
        refusals = 2

        def record_turn(self, edge: EdgeRequest, number: int, turn: Turn) -> Turn:
            if edge.name == "1" and number == 1 and self.refusals:
                self.refusals -= 1
                raise InfrastructureFault("No space left on device")
            return super().record_turn(edge, number, turn)

    world = World({}, FullDisk())
    assert world.run().valid_edges == 3
    assert world.teacher.asked.count(("1", 1)) == 1
    assert world.pauses == [1.0, 3.0]


def test_a_stop_during_a_pause_ends_the_search() -> None:
    world = World({("1", 1): fault()})
    with pytest.raises(Stopped):
        world.run(pause=lambda seconds: True)


def test_after_a_stop_no_turn_is_begun() -> None:
    world = World({})

    def answer(edge: EdgeRequest, number: int) -> Turn:
        if (edge.name, number) == ("0.0", 1):
            world.stop.set()
        return turn()

    world.teacher.answer = answer
    with pytest.raises(Stopped):
        world.run(edges=40, width=1)
    assert world.teacher.asked[-1] == ("0.0", 1)
    assert "0.0" in world.memory.kept and "0.0" not in world.memory.ended, "the turn in flight was kept"

    again = World({}, world.memory)
    again.run(edges=4, width=1)
    assert again.teacher.asked == [("0.0", 2)]


def test_a_fault_caused_by_the_stop_is_a_stop() -> None:
    world = World({("0", 1): fault(9)})
    world.stop.set()
    with pytest.raises(Stopped):
        world.run()


@pytest.mark.parametrize(("faults", "seconds"), [(1, 5.0), (2, 10.0), (3, 20.0), (7, 300.0), (99, 300.0)])
def test_pauses_grow_to_a_limit(faults: int, seconds: float) -> None:
    assert RetrySettings(attempts=100).delay_seconds(faults) == seconds
