"""How the rounds are carried out: order, width, states, progress."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field

import pytest

from coral_pipeline.search.explorer import Explorer
from coral_pipeline.search.progress import Progress
from coral_pipeline.search.tree import Tree
from coral_pipeline.settings import SearchSettings
from coral_pipeline.teacher.protocol import EdgeRequest, Turn
from coral_pipeline_tests.search.growing import IMPATIENT, ROOT, AnswerTeacher, Forgetful, grow, turn
from coral_pipeline_tests.search.test_properties import Dice

MIXED = Dice(seed=4, no_score=0.1, tool_errors=0.2, levels=9, growth=15_000)
"""Answers that make failures, ties and full contexts."""


@dataclass
class DawdlingTeacher(AnswerTeacher):
    """Takes a random while for every turn, so that edges end in another order each time."""

    rng: random.Random = field(default_factory=random.Random)
    running: int = 0
    most_running: int = 0

    def run(self, edge: EdgeRequest, number: int) -> Turn:
        with self._lock:
            self.running += 1
            self.most_running = max(self.most_running, self.running)
            wait = self.rng.random() / 100
        time.sleep(wait)
        with self._lock:
            self.running -= 1
        return super().run(edge, number)


@pytest.mark.parametrize("width", [1, 3, 8])
def test_a_tree_does_not_depend_on_the_order_in_which_edges_end(width: int) -> None:
    trees = []
    for seed in range(3):
        teacher = DawdlingTeacher(MIXED, rng=random.Random(seed))
        tree = grow(teacher=teacher, parallel_width=width)
        assert teacher.most_running <= width
        trees.append((tree.nodes, tree.edges, tree.turns, tree.rounds))
    assert trees[0] == trees[1] == trees[2]


def test_the_edges_of_a_round_run_side_by_side() -> None:
    # Each of the three directions waits until all three have begun.
    together = threading.Barrier(3, timeout=20)

    def answer(edge: EdgeRequest, number: int) -> Turn:
        if number == 1 and not edge.path:
            together.wait()
        return turn()

    assert grow(answer, parallel_width=3, max_logical_edges=3).valid_edges == 3


def test_an_edge_is_forked_from_the_state_its_parents_second_turn_left() -> None:
    tree = grow(MIXED)
    by_id = {0: ""}
    for e in tree.edges:
        name = f"{by_id[e['parent_id']]}.{e['expansion']}".removeprefix(".")
        parent = by_id[e["parent_id"]]
        assert tree.teacher.forked[name] == (f"{parent}/2" if parent else None)
        if e["child_id"] is not None:
            by_id[e["child_id"]] = name


def test_a_state_is_released_once_nothing_can_be_forked_from_it_and_never_before() -> None:
    asked_at_release: list[tuple[str | None, int]] = []

    @dataclass
    class Releasing(AnswerTeacher):
        def release(self, state: str | None) -> None:
            super().release(state)
            asked_at_release.append((state, len(self.asked)))

        def run(self, edge: EdgeRequest, number: int) -> Turn:
            assert self.forked[edge.name] not in self.released, "forked from a released state"
            return super().run(edge, number)

    tree = grow(teacher=Releasing(MIXED))
    left = {f"{name}/{number}" for name, number in tree.teacher.asked}
    assert Counter(tree.teacher.released) == Counter([None, *left]), "the root's and that of every turn, each once"
    before_the_end = [state for state, asked in asked_at_release if asked < len(tree.teacher.asked)]
    assert len(before_the_end) > len(left) / 2, "most of them long before the search is over"


def test_the_observer_sees_the_tree_grow_in_the_thread_that_explores() -> None:
    seen: list[Progress] = []
    threads = set()

    def observe(progress: Progress) -> None:
        seen.append(progress)
        threads.add(threading.current_thread())
        assert progress.valid_edges + progress.failed_edges == len(progress.tree.edges)

    tree = Tree(ROOT, "maximize", SearchSettings(max_logical_edges=9))
    Explorer(tree, AnswerTeacher(MIXED), Forgetful(), IMPATIENT, threading.Event(), observe).run()
    assert threads == {threading.current_thread()}
    assert [p.round for p in seen] == sorted(p.round for p in seen)
    assert {name for p in seen for name in p.running} == {e.name for e in tree.edges}
    assert {number for p in seen for number in p.running.values()} == {1, 2}
    last = seen[-1]
    assert (last.valid_edges, last.fraction, last.running) == (9, 1.0, {})
    assert last.best_score == max(n.path_best_score for n in tree.nodes)
    fractions = [p.fraction for p in seen]
    assert fractions == sorted(fractions) and fractions[0] == 0.0


def test_what_the_observer_raises_ends_the_search() -> None:
    class Closed(Exception):
        pass

    def observe(progress: Progress) -> None:
        if progress.round == 2 and progress.running:
            raise Closed

    tree = Tree(ROOT, "maximize", SearchSettings())
    stop = threading.Event()
    with pytest.raises(Closed):
        Explorer(tree, AnswerTeacher(MIXED), Forgetful(), IMPATIENT, stop, observe).run()
    assert stop.is_set(), "edges in flight are told to stop"
