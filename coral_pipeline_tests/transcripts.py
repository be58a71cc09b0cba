"""Transcripts for the trees of ``trees.py``: what agents say, in the typed parts of ``messages.parquet``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from coral_pipeline import tables
from coral_pipeline.paths.rank import rank_paths
from coral_pipeline.settings import PathSettings
from coral_pipeline_tests.trees import Failed, N, write_tree

Row = dict[str, Any]


def part(type: str, **fields: Any) -> Row:
    names = ("text", "tool_call_id", "name", "arguments", "is_error")
    return {"type": type} | {name: fields.get(name) for name in names}


def text(words: str) -> Row:
    return part("text", text=words)


def thought(words: str) -> Row:
    return part("reasoning", text=words)


def call(call_id: str, name: str, arguments: Any) -> Row:
    """``arguments``: an object, or the text the model wrote."""
    written = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return part("tool_call", tool_call_id=call_id, name=name, arguments=written)


def result(call_id: str, name: str, words: str, is_error: bool = False) -> Row:
    return part("tool_result", tool_call_id=call_id, name=name, text=words, is_error=is_error)


def message(message_id: str, parent: str | None, edge_id: int, role: str, *content: Row, **fields: Any) -> Row:
    """A row of ``messages.parquet``; assistants are sampled unless ``fields`` say otherwise."""
    row = dict.fromkeys(column.name for column in tables.MESSAGES.columns)
    return row | {
        "message_id": message_id,
        "parent_message_id": parent,
        "edge_id": edge_id,
        "turn": 1,
        "role": role,
        "content": list(content),
        "sampled": role == "assistant",
        **fields,
    }


def edge_messages(edge_id: int, previous: str | None) -> list[Row]:
    """Two turns of an edge, tools with different arguments in each; message ids are ``e<edge>.<place>``."""
    said = f"of edge {edge_id}"
    spoken: list[tuple[Any, ...]] = [
        ("user", text(f"Improve the program, please ({said}).")),
        (
            "assistant",
            thought("Perhaps the step is too small."),
            text("Let me look."),
            call("a", "read", {"filePath": "solution.py", "limit": edge_id}),
        ),
        ("tool", result("a", "read", "step = 0.1\n")),
        ("assistant", call("b", "bash", {"command": f"sed -i s/0.1/0.{edge_id}/ solution.py"})),
        ("tool", result("b", "bash", "sed: no such file", is_error=True)),
        ("assistant", text(f"Nothing gained ({said}). Größe: 1 µm 🙂")),
        ("user", text("score 1.5; go on")),
        ("assistant", text(""), call("c", "write", {"filePath": "n.md", "lines": ["a"], "options": {"mode": None}})),
        ("tool", result("c", "write", "")),
        ("assistant", text("Done.")),
    ]
    rows = []
    for place, (role, *content) in enumerate(spoken):
        message_id = f"e{edge_id}.{place}"
        times = {"created_ms": 1000, "completed_ms": 2000}
        turn = 1 if place < 6 else 2
        rows.append(message(message_id, previous, edge_id, role, *content, turn=turn, **times))
        previous = message_id
    return rows


NODES = [N(score=1.0), N(0, 2.0), N(0, 1.5), N(1, 2.5), N(1, 3.0), N(2, 1.0, leaf="open")]
"""Edges 0 and 1 leave the root, 2 and 3 continue edge 0, 4 continues edge 1; edge 5 leaves node 1 and fails.

Paths to good leaves: 0–2 (leaf 3) and 0–3 (leaf 4, the better one); the path 1–4 (leaf 5) is open.
"""
FAILED_EDGE = 5


def write_talking_tree(folder: Path, rows: Iterable[Row] | None = None, **options: Any) -> Path:
    """The tree of ``NODES`` with transcripts: ``edge_messages`` of every edge, or ``rows``."""
    write_tree(folder, NODES, failed=[Failed(1)], **options)
    tables.MESSAGES.write(talking_rows() if rows is None else rows, folder)
    return folder


def talking_rows() -> list[Row]:
    rows: list[Row] = []
    for edge_id, before in ((0, None), (1, None), (2, 0), (3, 0), (4, 1), (FAILED_EDGE, 0)):
        rows += edge_messages(edge_id, None if before is None else f"e{before}.9")
    return rows


def changed(rows: Sequence[Row], message_id: str, **fields: Any) -> list[Row]:
    """The rows with fields of one message replaced."""
    assert any(row["message_id"] == message_id for row in rows)
    return [row | fields if row["message_id"] == message_id else row for row in rows]


def write_ranked(tree: Path, folder: Path) -> Path:
    """``ranked_paths`` of the tree, as the stage computes it."""
    tables.RANKED_PATHS.write(rank_paths(tree, PathSettings()), folder)
    return folder


ADVANTAGES: dict[int, float | None] = {0: 0.1, 1: 0.0, 2: 1 / 3, 3: None, 4: -2.5}
"""Given, zero and unassigned credit for the searched edges of ``NODES``."""
