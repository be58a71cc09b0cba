"""Model calls as they went over the wire: what was asked, what was answered, which tokens were sampled.

Calls of a turn are kept in one compressed file, a JSON object per line: ``request`` (the body as it was
sent on), ``response`` (the body as it came), ``status``, ``outcome`` and times. Headers, and so keys, are not kept;
bodies neither, once a turn has had ``KEPT_BYTES`` of them.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from coral_pipeline.teacher.opencode.packed import pack
from coral_pipeline.teacher.protocol import Message

Outcome = Literal["ok", "fault", "refused", "cut", "closing"]
"""``fault``: the server's failure · ``refused``: a 4xx answer · ``cut``: the agent or we ended it · ``closing``:
answered here, to end the turn."""

KEPT_BYTES = 1 << 29
"""Of the bodies of a turn's calls: programs of the agent can ask, too, and without end."""
_SAID_BYTES = 1 << 16
_DATE = re.compile(r"(Today's date: )[A-Z][a-z]{2} [A-Z][a-z]{2} \d{1,2} \d{4}")


@dataclass
class Call:
    """One request of the agent and its answer."""

    request: bytes
    started: float
    """Unix time."""
    status: int = 0
    """HTTP status of the last try; 0: none came."""
    response: bytearray = field(default_factory=bytearray)
    outcome: Outcome = "cut"
    problem: str = ""
    sampled: Sampled | None = None
    """What the answer says, where it came whole."""
    first_byte: float | None = None
    ended: float | None = None
    tries: int = 0
    failing_since: float | None = None
    """When the first of the tries began that the server failed, by the monotonic clock; None: it failed none."""
    failing_until: float | None = None
    """When the server was asked no more, or answered after all; None: not yet."""

    def drop_bodies(self) -> None:
        """Keep no more than numbers."""
        self.request, self.response = b"", bytearray()


@dataclass(frozen=True)
class Sampled:
    """What an answer's stream says of tokens."""

    complete: bool
    """It came to its end: a reason to finish was given."""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    ids: tuple[int, ...] | None = None
    logprobs: tuple[float, ...] | None = None


class BrokenStream(ValueError):
    """The answer is no stream of chat completion chunks."""


def read_stream(response: bytes | bytearray) -> Sampled:
    """What a streamed answer says. Raises ``BrokenStream`` where a line of it cannot be read."""
    ids: list[int] = []
    logprobs: list[float] = []
    usage: dict[str, Any] = {}
    complete = False
    for chunk in _chunks(response):
        usage = chunk.get("usage") or usage
        for choice in chunk.get("choices") or ():
            complete = complete or choice.get("finish_reason") is not None
            ids += choice.get("token_ids") or choice.get("response_token_ids") or ()
            logprobs += _logprobs(choice)
    details = usage.get("prompt_tokens_details") or {}
    return Sampled(
        complete=complete,
        prompt_tokens=usage.get("prompt_tokens"),
        completion_tokens=usage.get("completion_tokens"),
        cached_tokens=details.get("cached_tokens"),
        ids=tuple(ids) or None,
        logprobs=tuple(logprobs) if ids and len(logprobs) == len(ids) else None,
    )


def _chunks(response: bytes | bytearray) -> Iterator[dict[str, Any]]:
    for line in response.splitlines():
        if not line.startswith(b"data:"):
            continue
        data = line[5:].strip()
        if data == b"[DONE]":
            continue
        try:
            chunk = json.loads(data)
        except ValueError as error:
            raise BrokenStream(f"a line of the answer is no JSON: {_said(data)}") from error
        if not isinstance(chunk, dict):
            raise BrokenStream(f"a line of the answer is no object: {_said(data)}")
        if "error" in chunk and "choices" not in chunk:
            raise BrokenStream(f"the server broke off: {_said(data)}")
        yield chunk


def _said(data: bytes | bytearray) -> str:
    """Not cut short for a reader: first, a key is taken out."""
    return data[:_SAID_BYTES].decode("utf-8", "replace")


def _logprobs(choice: dict[str, Any]) -> list[float]:
    listed = (choice.get("logprobs") or {}).get("content") or ()
    return [float(entry["logprob"]) for entry in listed]


def with_tokens(messages: Sequence[Message], calls: Sequence[Call]) -> tuple[Message, ...]:
    """The turn's messages, the sampled ones with the exact tokens of the calls that made them.

    Sampled messages follow each other as their answers do, among which may be some to programs of the agent:
    a message's is the next with the same numbers of tokens, prompt and completion. Where there is none, it gets none.
    """
    answers = [call.sampled for call in calls if call.sampled is not None]
    found: list[Message] = []
    for message in messages:
        numbers = (message.input_tokens, message.output_tokens) if message.sampled else None
        fitting = (i for i, said in enumerate(answers) if (said.prompt_tokens, said.completion_tokens) == numbers)
        if (index := next(fitting, None)) is not None:
            answer, answers = answers[index], answers[index + 1 :]
            if answer.ids:
                update = {"sampled_token_ids": answer.ids, "sampled_logprobs": answer.logprobs}
                message = message.model_copy(update=update)
        found.append(message)
    return tuple(found)


def failing_seconds(calls: Sequence[Call]) -> float:
    """For how long, in all, calls waited for a server that had failed them."""
    now = time.monotonic()
    spans = [(call.failing_since, call.failing_until or now) for call in calls if call.failing_since is not None]
    seconds = reached = 0.0
    for since, until in sorted(spans):
        seconds += max(0.0, until - max(since, reached))
        reached = max(reached, until)
    return seconds


def prompt_text(request: bytes) -> str:
    """The part of a request that becomes the prompt, so that a longer conversation's begins with a shorter one's."""
    body = json.loads(request)
    return json.dumps([body.get("tools"), body["messages"]], ensure_ascii=False)[:-2]


def shared_share(parent: str, text: str) -> float:
    """Which share of a prompt is the beginning of its parent's, in characters."""
    low, high = 0, min(len(parent), len(text))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if parent[:middle] == text[:middle] else (low, middle - 1)
    return low / len(text) if text else 0.0


def with_fixed_date(messages: Sequence[dict[str, Any]], date: str) -> None:
    """Put ``date`` in place of today's in the system prompt, so that midnight does not end a shared prefix."""
    for message in messages:
        if message.get("role") == "system" and isinstance(message.get("content"), str):
            message["content"] = _DATE.sub(lambda match: match.group(1) + date, message["content"])


def without_key(text: str, key: str) -> str:
    """The text without the model server's key: servers and proxies repeat it in what they say of it."""
    return text.replace(key, "[key]") if key else text


def write_calls(path: Path, calls: Sequence[Call], key: str) -> None:
    """Keep the calls in ``path`` (JSON Lines, zstd); should the key have found its way into a text, it is taken out."""

    def clean(data: bytes | bytearray) -> str:
        return without_key(bytes(data).decode("utf-8", "replace"), key)

    lines = []
    for call in calls:
        record = {
            "started": call.started,
            "first_byte": call.first_byte,
            "ended": call.ended,
            "status": call.status,
            "tries": call.tries,
            "outcome": call.outcome,
            "problem": clean(call.problem.encode()),
            "request": clean(call.request),
            "response": clean(call.response),
        }
        lines.append(json.dumps(record, ensure_ascii=False).encode() + b"\n")
    pack(path, b"".join(lines))
