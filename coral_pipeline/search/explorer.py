"""The rounds of one tree, carried out by a Teacher and remembered by a journal (method T3–T5, T12, T13).

The explorer touches no file, process or clock itself. A tree is a function of its settings and of what
the Teacher answered: results are applied in dispatch order once a whole round has ended, so neither the
order in which edges end nor an interruption can change it. To resume is to explore again with a journal
that knows some of the answers.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from queue import SimpleQueue
from typing import Protocol, TypeVar

from coral_pipeline.errors import PipelineError
from coral_pipeline.search.grow import (
    apply_round,
    begin_first_round,
    begin_round,
    direction_jobs,
    failure_of,
    makes_child,
)
from coral_pipeline.search.progress import Progress, progress_of
from coral_pipeline.search.rules import is_candidate, next_turn, stop_reason
from coral_pipeline.search.tree import FailureReason, Job, Node, Result, StopReason, Tree
from coral_pipeline.settings import RetrySettings
from coral_pipeline.teacher.protocol import EdgeRequest, InfrastructureFault, Stopped, Teacher, TeacherError, Turn

T = TypeVar("T")

logger = logging.getLogger(__name__)

Observer = Callable[[Progress], None]


class SearchHalted(PipelineError):
    """The search of a root cannot go on for now; everything finished is kept and it can be resumed."""


class Memory(Protocol):
    """What the explorer needs of a journal. Called from several threads at once.

    ``record_turn`` and ``record_edge`` return when the record is safe, or raise ``InfrastructureFault``.
    """

    def turns(self, edge: EdgeRequest) -> tuple[Turn, ...]:
        """The turns of the edge that were finished before, without their messages."""

    def record_turn(self, edge: EdgeRequest, number: int, turn: Turn) -> Turn:
        """Keep a finished turn; returns it without its messages."""

    def record_edge(self, edge: EdgeRequest, turns: int, failure: FailureReason | None) -> None:
        """Keep that the edge has ended. An edge that was ended before must have ended in the same way."""


class Explorer:
    """Grows one tree to its end."""

    def __init__(
        self,
        tree: Tree,
        teacher: Teacher,
        memory: Memory,
        retry: RetrySettings,
        stop: threading.Event,
        observer: Observer | None = None,
        pause: Callable[[float], bool] | None = None,
        disk_bytes: Callable[[], int] = lambda: 0,
    ) -> None:
        """``disk_bytes`` measures what the tree takes on disk, for the observer.

        ``pause`` waits so many seconds and tells whether to stop; by default it waits on ``stop``.
        """
        self._tree = tree
        self._teacher = teacher
        self._memory = memory
        self._retry = retry
        self._stop = stop
        self._observer = observer
        self._pause = pause or stop.wait
        self._disk_bytes = disk_bytes
        self._halted = threading.Event()
        self._running: dict[str, int] = {}
        self._events: SimpleQueue[tuple[str, int | None]] = SimpleQueue()
        self._held = {0: tree.nodes[0]}
        self._look = progress_of(tree)

    def run(self) -> StopReason:
        """Grow the tree until it stops (T13) and say why.

        Raises ``SearchHalted`` where an edge cannot be carried out (T5) and ``Stopped`` where ``stop`` was
        set, either after every edge in flight has ended; what interrupts the waiting itself (a keyboard
        interrupt, an orchestrator's exception) sets ``stop`` and is raised on after the same.
        """
        tree = self._tree
        with ThreadPoolExecutor(tree.settings.width, thread_name_prefix="edge") as pool:
            self._apply(self._first_round(pool))
            while (reason := stop_reason(tree)) is None:
                self._apply(self._run_all(pool, begin_round(tree)))
        tree.stop_reason = reason
        for node in self._held.values():
            self._release(node)
        self._look_again()
        return reason

    def _first_round(self, pool: ThreadPoolExecutor) -> list[Result]:
        """Every direction from the root, the failed ones tried again (T4)."""
        tree, settings = self._tree, self._tree.settings
        begin_first_round(tree)
        results: list[Result] = []
        open_directions = list(range(settings.root_children))
        for tries_left in reversed(range(settings.direction_tries)):
            tried = self._run_all(pool, direction_jobs(tree, open_directions, last_try=tries_left == 0))
            results += tried
            open_directions = [job.slot for job, turns in tried if not makes_child(tree, job, turns)]
            if not open_directions:
                break
        return results

    def _run_all(self, pool: ThreadPoolExecutor, jobs: Sequence[Job]) -> list[Result]:
        """Carry out the jobs side by side; their results in dispatch order, when all have ended."""
        futures: list[Future[tuple[Turn, ...]]] = []
        try:
            for job in jobs:
                futures.append(pool.submit(self._run_edge, job))
                futures[-1].add_done_callback(partial(self._ended, job.edge.name))
            self._watch(len(futures))
        except BaseException:  # also what Ctrl-C and Dagster raise into the main thread
            self._stop.set()
            for future in futures:
                future.cancel()
            raise
        errors = [error for future in futures if (error := future.exception()) is not None]
        if errors:
            raise min(errors, key=lambda error: isinstance(error, Stopped))
        return [(job, future.result()) for job, future in zip(jobs, futures, strict=True)]

    def _watch(self, edges: int) -> None:
        """Report what begins and ends until so many edges have ended."""
        self._report()
        while edges:
            name, turn = self._events.get()
            if turn is None:
                edges -= 1
                self._running.pop(name, None)
            else:
                self._running[name] = turn
            self._report()

    def _ended(self, name: str, future: Future[tuple[Turn, ...]]) -> None:
        self._events.put((name, None))

    def _run_edge(self, job: Job) -> tuple[Turn, ...]:
        """The turns of one logical edge. Runs in a worker thread.

        Whatever ends it before its time halts the root: edges in flight come to their end, no other is begun.
        """
        if self._halted.is_set():
            raise Stopped(f"root {job.edge.root}, edge {job.edge.name}: not begun, the root is halted")
        try:
            return self._all_turns(job)
        except BaseException:
            self._halted.set()
            raise

    def _all_turns(self, job: Job) -> tuple[Turn, ...]:
        """The turns that are remembered, then the missing ones."""
        turns = list(self._memory.turns(job.edge))
        faults = 0
        while not self._has_ended(job, turns):
            finished = len(turns)
            try:
                self._advance(job, turns)
            except TeacherError as error:
                raise SearchHalted(f"root {job.edge.root}, edge {job.edge.name}: {error}") from error
            except InfrastructureFault as fault:
                faults = faults + 1 if len(turns) == finished else 1
                if not self._has_ended(job, turns):
                    self._back_off(job.edge, faults, fault)
        failure = failure_of(self._tree, job, turns)
        self._insist(job.edge, partial(self._memory.record_edge, job.edge, len(turns), failure))
        return tuple(turns)

    def _has_ended(self, job: Job, turns: Sequence[Turn]) -> bool:
        return next_turn(turns, prunable=job.kept_if_failed is None) is None

    def _advance(self, job: Job, turns: list[Turn]) -> None:
        """Fork the state after the turns that are done and run the rest in it, adding to ``turns``."""
        self._give_up_if_stopped(job.edge)
        state = turns[-1].state if turns else job.state
        self._events.put((job.edge.name, len(turns) + 1))
        with self._teacher.fork(job.edge, state, self._stop) as fork:
            while not self._has_ended(job, turns):
                self._give_up_if_stopped(job.edge)
                number = len(turns) + 1
                self._events.put((job.edge.name, number))
                turn = fork.run_turn(number)
                turns.append(self._insist(job.edge, partial(self._memory.record_turn, job.edge, number, turn)))

    def _insist(self, edge: EdgeRequest, write: Callable[[], T]) -> T:
        """Write to the journal, again after a pause where the disk fails; the turn itself is not run again."""
        faults = 0
        while True:
            try:
                return write()
            except InfrastructureFault as fault:
                faults += 1
                self._back_off(edge, faults, fault)

    def _back_off(self, edge: EdgeRequest, faults: int, fault: InfrastructureFault) -> None:
        """Wait before the next try, or halt the root where all tries are used up (T5)."""
        self._give_up_if_stopped(edge)
        where = f"root {edge.root}, edge {edge.name}"
        if faults >= self._retry.attempts:
            tries = "1 try" if faults == 1 else f"{faults} tries"
            raise SearchHalted(
                f"{where}: gave up after {tries}: {fault}; mend that and resume, nothing is lost"
            ) from fault
        delay = self._retry.delay_seconds(faults)
        logger.warning("%s: %s; try %d of %d in %g s", where, fault, faults + 1, self._retry.attempts, delay)
        if self._pause(delay):
            raise Stopped(where)

    def _give_up_if_stopped(self, edge: EdgeRequest) -> None:
        if self._stop.is_set():
            raise Stopped(f"root {edge.root}, edge {edge.name}: stopped")

    def _apply(self, results: Sequence[Result]) -> None:
        """Put a whole round into the tree and release the states that will never be forked again."""
        tree = self._tree
        first = len(tree.nodes)
        apply_round(tree, results)
        self._held.update((node.node_id, node) for node in tree.nodes[first:])
        kept = {node.state for node in self._held.values()}
        for _, turns in results:
            for turn in turns:
                if turn.state is not None and turn.state not in kept:
                    self._teacher.release(turn.state)
        for node in list(self._held.values()):
            if not is_candidate(node, tree.settings):
                self._release(self._held.pop(node.node_id))
        self._look_again()

    def _release(self, node: Node) -> None:
        if node.state is not None or node.depth == 0:
            self._teacher.release(node.state)

    def _look_again(self) -> None:
        """Count the tree anew, which only a round changes, and report."""
        if self._observer is not None:
            self._look = progress_of(self._tree, self._disk_bytes())
            self._report()

    def _report(self) -> None:
        if self._observer is not None:
            self._observer(replace(self._look, round=self._tree.round, running=dict(self._running)))
