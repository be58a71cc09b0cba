"""Stand-in for ``coral.types``: what graders receive and return."""

from __future__ import annotations

TYPE_CHECKING = False  # this name is true to type checkers; importing typing takes longer than all the rest
if TYPE_CHECKING:
    from typing import Any


class Task:
    """The task that is graded."""

    def __init__(self, id: str, name: str, description: str, metadata: dict[str, Any] | None = None) -> None:
        """All as the task's configuration gives it; ``metadata``: of the attempt."""
        self.id = id
        self.name = name
        self.description = description
        self.metadata = metadata or {}


class Score:
    """One score of an evaluation."""

    def __init__(
        self, value: float | None, name: str, explanation: str | None = None, metadata: dict[str, Any] | None = None
    ) -> None:
        """``value`` None: the grader could not give a number."""
        self.value = value
        self.name = name
        self.explanation = explanation
        self.metadata = metadata or {}


class ScoreBundle:
    """The result of an evaluation."""

    def __init__(
        self,
        scores: dict[str, Score],
        aggregated: float | None = None,
        is_public: bool = True,
        feedback: str | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        """``aggregated`` is the score of the attempt; None: there is none."""
        self.scores = scores
        self.aggregated = aggregated
        self.is_public = is_public
        self.feedback = feedback
        self.metadata = metadata or {}

    def get(self, name: str) -> Score | None:
        """The score of that name."""
        return self.scores.get(name)
