"""The errors a user meets. Each names the thing, what is wrong with it, and the mend."""

from __future__ import annotations

import errno
from collections.abc import Iterator

LASTING = {
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.EEXIST,
    errno.ELOOP,
    errno.ENAMETOOLONG,
    errno.EACCES,
    errno.EPERM,
    errno.EINVAL,  # a name, say, that the file system cannot have
    errno.ENXIO,  # a socket that was opened as a file
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


def told(error: OSError) -> str:
    """The one line of what the operating system, or a store, refuses."""
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{error.strerror or error}; mend that and run it again"


def causes(error: BaseException) -> Iterator[BaseException]:
    """The error, what it was raised from, what that was raised from …"""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__


def is_outage(error: BaseException) -> bool:
    """Whether files could not be had just now, which says nothing of what they hold and may be gone the next time.

    The error or one of its causes says so; none may be a refusal.
    """
    return not is_refusal(error) and any(map(_passes, causes(error)))


def is_refusal(error: BaseException) -> bool:
    """Whether files may not be had, which says nothing of what they hold but lasts until somebody mends it."""
    return any(isinstance(cause, PermissionError) for cause in causes(error))


def is_unread(error: BaseException) -> bool:
    """Whether it says nothing about what files hold: they could not be had (an outage), or may not be (a refusal)."""
    return is_outage(error) or is_refusal(error)


def _passes(error: BaseException) -> bool:
    """Libraries raise an ``OSError`` without a number for what is no Parquet, gzip …: that is what the file holds."""
    if isinstance(error, OSError):
        numbered = error.errno is not None and error.errno not in LASTING
        return numbered or isinstance(error, (ConnectionError, TimeoutError))
    return isinstance(error, Changed)
