"""The message graph of a tree as a verifiers v1 trace (method C7).

One episode with one trace per root: a node per message, forks sharing their prefix, the edge's advantage
on the node in the compact layout. Written in full precision as ``traces.jsonl``, which verifiers' own
``read_episodes`` reads. verifiers takes seconds to import, so it is imported where it is used.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coral_pipeline.chat import chat_messages
from coral_pipeline.conversations import Conversations, TreePath, shared_prefixes
from coral_pipeline.credit.token_table import TokenTable
from coral_pipeline.message_links import Row
from coral_pipeline.tables import text_file

if TYPE_CHECKING:
    from verifiers.v1.episode import WireEpisode
    from verifiers.v1.graph import MessageNode
    from verifiers.v1.trace import ModelCall

TRACES_FILE = "traces.jsonl"
"""The name verifiers looks for in a folder."""

TASK_TYPE = "coral-root"


def write_trace(conversations: Conversations, tokens: TokenTable, paths: Sequence[TreePath], out: Path) -> Path:
    """Write the trace of one tree, alone, as ``traces.jsonl`` in ``out``; returns the file."""
    out.mkdir(parents=True, exist_ok=True)
    with text_file(out / TRACES_FILE) as file:
        file.write(record_line(conversations, tokens, paths))
    return out / TRACES_FILE


def record_line(conversations: Conversations, tokens: TokenTable, paths: Sequence[TreePath]) -> str:
    """The episode as one line of ``traces.jsonl``. verifiers rounds floats to four digits unless told not to."""
    record = build_episode(conversations, tokens, paths).to_record(float_decimals=None)
    return json.dumps(record, ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n"


def build_episode(conversations: Conversations, tokens: TokenTable, paths: Sequence[TreePath]) -> WireEpisode:
    """The messages on ``paths`` as a verifiers episode.

    Nodes come path by path, so ``Trace.branches`` are the paths in their order (those with messages of their
    own). ``info["branches"]`` says
    of each which leaf it leads to and how many of its first nodes and tokens an earlier branch already
    carries: a trainer that takes every branch skips these, or shared tokens train more than once.
    ``info["message_ids"]`` and ``info["edge_ids"]`` are parallel to ``Trace.nodes``.
    """
    from verifiers.v1.configs.agent import WireAgentConfig
    from verifiers.v1.episode import EnvInfo, WireEpisode
    from verifiers.v1.runtimes import SubprocessConfig
    from verifiers.v1.task import WireTaskData
    from verifiers.v1.trace import AgentInfo, Timing, TraceTask, WireTrace

    routes = [conversations.path(path.edge_ids) for path in paths]
    nodes, calls, position_of_node = _nodes(conversations, tokens, routes)
    key = f"{conversations.student_run}|{conversations.root}"
    task = TraceTask[WireTaskData](
        type=TASK_TYPE, data=WireTaskData(id=key, name=conversations.root), key=key, hash=_digest(key)
    )
    agent = AgentInfo[WireAgentConfig](config=WireAgentConfig(runtime=SubprocessConfig()), name="teacher")
    trace = WireTrace(
        id=_digest(key, "trace"),
        task=task,
        agent=agent,
        nodes=nodes,
        calls=calls,
        info={
            "student_run": conversations.student_run,
            "root": conversations.root,
            "direction": conversations.tree.direction,
            "tokenizer": tokens.tokenizer,
            "message_ids": [conversations.rows[p]["message_id"] for p in position_of_node],
            "edge_ids": [conversations.rows[p]["edge_id"] for p in position_of_node],
            "branches": _branches(conversations, tokens, paths, routes),
        },
        is_completed=True,
        ok=True,
        stop_condition=conversations.info.get("stop_reason"),
        timing=Timing(start=min((node.timestamp for node in nodes), default=0.0)),
    )
    return WireEpisode(id=_digest(key, "episode"), env=EnvInfo(id="coral-pipeline"), task=task, ok=True, traces=[trace])


def _digest(*parts: str) -> str:
    """An id that is the same in every run."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def _nodes(
    conversations: Conversations, tokens: TokenTable, routes: Sequence[Sequence[int]]
) -> tuple[list[MessageNode], list[ModelCall], list[int]]:
    """Nodes of the messages on the routes, their model calls, and per node the position of its message.

    A message with several tool results makes as many nodes, since a verifiers message holds one; its
    tokens are on the first.
    """
    from verifiers.v1.graph import MessageNode
    from verifiers.v1.types import Tool

    nodes: list[MessageNode] = []
    calls: list[ModelCall] = []
    position_of_node: list[int] = []
    last_node_of: dict[int, int] = {}
    for route in routes:
        previous: int | None = None
        for position in route:
            if position not in last_node_of:
                row = conversations.rows[position]
                place = tokens.places([row])[0]
                if row["sampled"] and (call := _call(row, len(nodes))):
                    calls.append(call)
                for part, message in enumerate(_messages(row)):
                    node = MessageNode(
                        parent=previous,
                        message=message,
                        sampled=row["sampled"],
                        timestamp=(row["completed_ms"] or row["created_ms"] or 0) / 1000,
                    )
                    if part == 0:
                        _stamp(node, tokens, place)
                    if previous is None:
                        node.tools = [Tool(**tool.get("function", tool)) for tool in conversations.tools or ()]
                    previous = len(nodes)
                    nodes.append(node)
                    position_of_node.append(position)
                last_node_of[position] = len(nodes) - 1
            previous = last_node_of[position]
    return nodes, calls, position_of_node


