"""What the agent takes from shared knowledge, and what it adds to it."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from coral_pipeline.settings import Direction, orient

NOTE_NAME = "moves-that-help.md"
"""The note the agent keeps in ``notes/``."""
NOTE_TITLE = "# Which small changes help here\n\n"

_LESSON = re.compile(r"^- (nudge|reverse|shift|swap) (\S+) .*: (helped|hurt|changed nothing|crashed)", re.MULTILINE)
_SCORE = re.compile(r'"score":\s*(-?[0-9][0-9.eE+-]*)')

SCORES_COMMAND = (
    r"""grep -ho '"score": -\?[0-9][0-9.eE+-]*' .opencode/attempts/*.json | sort -g -k 2 | sed -n -e '1p' -e '$p'"""
)
"""Shell command that shows the lowest and the highest score in the attempts."""


@dataclass
class Lessons:
    """What notes and attempts say."""

    tries: Counter[str] = field(default_factory=Counter)
    """Changes noted, per kind of move and per target."""
    helped: Counter[str] = field(default_factory=Counter)
    """Those of them that helped."""
    scores: tuple[float, ...] = ()
    """Lowest and highest score known; empty: none is."""

    def learn_notes(self, text: str) -> None:
        """Count the lessons in a note's text."""
        for kind, name, result in _LESSON.findall(text):
            for key in (kind, name):
                self.tries[key] += 1
                self.helped[key] += result == "helped"

    def learn_scores(self, text: str) -> None:
        """Take the scores from the output of ``SCORES_COMMAND``."""
        scores = [float(score) for score in _SCORE.findall(text)]
        if scores:
            self.scores = (min(scores), max(scores))

    def weight(self, key: str) -> float:
        """How promising a kind of move or a target is: the share that helped, as if of two more tries one had."""
        return (self.helped[key] + 1) / (self.tries[key] + 2)

    def gap(self, score: float | None, direction: Direction) -> float:
        """How far the score is from the best known, as a share of the range of known scores; 0: best, or unknown."""
        if score is None or not self.scores or self.scores[0] == self.scores[1]:
            return 0.0
        best = max(orient(known, direction) for known in self.scores)
        return max(0.0, (best - orient(score, direction)) / (self.scores[1] - self.scores[0]))


def lesson(title: str, before: float | None, after: float | None, direction: Direction) -> str:
    """One line for the note: the change and what came of it, as ``Lessons.learn_notes`` reads it."""
    if after is None:
        return f"- {title}: crashed"
    if before is None:
        return f"- {title}: helped, first score {after:.10g}"
    gain = orient(after, direction) - orient(before, direction)
    result = "helped" if gain > 0 else "hurt" if gain < 0 else "changed nothing"
    return f"- {title}: {result}, {before:.10g} -> {after:.10g}"
