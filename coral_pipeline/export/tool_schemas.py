"""Tool definitions for a tree's samples: those the Teacher was given, else what its calls show of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from coral_pipeline.chat import parse_arguments
from coral_pipeline.conversations import Conversations
from coral_pipeline.message_links import Row

JSON_TYPES: tuple[tuple[type, str], ...] = (
    (bool, "boolean"),
    (int, "integer"),
    (float, "number"),
    (str, "string"),
    (list, "array"),
    (dict, "object"),
    (type(None), "null"),
)
"""Types of parsed JSON values, ``bool`` before ``int``, which it is one of."""


def tools_of(conversations: Conversations) -> list[Any]:
    """The tools of the tree as OpenAI function definitions, the same for all its paths.

    ``tree.json``'s ``tools`` where it has them. Otherwise each tool is described by the calls made of it
    anywhere in the tree: a parameter for every argument seen, with the JSON types it had, required where
    no call left it out. Such a definition has no description and knows nothing of arguments never used.
    """
    return conversations.tools or [
        _definition(name, calls) for name, calls in sorted(_calls(conversations.rows).items())
    ]


def _calls(rows: Iterable[Row]) -> dict[str, list[dict[str, Any]]]:
    """Arguments of every call that can be parsed, by tool; tools known by their results only have no calls."""
    calls: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        for part in row["content"] or ():
            if part["type"] in ("tool_call", "tool_result") and part["name"]:
                seen = calls.setdefault(part["name"], [])
                if part["type"] == "tool_call" and (arguments := parse_arguments(part["arguments"])) is not None:
                    seen.append(arguments)
    return calls


def _definition(name: str, calls: list[dict[str, Any]]) -> dict[str, Any]:
    names = dict.fromkeys(argument for call in calls for argument in call)
    properties = {argument: _schema(call[argument] for call in calls if argument in call) for argument in sorted(names)}
    required = [argument for argument in properties if all(argument in call for call in calls)]
    parameters: Mapping[str, Any] = {"type": "object", "properties": properties, "required": required}
    return {"type": "function", "function": {"name": name, "description": "", "parameters": parameters}}


def _schema(values: Iterable[Any]) -> dict[str, Any]:
    """The JSON types the values have: one name, or a list of them."""
    found = {next(name for kind, name in JSON_TYPES if isinstance(value, kind)) for value in values}
    types = [name for _, name in JSON_TYPES if name in found]
    return {"type": types[0] if len(types) == 1 else types}