def _stamp(node: MessageNode, tokens: TokenTable, place: int) -> None:
    """Put the message's tokens and credit on its node."""
    logprobs, advantages = tokens.logprobs(place), tokens.advantages(place)
    node.token_ids = tokens.token_ids(place).tolist()
    node.mask = tokens.mask(place).tolist()
    node.logprobs = [] if logprobs is None else logprobs.tolist()
    node.advantages = None if advantages is None else advantages.tolist()


def _messages(row: Row) -> list[Any]:
    """The message in verifiers' types; tool-call arguments as the Teacher wrote them."""
    from verifiers.v1.types import AssistantMessage, SystemMessage, ToolCall, ToolMessage, UserMessage

    messages: list[Any] = []
    for chat in chat_messages(row):
        content = chat["content"]
        match chat["role"]:
            case "system":
                messages.append(SystemMessage(content=content))
            case "user":
                messages.append(UserMessage(content=content))
            case "tool":
                tool_call_id = chat["tool_call_id"]
                messages.append(ToolMessage(content=content, tool_call_id=tool_call_id, name=chat.get("name")))
            case _:
                parts = [part for part in row["content"] or () if part["type"] == "tool_call"]
                tool_calls = [
                    ToolCall(id=part["tool_call_id"] or "", name=part["name"], arguments=_arguments(part))
                    for part in parts
                ]
                messages.append(
                    AssistantMessage(
                        content=content or None,
                        reasoning_content=chat.get("reasoning_content"),
                        tool_calls=tool_calls or None,
                    )
                )
    return messages


def _arguments(part: Mapping[str, Any]) -> str:
    return "{}" if part["arguments"] is None else str(part["arguments"])


def _call(row: Row, node: int) -> ModelCall | None:
    """The model call behind a sampled message, where its token counts were reported."""
    from verifiers.v1.trace import ModelCall, TimeSpan
    from verifiers.v1.types import Usage

    if row["input_tokens"] is None or row["output_tokens"] is None:
        return None
    return ModelCall(
        node=node,
        usage=Usage(prompt_tokens=row["input_tokens"], completion_tokens=row["output_tokens"]),
        time=TimeSpan(start=(row["created_ms"] or 0) / 1000, end=(row["completed_ms"] or 0) / 1000),
    )


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
