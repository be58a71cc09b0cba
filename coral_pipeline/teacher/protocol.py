"""What the search asks of a Teacher, and what it gets back.

The search forks a state, asks for Rollout Turns one at a time, and releases states it will never fork
again. Which turns are run, what fails and what is kept is the search's business (method T3, T4); how a
turn is run is the Teacher's.
"""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from typing import Annotated, Any, Literal, Protocol

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from coral_pipeline.errors import PipelineError
from coral_pipeline.scores import numeric as numeric


class InfrastructureFault(Exception):
    """The turn could not be carried out and says nothing about the node (method T5).

    Model endpoint unreachable, agent runtime or sandbox that would not start, disk full, killed by the
    orchestrator. The search retries with back-off.
    """


class TeacherError(PipelineError):
    """The Teacher cannot answer and a retry would not help (for example an edge missing from a script)."""


class Stopped(Exception):
    """The turn was given up because ``stop`` was set; what it had begun has been undone or will be redone."""


def _storable(value: object) -> object:
    """Text with the lone surrogates that a cut emoji leaves, which no UTF-8 file can hold, as U+FFFD."""
    if isinstance(value, str) and not value.isascii():
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return value


Text = Annotated[str, BeforeValidator(_storable)]
"""Text that agents and tools wrote."""
Count = Annotated[int, Field(ge=0, le=2**53)]
"""Tokens, calls, milliseconds; what the tables can hold and a sum of them as well."""
TokenId = Annotated[int, Field(ge=0, lt=2**31)]


class _Record(BaseModel):
    # NaN and infinities as such: what the journal gives back must equal what was put in.
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, ser_json_inf_nan="constants")


class ContentPart(_Record):
    """One part of a message, as in ``tables.CONTENT_PART``."""

    type: Literal["text", "reasoning", "tool_call", "tool_result"]
    text: Text | None = None
    """The text; of a tool_result, the tool's output. None for a tool_call."""
    tool_call_id: Text | None = None
    name: Text | None = None
    """Name of the tool."""
    arguments: Text | None = None
    """Arguments of a tool_call: a JSON object, as a string."""
    is_error: bool | None = None
    """Of a tool_result: the runtime reported the call itself as an error."""


class Message(_Record):
    """One message of a session; its predecessor is the message before it, across turns and edges."""

    role: Literal["system", "user", "assistant", "tool"]
    content: tuple[ContentPart, ...]
    sampled: bool = False
    """The Teacher produced it; False for prompts and tool results."""
    input_tokens: Count | None = None
    output_tokens: Count | None = None
    sampled_token_ids: tuple[TokenId, ...] | None = None
    """Exact ids of the sampled tokens where the endpoint recorded them."""
    sampled_logprobs: tuple[float, ...] | None = None
    """One per entry of ``sampled_token_ids``."""
    created_ms: Count | None = None
    completed_ms: Count | None = None


class Turn(_Record):
    """One finished Rollout Turn: work, one eval, its score."""

    score: Annotated[float | None, BeforeValidator(numeric)] = None
    """Raw score the grader gave; None where there was no eval or no numeric score."""
    status: Text | None = None
    commit_hash: str | None = None
    feedback: Text | None = None
    code_diff: Text | None = None
    """Unified diff of the graded commit against the code the turn began with; None: no commit, or none told."""
    step_turns: Count
    tool_calls: Count
    failed_tool_calls: Count
    """Calls the agent runtime itself reported as errors (method T2)."""
    knowledge_read: bool
    knowledge_write: bool
    context_tokens: Count
    """Context length of the session when the turn ended."""
    seconds: float = Field(ge=0)
    session_id: str | None = None
    state: str | None = None
    """The Teacher's own name of the state after this turn; later forks start from it. Must outlive the process."""
    messages: tuple[Message, ...] = ()
    """What this turn added to the session, in order."""
    tools: tuple[dict[str, Any], ...] | None = None
    """Definitions of the tools the agent was given, as OpenAI has them; told by first turns alone. None: not told."""


class EdgeRequest(_Record):
    """Which logical edge: unique within a root's tree and the same in every run of it."""

    root: str
    """Key of the root, for errors and for naming things on disk."""
    path: tuple[int, ...]
    """Expansion ordinals of the edges that lead from the root to the parent node; () is the root itself."""
    expansion: int
    """Ordinal of this fork among all forks taken from the parent node."""

    @property
    def name(self) -> str:
        """A name for messages and files: ``0.1`` is the second fork of the node that the root's first fork made."""
        return ".".join(map(str, (*self.path, self.expansion)))


class Fork(Protocol):
    """A forked state in which the Teacher works."""

    def run_turn(self, turn: int) -> Turn:
        """Run Rollout Turn ``turn`` (1 or 2) to its end and return it.

        Raises ``InfrastructureFault`` (method T5), ``Stopped`` soon after the stop event is set, or
        ``TeacherError``. The state the turn started from is never changed.
        """


class Teacher(Protocol):
    """Explores from states. Called from several threads at once."""

    name: str
    """Short name, as in ``--teacher``."""

    def describe(self) -> dict[str, Any]:
        """Settings and versions that decide what the Teacher answers: JSON values. Part of the journal's identity."""

    def fork(self, edge: EdgeRequest, state: str | None, stop: threading.Event) -> AbstractContextManager[Fork]:
        """A fresh fork of ``state`` (None: the root's) for ``edge``.

        ``state`` is the parent node's, or, where an edge is taken up again after its first turn, that
        turn's. Whatever an earlier, unfinished try of the same edge left behind is discarded. Leaving the
        context ends every process of the fork.
        """

    def release(self, state: str | None) -> None:
        """The state (None: the root's) will never be forked again. Called once, perhaps again after a resume."""
