"""The errors a user meets. Each names the thing, what is wrong with it, and the mend."""

from __future__ import annotations

import errno

LASTING = {
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.EEXIST,
    errno.ELOOP,
    errno.ENAMETOOLONG,
    errno.EACCES,
    errno.EPERM,
}
"""What the operating system would say the next time as well: the input is at fault, not the machine."""


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


def is_outage(error: Exception) -> bool:
    """Whether the error says that files could not be read just now, and nothing of what they hold.

    Libraries raise an ``OSError`` without a number for what is no Parquet, gzip …: that is no outage.
    """
    if isinstance(error, OSError):
        numbered = error.errno is not None and error.errno not in LASTING
        return numbered or isinstance(error, (ConnectionError, TimeoutError))
    return isinstance(error, Changed)
