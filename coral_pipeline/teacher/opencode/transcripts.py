"""From an OpenCode session export to messages and the numbers of a Rollout Turn (method T2, T8).

``opencode export`` (and the server's message list) gives ``{info, messages: [{info, parts}]}``; an
assistant entry is one model call with the tool calls it made, each holding its own result.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from coral_pipeline.teacher.knowledge import Touch, touch_of_call, touched
from coral_pipeline.teacher.protocol import ContentPart, Message, TeacherError

INTERRUPTED = "[Tool execution was interrupted]"
"""What OpenCode tells the model about a tool call that was cut off, and so the result of that call."""


class _Part(BaseModel):
    """As much of an OpenCode record as is read here; everything else in it is left alone."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Cache(_Part):
    """Prompt tokens served from, and written to, the provider's cache."""

    read: int = 0
    write: int = 0


class Tokens(_Part):
    """Tokens of one model call; all 0 where the server reported no usage."""

    total: int = 0
    input: int = 0
    output: int = 0
    reasoning: int = 0
    cache: Cache = Cache()

    @property
    def prompt(self) -> int:
        """Prompt tokens, cached ones included."""
        return self.input + self.cache.read + self.cache.write

    @property
    def context(self) -> int:
        """Context length after the call: prompt and completion."""
        return self.total or self.prompt + self.output + self.reasoning


class Times(_Part):
    """Unix times in milliseconds."""

    created: int | None = None
    completed: int | None = None
    start: int | None = None
    end: int | None = None


class ToolState(_Part):
    """A tool call: ``pending`` and ``running`` mean that it was cut off."""

    status: str
    input: dict[str, Any] = {}
    output: str = ""
    error: str = ""
    metadata: dict[str, Any] = {}
    time: Times = Times()


class Part(_Part):
    """One part of an entry; which fields count depends on ``type``."""

    type: str
    text: str = ""
    ignored: bool = False
    tool: str = ""
    callID: str = ""
    state: ToolState | None = None


class EntryInfo(_Part):
    """Head of an entry."""

    id: str
    role: str
    tokens: Tokens = Tokens()
    time: Times = Times()
    error: dict[str, Any] | None = None


class Entry(_Part):
    """One message of the session as OpenCode keeps it."""

    info: EntryInfo
    parts: tuple[Part, ...] = ()

    @property
    def calls(self) -> list[Part]:
        """Its tool calls, in order."""
        return [part for part in self.parts if part.type == "tool" and part.state is not None]

    @property
    def is_step(self) -> bool:
        """A model call that said something: what a closed turn leaves behind (an empty answer) is none."""
        spoke = any(part.type in {"text", "reasoning"} and part.text for part in self.parts)
        return self.info.role == "assistant" and (spoke or bool(self.calls))


class SessionInfo(_Part):
    """Head of a session."""

    id: str


class Session(_Part):
    """An exported session."""

    info: SessionInfo
    messages: tuple[Entry, ...]

    def has(self, message: str | None) -> bool:
        """Whether it has a message with this id; None stands for its beginning."""
        return message is None or any(entry.info.id == message for entry in self.messages)


@dataclass(frozen=True)
class Transcript:
    """What one Rollout Turn added to a session."""

    messages: tuple[Message, ...]
    step_turns: int
    """Model calls that said something."""
    tool_calls: int
    failed_tool_calls: int
    """Calls that OpenCode itself reported as errors (T2)."""
    nonzero_exits: int
    """Shell commands that ran and exited with another code than 0; these did not fail (T2)."""
    knowledge: Touch
    context_tokens: int
    """Context length of the session at the end of the turn; 0 where the server never reported usage."""
    last_error: str | None
    """Error of the last model call, as OpenCode names it; None where it ended well."""


def parse_session(text: str | bytes) -> Session:
    """The session in an export (JSON). Raises ``TeacherError`` where it is not of OpenCode's form."""
    try:
        return Session.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(step) for step in first["loc"]) or "the whole"
        raise TeacherError(
            f"OpenCode session export: {where}: {first['msg']}; install a version of OpenCode that "
            "`coral-pipeline doctor` accepts"
        ) from error


def read_turn(session: Session, after: str | None) -> Transcript:
    """What came after the message with id ``after``, one of the session's (None: the whole session)."""
    ids = [entry.info.id for entry in session.messages]
    entries = session.messages[ids.index(after) + 1 if after is not None else 0 :]
    calls = [part for entry in entries for part in entry.calls]
    states = [part.state for part in calls if part.state is not None]
    assistants = [entry for entry in entries if entry.info.role == "assistant"]
    last = assistants[-1].info.error if assistants else None
    return Transcript(
        messages=tuple(message for entry in entries for message in _messages(entry)),
        step_turns=sum(entry.is_step for entry in entries),
        tool_calls=len(calls),
        failed_tool_calls=sum(state.status == "error" and not _was_stopped(state) for state in states),
        nonzero_exits=sum(state.metadata.get("exit") not in (None, 0) for state in states),
        knowledge=touched(_touches(calls)),
        context_tokens=context_tokens(session.messages),
        last_error=None if last is None else str(last.get("name") or last),
    )


def context_tokens(entries: Sequence[Entry]) -> int:
    """Context length after the last model call for which the server reported usage; 0 where it never did."""
    return next((entry.info.tokens.context for entry in reversed(entries) if entry.info.tokens.context), 0)


def _touches(calls: Sequence[Part]) -> Iterator[Touch]:
    for part in calls:
        if part.state is not None and part.state.status != "error":
            yield touch_of_call(part.tool, part.state.input)


def _was_stopped(state: ToolState) -> bool:
    """The call was cut off because the turn was ended, which is not the call's failure."""
    return bool(state.metadata.get("interrupted"))


def _messages(entry: Entry) -> Iterator[Message]:
    info = entry.info
    if info.role == "user":
        texts = [ContentPart(type="text", text=part.text) for part in entry.parts if _is_text(part)]
        yield Message(role="user", content=tuple(texts), created_ms=info.time.created)
        return
    if not entry.is_step:
        return
    yield Message(
        role="assistant",
        content=tuple(_content(entry)),
        sampled=True,
        input_tokens=info.tokens.prompt or None,
        output_tokens=(info.tokens.context - info.tokens.prompt) or None,
        created_ms=info.time.created,
        completed_ms=info.time.completed,
    )
    for part in entry.calls:
        if part.state is not None:
            yield _result(part, part.state)


def _is_text(part: Part) -> bool:
    return part.type == "text" and not part.ignored


def _content(entry: Entry) -> Iterator[ContentPart]:
    for part in entry.parts:
        if part.type == "reasoning" and part.text:
            yield ContentPart(type="reasoning", text=part.text)
        elif part.type == "text" and part.text:
            yield ContentPart(type="text", text=part.text)
        elif part.type == "tool" and part.state is not None:
            arguments = json.dumps(part.state.input, ensure_ascii=False, separators=(",", ":"))
            yield ContentPart(type="tool_call", tool_call_id=part.callID, name=part.tool, arguments=arguments)


def _result(part: Part, state: ToolState) -> Message:
    text = {"completed": state.output, "error": state.error}.get(state.status, INTERRUPTED)
    result = ContentPart(
        type="tool_result",
        tool_call_id=part.callID,
        name=part.tool,
        text=text,
        is_error=state.status != "completed",
    )
    return Message(role="tool", content=(result,), created_ms=state.time.start, completed_ms=state.time.end)
