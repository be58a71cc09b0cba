"""Whose the time of a turn is, and when it is believed."""

from __future__ import annotations

import threading
from typing import cast

import pytest

from coral_pipeline.settings import OpenCodeSettings
from coral_pipeline.teacher.knowledge import Touch
from coral_pipeline.teacher.opencode.calls import Call
from coral_pipeline.teacher.opencode.desk import GradingDesk
from coral_pipeline.teacher.opencode.line import Line, Upstream
from coral_pipeline.teacher.opencode.server import AgentServer
from coral_pipeline.teacher.opencode.transcripts import Session, SessionInfo, Transcript
from coral_pipeline.teacher.opencode.turns import TurnWatch, Worked, _require_sound
from coral_pipeline.teacher.protocol import TeacherError


def ended(**more: float) -> Call:
    return Call(b"", 0.0, ended=1.0, **more)  # type: ignore[arg-type]  # only times are given


@pytest.mark.parametrize(
    ("calls", "over_at"),
    [
        ([], 100.0),
        ([ended()], 100.0),
        # 30 s and 20 s in which the server failed its tries
        ([ended(failing_since=5.0, failing_until=35.0), ended(failing_since=50.0, failing_until=70.0)], 150.0),
        # the server has not begun to answer: it may take its time, but not for ever
        ([Call(b"", 0.0)], 140.0),
        ([Call(b"", 0.0, first_byte=1.0)], 100.0),
    ],
    ids=["no call", "answered", "failed", "waiting", "answering"],
)
def test_the_time_limit_counts_no_time_of_a_failing_server(calls: list[Call], over_at: float) -> None:
    settings = OpenCodeSettings.model_validate({"turn_seconds": 100, "recording": {"first_byte_seconds": 40}})
    line = Line(cast(Upstream, None), "tree", "today")
    line.calls += calls
    server, desk = cast(AgentServer, None), cast(GradingDesk, None)
    watch = TurnWatch(server, line, desk, threading.Event(), settings, lambda: 0)
    watch._began = 0.0
    assert not watch._is_over(over_at - 0.1) and watch._is_over(over_at + 0.1)


def worked(ended_by: str | None, *calls: Call) -> Worked:
    """A turn in which the model said something, and no tokens were counted."""
    session = Session(info=SessionInfo(id="ses_1"), messages=())
    transcript = Transcript((), 1, 0, 0, 0, Touch(), context_tokens=0, last_error=None)
    return Worked(session, True, b"", transcript, calls, None, ended_by, 1.0)


def test_a_server_that_counts_no_tokens_is_refused_but_not_for_a_call_that_a_limit_cut_short() -> None:
    with pytest.raises(TeacherError, match="reports no token usage"):
        _require_sound(worked(None, Call(b"", 0.0, outcome="ok")))
    _require_sound(worked("the time limit", Call(b"", 0.0, outcome="cut")))
