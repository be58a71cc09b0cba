"""One Rollout Turn: work, one eval, its score (method T2, T5), and who is to blame where there is none.

The agent's doing, and so a turn without a score: it stopped without an eval, ran out of its context, its time
or its disk space, hung, ended OpenCode or did away with its session before it was graded, or its eval gave no
score. Everything else is an infrastructure fault. Where a session is lost, the next turn begins a new one.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from coral_pipeline.settings import OpenCodeSettings
from coral_pipeline.teacher.opencode.calls import Call, failing_seconds
from coral_pipeline.teacher.opencode.desk import Graded, GradingDesk
from coral_pipeline.teacher.opencode.endpoint import ModelEndpoint, listen_at
from coral_pipeline.teacher.opencode.forks import View
from coral_pipeline.teacher.opencode.line import Line
from coral_pipeline.teacher.opencode.root import SESSION
from coral_pipeline.teacher.opencode.server import AgentServer
from coral_pipeline.teacher.opencode.setup import MODEL_SOCKET, AgentSetup
from coral_pipeline.teacher.opencode.states import State
from coral_pipeline.teacher.opencode.transcripts import Session, SessionInfo, Transcript, parse_session, read_turn
from coral_pipeline.teacher.processes import ProcessFamily
from coral_pipeline.teacher.protocol import InfrastructureFault, Stopped, TeacherError
from coral_pipeline.tree_copy import remove_tree

_POLL_SECONDS = 0.05
_DISK_SECONDS = 1.0
_GONE_SECONDS = 5.0
"""Connections to a sandbox break a moment before it has ended."""
_KILLED = "a signal to OpenCode"
_LOST = "the loss of its session"
_DISK_SHARE = 20.0
"""Disk use is measured at most this fraction of the time."""
_AGENTS_OWN_ERRORS = frozenset({"ContextOverflowError", "MessageOutputLengthError", "MessageAbortedError", "APIError"})
"""Errors of a model call that are about the conversation, not the machinery: what the server refuses is one too."""


@dataclass(frozen=True)
class Worked:
    """What an agent did in a turn."""

    session: Session
    """Without messages where the agent did away with it."""
    is_kept: bool
    """A next turn can go on in the session."""
    export: bytes
    transcript: Transcript
    calls: tuple[Call, ...]
    graded: Graded | None
    ended_by: str | None
    """What ended it; None: the agent itself."""
    seconds: float

    @property
    def context_tokens(self) -> int:
        """Context length at the end: of the last model call, also where its step was cut off and not counted."""
        return max(self.transcript.context_tokens, _last_call_tokens(self.calls))


@dataclass
class TurnWatch:
    """Watches an agent at work until it has stopped or must be stopped."""

    server: AgentServer
    line: Line
    desk: GradingDesk
    stop: threading.Event
    settings: OpenCodeSettings
    added_bytes: Callable[[], int]
    """Disk space the fork takes so far."""
    is_lost: Callable[[], bool] = lambda: False
    """Whether the agent did away with its session."""

    def run(self, session: str, prompt: str) -> str | None:
        """Prompt the agent and return when it works no more; what ended it, None for the agent itself.

        Raises ``InfrastructureFault``, ``TeacherError`` or ``Stopped``.
        """
        self._began = time.monotonic()
        self._graded_at: float | None = None
        self._disk_at = self._began
        self.desk.on_graded = self.line.closing.set
        answer = self.server.prompt(session, prompt)
        while (reason := self._reason_to_end()) is None and not answer.done():
            time.sleep(_POLL_SECONDS)
        if reason is None:
            reason = self._failure(answer)
        else:
            self._end(session, answer)
        self.desk.look()  # an eval that the agent did not wait for
        self.raise_if_spoiled()
        return reason

    def raise_if_spoiled(self) -> None:
        """Raise where the turn cannot count."""
        if self.stop.is_set():
            raise Stopped
        if self.line.refusal is not None:
            raise TeacherError(
                f"the model endpoint refuses every request ({self.line.refusal}); mend opencode.endpoint, "
                "opencode.model or the key, see `coral-pipeline doctor`"
            )
        if self.line.fault is not None:
            raise InfrastructureFault(self.line.fault)
        if (death := self.server.death) is not None and not self.server.was_killed_inside:
            raise InfrastructureFault(death)

    def _reason_to_end(self) -> str | None:
        """What must end the turn now; None: nothing yet."""
        self.raise_if_spoiled()
        if self.server.was_killed_inside:
            return _KILLED
        if self.desk.look():
            self._graded_at = time.monotonic()
        now = time.monotonic()
        if self._graded_at is not None and now - self._graded_at > self.settings.settle_seconds:
            return "its eval"
        if self._graded_at is None and self._is_over(now):
            return "the time limit"
        silent = now - max(self._began, self.line.last_activity, self._graded_at or 0.0)
        if not self.line.open_requests and silent > self.settings.idle_seconds:
            return "idleness"
        if now >= self._disk_at:
            size = self.added_bytes()
            self._disk_at = time.monotonic() + max(_DISK_SECONDS, _DISK_SHARE * (time.monotonic() - now))
            if size > self.settings.max_state_bytes:
                return "the disk limit"
        return None

    def _is_over(self, now: float) -> bool:
        """Whether the agent has had its time, in which what a server took that failed does not count.

        Nor, for as long as it may take, does an answer that is still waited for: a server may be failing just now.
        """
        over = now - self._began - failing_seconds(self.line.calls) - self.settings.turn_seconds
        return over > (self.settings.recording.first_byte_seconds if self.line.waits() else 0.0)

    def _end(self, session: str, answer: Future[Any]) -> None:
        """Have the agent stop; one that does not is killed when its sandbox is."""
        self.line.closing.set()
        with contextlib.suppress(InfrastructureFault, TimeoutError, aiohttp.ClientError, OSError):
            self.server.abort(session)
            answer.result(self.settings.settle_seconds)

    def _failure(self, answer: Future[Any]) -> str | None:
        """How the agent kept its prompt from being answered; None where it was answered."""
        try:
            answer.result()
        except (aiohttp.ClientError, OSError) as error:
            self.server.wait_until_gone(_GONE_SECONDS)
            self.raise_if_spoiled()
            if self.server.was_killed_inside:
                return _KILLED
            if self.is_lost():
                return _LOST
            raise InfrastructureFault(f"OpenCode failed in mid-turn ({error!r})") from error
        return None


def work(
    setup: AgentSetup,
    parent: State,
    prompt: str,
    view: View,
    scratch: Path,
    desk: GradingDesk,
    endpoint: ModelEndpoint,
    tree: str,
    family: ProcessFamily,
    stop: threading.Event,
    added_bytes: Callable[[], int],
) -> Worked:
    """Let the agent work one turn in an open fork of ``parent``; what is left of a lost session goes.

    Raises ``InfrastructureFault`` (method T5), ``Stopped``, or ``TeacherError``; the fork is then worth nothing.
    """
    started = time.monotonic()
    (scratch / "run").mkdir(parents=True)
    listener = listen_at(scratch / "run", MODEL_SOCKET)
    with endpoint.line(listener, tree, parent.date) as line:
        export: bytes | None = None
        with setup.serving(view, scratch, endpoint, family.marker, stop) as server:
            known = parent.session_id if parent.session_id and server.has(parent.session_id) else None
            session, after = (known, parent.last_message) if known else (server.new_session(), None)

            def is_lost() -> bool:
                return not setup.keeps(view, scratch, family, session, after)

            ended_by = TurnWatch(server, line, desk, stop, setup.settings, added_bytes, is_lost).run(session, prompt)
            with contextlib.suppress(InfrastructureFault):
                export = server.export(session)
        if export is None and not is_lost():
            # an agent that hung its server, killed it, or pulled its folder away; what it did is on disk
            with setup.serving(view, scratch, endpoint, family.marker, stop) as server:
                export = server.export(session)
    desk.close()
    found = None if export is None else parse_session(export)
    if export is None or found is None or not found.has(after):
        found, after, ended_by = Session(info=SessionInfo(id=session), messages=()), None, ended_by or _LOST
        export = found.model_dump_json().encode()
    last = found.messages[-1].info.id if found.messages else None
    is_kept = last is not None and setup.keeps(view, scratch, family, session, last)
    if not is_kept:
        remove_tree(view.files / SESSION)
        (view.files / SESSION).mkdir()
    transcript, calls = read_turn(found, after), tuple(line.calls)
    worked = Worked(found, is_kept, export, transcript, calls, desk.graded, ended_by, time.monotonic() - started)
    _require_sound(worked)
    return worked


def _last_call_tokens(calls: Sequence[Call]) -> int:
    """Prompt and completion of the last call that was answered; 0 where the server does not say."""
    sampled = next((call.sampled for call in reversed(calls) if call.sampled is not None), None)
    if sampled is None:
        return 0
    return (sampled.prompt_tokens or 0) + (sampled.completion_tokens or 0)


def _require_sound(worked: Worked) -> None:
    """Raise where what was recorded is not an agent's turn."""
    transcript, ended_by, graded = worked.transcript, worked.ended_by, worked.graded
    error = transcript.last_error
    own = error is None or error in _AGENTS_OWN_ERRORS
    if not own and graded is None and ended_by is None and worked.is_kept:
        raise InfrastructureFault(f"OpenCode ended the turn by an error of its own ({error})")
    if not transcript.step_turns and error is None and ended_by is None:
        raise InfrastructureFault("OpenCode ended the turn without asking the model")
    answered = any(call.outcome == "ok" for call in worked.calls)  # else even the first one was cut short
    if transcript.step_turns and answered and not worked.context_tokens:
        raise TeacherError(
            "the model endpoint reports no token usage, without which no context length is known; "
            "use a server that does (SGLang, vLLM), see `coral-pipeline doctor`"
        )
