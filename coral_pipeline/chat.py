"""Messages of a tree as OpenAI chat messages: plain dicts, no key without a value, content always a string."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from coral_pipeline.message_links import Row

UNPARSED = "unparsed_arguments"
"""The one key of a tool call's arguments where the Teacher's text is not a JSON object: it holds that text."""


def chat_messages(row: Row) -> list[dict[str, Any]]:
    """The message as chat messages: one, or one per tool result where it holds several.

    Keys: ``role`` and ``content``; of an assistant ``reasoning_content`` and ``tool_calls`` (arguments as
    objects) where it has any; of a tool result ``tool_call_id`` and ``name``. Several texts of one message
    are joined by a newline.
    """
    parts = row["content"] or ()
    if row["role"] == "tool":
        return [_tool_message(part) for part in parts]
    message: dict[str, Any] = {"role": row["role"], "content": text_of(row, "text")}
    if any(part["type"] == "reasoning" for part in parts):
        message["reasoning_content"] = text_of(row, "reasoning")
    calls = [_tool_call(part) for part in parts if part["type"] == "tool_call"]
    if calls:
        message["tool_calls"] = calls
    return [message]


def text_of(row: Row, part_type: str) -> str:
    """The texts of the message's parts of one type, joined by a newline."""
    return "\n".join(part["text"] or "" for part in row["content"] or () if part["type"] == part_type)


def parse_arguments(text: str | None) -> dict[str, Any] | None:
    """The arguments of a tool call as an object; None where the text is not a JSON object. Nothing is no arguments."""
    if not text:
        return {}
    try:
        value = json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is out of range")
    return number


def _tool_call(part: Mapping[str, Any]) -> dict[str, Any]:
    arguments = parse_arguments(part["arguments"])
    if arguments is None:
        arguments = {UNPARSED: part["arguments"]}
    function = {"name": part["name"], "arguments": arguments}
    return {"id": part["tool_call_id"] or "", "type": "function", "function": function}


def _tool_message(part: Mapping[str, Any]) -> dict[str, Any]:
    message = {"role": "tool", "content": part["text"] or "", "tool_call_id": part["tool_call_id"] or ""}
    return message | {"name": part["name"]} if part["name"] else message
