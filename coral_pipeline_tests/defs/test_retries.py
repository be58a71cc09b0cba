"""Which failures are the machinery's."""

from __future__ import annotations

import errno

import pytest

from coral_pipeline.defs.retries import is_infrastructure
from coral_pipeline.errors import BadInput, Changed
from coral_pipeline.search.explorer import SearchHalted
from coral_pipeline.teacher.protocol import InfrastructureFault, TeacherError


def because(error: Exception, *causes: Exception) -> Exception:
    """The error, raised from the first cause, which was raised from the second …"""
    if causes:
        error.__cause__ = because(*causes)
    return error


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (BadInput("root", "has no score", "give one"), False),
        (Changed("ranked_paths of run|root", "changed meanwhile"), True),
        (because(SearchHalted("edge 0"), TeacherError("no answer in the script")), False),
        (because(SearchHalted("gave up after 6 tries"), InfrastructureFault("endpoint is not reachable")), True),
        (because(SearchHalted("x"), InfrastructureFault("no sandbox"), FileNotFoundError(errno.ENOENT, "bwrap")), True),
        (OSError(errno.ENOSPC, "No space left on device"), True),
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"), True),
        (TimeoutError("timed out"), True),
        (because(BadInput("task.yaml", "is missing", "copy it"), FileNotFoundError(errno.ENOENT, "")), False),
        (PermissionError(errno.EACCES, "Permission denied"), False),
    ],
    ids=repr,
)
def test_the_machinery_s_failures_are_told_from_those_that_would_be_repeated(error: Exception, expected: bool) -> None:
    assert is_infrastructure(error) is expected
