"""The errors a user meets. Each names the thing, what is wrong with it, and the mend."""

from __future__ import annotations


class PipelineError(Exception):
    """Base of every expected failure: its message is one line a user can act on (exit code 1)."""


class BadInput(PipelineError):
    """Input that cannot be used as it is."""

    def __init__(self, thing: object, problem: str, mend: str) -> None:
        """Build the one line: ``thing`` (a file, root, edge …), what is wrong, and what to do about it."""
        super().__init__(f"{thing}: {problem}; {mend}")
        self.thing = str(thing)
        self.problem = problem
        self.mend = mend


class Changed(BadInput):
    """Input that another process replaced while it was read: the next time it is whole."""

    def __init__(self, thing: object, problem: str) -> None:
        """As ``BadInput``; the mend is to run it again."""
        super().__init__(thing, problem, "run it again")
