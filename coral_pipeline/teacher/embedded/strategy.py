"""What the agent tries next, and what it remembers of it: pure decisions, no files.

A change of numbers that failed is tried the other way, one that helped is gone on with; otherwise the agent
draws a new change, the likelier of a kind and a place the more often notes say it helped there, bolder
while far better scores are known.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from coral_pipeline.settings import Direction, EmbeddedSettings
from coral_pipeline.teacher.embedded.lessons import Lessons
from coral_pipeline.teacher.embedded.moves import MOVE_KINDS, Move, find_target, new_texts, propose
from coral_pipeline.teacher.embedded.programs import Target, rewritten, targets_in
from coral_pipeline.teacher.embedded.states import LastMove, Session

SHORTEST_REACH = 2
"""Two elements that change places."""


@dataclass(frozen=True)
class Choice:
    """A change the agent decided on."""

    move: Move
    settled: bool
    """As in ``LastMove``."""
    why: str
    program: str = ""
    """Text of the move's file after it."""

    @property
    def digest(self) -> str:
        """Names the changed program in ``Session.tried``."""
        return hashlib.sha256(f"{self.move.file}\0{self.program}".encode()).hexdigest()[:16]


def named_in(description: str) -> set[str]:
    """What a task's description sets in backticks: the files and names it is about."""
    return set(re.findall(r"`([^`\n]+)`", description))


def wanted_targets(sources: Mapping[str, str], named: set[str]) -> list[Target]:
    """What to change in the programs (path to text): what the task names, else data at the top of modules, else all."""
    targets = [target for file, source in sources.items() for target in targets_in(file, source)]
    for wanted in (
        [target for target in targets if target.name in named],
        [target for target in targets if target.file in named and target.top_level],
        [target for target in targets if target.top_level],
    ):
        if wanted:
            return wanted
    return targets


class Strategy:
    """Decides for one turn."""

    def __init__(self, settings: EmbeddedSettings, direction: Direction, follows_up: bool, rng: random.Random) -> None:
        """``follows_up``: may take up the session's last change. ``rng`` decides all that is left to chance."""
        self._settings = settings
        self._direction = direction
        self._follows_up = follows_up
        self._rng = rng

    def chance(self, probability: float) -> bool:
        """True so often."""
        return self._rng.random() < probability

    def choose(self, targets: list[Target], sources: Mapping[str, str], session: Session, lessons: Lessons) -> Choice:
        """The change to try on the session's best code: its programs, and the targets in them (one or more).

        Different moves may come to the same; what was tried in the session is drawn again, a few times.
        """
        choice = self._follow_up(targets, session) if self._follows_up else None
        for _ in range(self._settings.draws):
            choice = self._made(choice or self._draw(targets, session, lessons), targets, sources)
            if choice.digest not in session.tried:
                break
            choice = None
        return choice or self._made(self._draw(targets, session, lessons), targets, sources)

    def _made(self, choice: Choice, targets: list[Target], sources: Mapping[str, str]) -> Choice:
        target, source = find_target(choice.move, targets), sources[choice.move.file]
        assert target is not None
        return replace(choice, program=rewritten(source, new_texts(choice.move, target, source)))

    def _follow_up(self, targets: list[Target], session: Session) -> Choice | None:
        """The session's last change of numbers once more: on the same way, or the other way."""
        last = session.last
        if last is None or last.move.kind != "nudge" or find_target(last.move, targets) is None:
            return None
        if last.improved:
            if self.chance(self._settings.extend_chance):
                return Choice(last.move, settled=True, why="That direction helped, so I go on in it.")
            return None
        if last.settled or last.base != session.best_commit:
            return None
        return Choice(last.move.mirrored(), settled=True, why="The other direction may help.")

    def _draw(self, targets: list[Target], session: Session, lessons: Lessons) -> Choice:
        settings = self._settings
        far = lessons.gap(session.best_score, self._direction) >= settings.far_gap
        target = self._rng.choices(targets, [len(t.numbers) * lessons.weight(t.name) for t in targets])[0]
        bold = self.chance(settings.bold_chance_far if far else settings.bold_chance)
        reach = len(target.numbers) if bold else self._reach()
        step = session.step or (settings.bold_number_step if far else settings.number_step)
        weights: dict[str, float] = {kind: lessons.weight(kind) for kinds in MOVE_KINDS.values() for kind in kinds}
        move = propose(self._rng, target, targets, weights, step, reach)
        why = "Far better scores are known, so I may be bold." if far else "I try a small change."
        return Choice(move, settled=False, why=why)

    def _reach(self) -> int:
        """Elements of an order that a change may span: mostly two, for neighbours gain most often."""
        reach = SHORTEST_REACH
        while reach < self._settings.reach and self.chance(self._settings.longer_chance):
            reach += 1
        return reach

    def remember(self, session: Session, choice: Choice, commit: str, score: float | None, improved: bool) -> Session:
        """The session after an eval of the change."""
        step = session.step
        if choice.move.kind == "nudge":
            step = session.step or self._settings.number_step
            if improved:
                step *= self._settings.step_growth
            elif choice.settled:
                step *= self._settings.step_shrink
        last = LastMove(move=choice.move, base=session.best_commit, improved=improved, settled=choice.settled)
        best = {"best_commit": commit, "best_score": score} if improved else {}
        tried = (*session.tried, choice.digest)
        return session.model_copy(update={"last": last, "step": step, "tried": tried, **best})
