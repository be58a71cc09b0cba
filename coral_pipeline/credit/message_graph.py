"""The message graph of a tree as a verifiers v1 trace (method C7).

One episode with one trace per root: a node per message, forks sharing their prefix, the edge's advantage
on the node in the compact layout. Written in full precision as ``traces.jsonl``, which verifiers' own
``read_episodes`` reads. Written as plain JSON, since importing verifiers would cost every root's run seconds:
what a record does not say has verifiers' own defaults.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from coral_pipeline.chat import chat_messages
from coral_pipeline.conversations import Conversations, TreePath, shared_prefixes
from coral_pipeline.credit.token_table import TokenTable
from coral_pipeline.message_links import Row
from coral_pipeline.tables import text_file

TRACES_FILE = "traces.jsonl"
"""The name verifiers looks for in a folder."""

TASK_TYPE = "coral-root"

Record = dict[str, Any]
"""A verifiers object as JSON. No key is there without a value."""


def write_trace(conversations: Conversations, tokens: TokenTable, paths: Sequence[TreePath], out: Path) -> Path:
    """Write the trace of one tree, alone, as ``traces.jsonl`` in ``out``; returns the file."""
    out.mkdir(parents=True, exist_ok=True)
    with text_file(out / TRACES_FILE) as file:
        file.write(record_line(conversations, tokens, paths))
    return out / TRACES_FILE


def record_line(conversations: Conversations, tokens: TokenTable, paths: Sequence[TreePath]) -> str:
    """The episode as one line of ``traces.jsonl``."""
    record = build_episode(conversations, tokens, paths)
    return json.dumps(record, ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n"


def build_episode(conversations: Conversations, tokens: TokenTable, paths: Sequence[TreePath]) -> Record:
    """The messages on ``paths`` as a verifiers ``Episode``.

    Nodes come path by path, so ``Trace.branches`` are the paths in their order (those with messages of their
    own). ``info["branches"]`` says of each which leaf it leads to and how many of its first nodes and tokens an
    earlier branch already carries: a trainer that takes every branch skips these, or shared tokens train more
    than once. ``info["message_ids"]`` and ``info["edge_ids"]`` are parallel to ``Trace.nodes``.
    """
    routes = [conversations.path(path.edge_ids) for path in paths]
    nodes, calls, position_of_node = _nodes(conversations, tokens, routes)
    key = f"{conversations.student_run}|{conversations.root}"
    task = {
        "type": TASK_TYPE,
        "data": {"id": key, "name": conversations.root},
        "key": key,
        "hash": _digest(key),
    }
    trace = {
        "version": 1,
        "id": _digest(key, "trace"),
        "task": task,
        "agent": {"config": {"runtime": {"type": "subprocess"}}, "name": "teacher"},
        "nodes": nodes,
        "calls": calls,
        "info": {
            "student_run": conversations.student_run,
            "root": conversations.root,
            "direction": conversations.tree.direction,
            "tokenizer": tokens.tokenizer,
            "message_ids": [conversations.rows[p]["message_id"] for p in position_of_node],
            "edge_ids": [conversations.rows[p]["edge_id"] for p in position_of_node],
            "branches": _branches(conversations, tokens, paths, routes),
        },
        "is_completed": True,
        "ok": True,
        **_given(stop_condition=conversations.info.get("stop_reason")),
        "timing": {"start": min((node["timestamp"] for node in nodes), default=0.0)},
    }
    return {"id": _digest(key, "episode"), "env": {"id": "coral-pipeline"}, "task": task, "ok": True, "traces": [trace]}


def _digest(*parts: str) -> str:
    """An id that is the same in every run."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def _given(**values: Any) -> Record:
    """Those that have a value."""
    return {key: value for key, value in values.items() if value is not None}


def _nodes(
    conversations: Conversations, tokens: TokenTable, routes: Sequence[Sequence[int]]
) -> tuple[list[Record], list[Record], list[int]]:
    """Each ``MessageNode`` of the messages on the routes, each ``ModelCall``, and per node its message's position.

    A message with several tool results makes as many nodes, since a verifiers message holds one; its
    tokens are on the first.
    """
    nodes: list[Record] = []
    calls: list[Record] = []
    position_of_node: list[int] = []
    last_node_of: dict[int, int] = {}
    for route in routes:
        previous: int | None = None
        for position in route:
            if position not in last_node_of:
                row = conversations.rows[position]
                if row["sampled"] and (call := _call(row, len(nodes))):
                    calls.append(call)
                credit = _credit(tokens, tokens.places([row])[0])
                for message in _messages(row):
                    node = {
                        "message": message,
                        "sampled": row["sampled"],
                        "timestamp": (row["completed_ms"] or row["created_ms"] or 0) / 1000,
                        **credit,
                    }
                    credit = {}
                    if previous is not None:
                        node["parent"] = previous
                    elif conversations.tools:
                        node["tools"] = [tool.get("function", tool) for tool in conversations.tools]
                    previous = len(nodes)
                    nodes.append(node)
                    position_of_node.append(position)
                last_node_of[position] = len(nodes) - 1
            previous = last_node_of[position]
    return nodes, calls, position_of_node


def _credit(tokens: TokenTable, place: int) -> Record:
    """The tokens of a message and their credit."""
    logprobs, advantages = tokens.logprobs(place), tokens.advantages(place)
    return {
        "token_ids": tokens.token_ids(place).tolist(),
        "mask": tokens.mask(place).tolist(),
        **_given(
            logprobs=None if logprobs is None else logprobs.tolist(),
            advantages=None if advantages is None else advantages.tolist(),
        ),
    }


def _messages(row: Row) -> list[Record]:
    """The message as verifiers' own, tool-call arguments as the Teacher wrote them."""
    messages = chat_messages(row)
    for message in messages:
        if message["role"] == "assistant":
            if not message["content"]:
                del message["content"]
            if "tool_calls" in message:
                message["tool_calls"] = [_tool_call(part) for part in row["content"] if part["type"] == "tool_call"]
    return messages


def _tool_call(part: Mapping[str, Any]) -> Record:
    arguments = "{}" if part["arguments"] is None else part["arguments"]
    return {"id": part["tool_call_id"] or "", "name": part["name"], "arguments": arguments}


def _call(row: Row, node: int) -> Record | None:
    """The model call behind a sampled message, where its token counts were reported."""
    if row["input_tokens"] is None or row["output_tokens"] is None:
        return None
    return {
        "node": node,
        "usage": {"prompt_tokens": row["input_tokens"], "completion_tokens": row["output_tokens"]},
        "time": {"start": (row["created_ms"] or 0) / 1000, "end": (row["completed_ms"] or 0) / 1000},
    }


def _branches(
    conversations: Conversations, tokens: TokenTable, paths: Sequence[TreePath], routes: Sequence[Sequence[int]]
) -> list[dict[str, Any]]:
    inner = {position for route in routes for position in route[:-1]}
    branches = []
    for path, route, shared in zip(paths, routes, shared_prefixes(routes), strict=True):
        if not route or route[-1] in inner or shared == len(route):
            continue  # Without messages of its own it ends inside another branch, or is the same as one before.
        carried = [conversations.rows[position] for position in route[:shared]]
        branches.append(
            dict(path.columns)
            | {
                "leaf_id": path.leaf_id,
                "edge_ids": list(path.edge_ids),
                "shared_nodes": sum(len(chat_messages(row)) for row in carried),
                "shared_tokens": sum(len(tokens.token_ids(place)) for place in tokens.places(carried)),
            }
        )
    return branches
