"""Small finished trees on disk, from a compact description: what ``explore`` would have written.

    write_tree(folder, [N(score=1.0), N(0, 2.0), N(0, 3.0, leaf="open"), N(1, 2.5)])

is a root with score 1, two children of it, and a grandchild below the first.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coral_pipeline import tables
from coral_pipeline.explored import ExploredTree
from coral_pipeline.settings import Direction, orient

ROOT = "eval-000003-agent-1-0123456789ab"


@dataclass(frozen=True)
class N:
    """A node and the edge that made it. Its id is its place in the list; the first is the root, without an edge."""

    parent: int | None = None
    score: float | None = None
    leaf: str | None = None
    """Leaf kind where it has no children; None: ``depth_limit``."""
    steps: int = 1
    cleanliness: float = 1.0
    knowledge: float = 0.4
    soft: float = 0.5
    kept_by: str | None = None


@dataclass(frozen=True)
class Failed:
    """A failed edge out of a node: it made no child. Its edge id comes after those of the nodes."""

    parent: int
    reason: str = "no_score"


def write_tree(
    folder: Path,
    nodes: Sequence[N],
    *,
    failed: Sequence[Failed] = (),
    direction: Direction = "maximize",
    root: str = ROOT,
    student_run: str = "run-a",
    edge_ids: Mapping[int, int] | None = None,
    shuffle: random.Random | None = None,
) -> Path:
    """Write the tree's five tables and ``tree.json`` into ``folder``; returns it.

    Edge ids are node ids less one unless ``edge_ids`` (by child node id) says otherwise. ``shuffle``
    puts the rows of every table in random order.
    """
    node_rows, edge_rows = _tree_rows(nodes, failed, direction, edge_ids)
    edge_of = {row["child_id"]: row["edge_id"] for row in edge_rows}
    for table, rows in (
        (tables.NODES, node_rows),
        (tables.EDGES, edge_rows),
        (tables.TURNS, [_turn_row(edge["edge_id"], turn) for edge in edge_rows for turn in (1, 2)]),
        (tables.ROUNDS, []),
        (tables.MESSAGES, _message_rows(nodes, edge_of)),
    ):
        if shuffle is not None:
            shuffle.shuffle(rows)
        table.write(rows, folder)
    info = {"root": root, "student_run": student_run, "direction": direction, "stop_reason": "exhausted"}
    (folder / "tree.json").write_text(json.dumps(info))
    return folder


def explored(
    nodes: Sequence[N],
    *,
    direction: Direction = "maximize",
    edge_ids: Mapping[int, int] | None = None,
    shuffle: random.Random | None = None,
) -> ExploredTree:
    """The same tree as the stages after the search read it, without a folder."""
    node_rows, edge_rows = _tree_rows(nodes, (), direction, edge_ids)
    if shuffle is not None:
        shuffle.shuffle(node_rows)
        shuffle.shuffle(edge_rows)
    info = {"root": ROOT, "direction": direction}
    return ExploredTree.of_tables(Path("in-memory"), info, tables.NODES.build(node_rows), tables.EDGES.build(edge_rows))


def _tree_rows(
    nodes: Sequence[N], failed: Sequence[Failed], direction: Direction, edge_ids: Mapping[int, int] | None
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The rows of nodes and edges."""
    node_rows = _node_rows(nodes, failed, direction)
    edge_of = {child: child - 1 for child in range(1, len(nodes))} | dict(edge_ids or {})
    edge_rows = [
        _edge_row(edge_of[i], i, n, node_rows[i]["depth"]) for i, n in enumerate(nodes) if n.parent is not None
    ]
    first_failed = max(edge_of.values(), default=-1) + 1
    for k, failure in enumerate(failed):
        depth = node_rows[failure.parent]["depth"] + 1
        edge_rows.append(_failed_row(first_failed + k, failure, depth, len(nodes) + k))
    return node_rows, edge_rows


def _node_rows(nodes: Sequence[N], failed: Sequence[Failed], direction: Direction) -> list[dict[str, Any]]:
    children = [0] * len(nodes)
    failures = [0] * len(nodes)
    for node in nodes[1:]:
        assert node.parent is not None, "only the first node is the root"
        children[node.parent] += 1
    for failure in failed:
        failures[failure.parent] += 1
    rows: list[dict[str, Any]] = []
    for index, node in enumerate(nodes):
        above = rows[node.parent] if node.parent is not None else None
        scores = [s for s in (node.score, above["path_best_score"] if above else None) if s is not None]
        rows.append(
            {
                "node_id": index,
                "parent_id": node.parent,
                "depth": above["depth"] + 1 if above else 0,
                "score": node.score,
                "path_best_score": max(scores, key=lambda s: orient(s, direction)) if scores else 0.0,
                "max_token_total": 1000 * (above["depth"] + 1) if above else 0,
                "valid_children": children[index],
                "failed_expansions": failures[index],
                "leaf_kind": None if children[index] else node.leaf or "depth_limit",
                "kept_by": node.kept_by,
                "commit_hash": None,
                "session_id": None,
            }
        )
    return rows


def _edge_row(edge_id: int, child: int, node: N, depth: int) -> dict[str, Any]:
    return {
        "edge_id": edge_id,
        "parent_id": node.parent,
        "child_id": child,
        "depth": depth,
        "round": depth,
        "expansion": child,
        "failure_reason": None if node.kept_by is None else "no_score",
        "kept_by": node.kept_by,
        "best_score": node.score,
        "improved": False,
        "step_turns": node.steps,
        "tool_calls": 10,
        "failed_tool_calls": 0,
        "tool_error_rate": 0.0,
        "max_token_total": 1000 * depth,
        "has_knowledge_action": False,
        "regressed_rate": 0.0,
        "outcome": 0.7,
        "cleanliness": node.cleanliness,
        "knowledge": node.knowledge,
        "soft": node.soft,
        "seconds": 1.0,
    }


def _failed_row(edge_id: int, failed: Failed, depth: int, expansion: int) -> dict[str, Any]:
    row = _edge_row(edge_id, 0, N(failed.parent), depth)
    parts = dict.fromkeys(("child_id", "best_score", "outcome", "cleanliness", "knowledge", "soft"))
    return row | parts | {"expansion": expansion, "failure_reason": failed.reason}


def _turn_row(edge_id: int, turn: int) -> dict[str, Any]:
    return {
        "edge_id": edge_id,
        "turn": turn,
        "score": None,
        "status": None,
        "commit_hash": None,
        "feedback": None,
        "code_diff": None,
        "step_turns": 1,
        "tool_calls": 5,
        "failed_tool_calls": 0,
        "knowledge_read": False,
        "knowledge_write": False,
        "context_tokens": 1000,
        "seconds": 0.5,
    }


def _message_rows(nodes: Sequence[N], edge_of: Mapping[int, int]) -> list[dict[str, Any]]:
    """Per turn a prompt and an answer; a child's first message follows its parent's last."""
    rows: list[dict[str, Any]] = []
    for child in range(1, len(nodes)):
        parent = nodes[child].parent
        previous = f"n{parent}.t2.assistant" if parent else None
        for turn in (1, 2):
            for role in ("user", "assistant"):
                message_id = f"n{child}.t{turn}.{role}"
                text = f"{role} of turn {turn} towards node {child}"
                rows.append(_message_row(message_id, previous, edge_of[child], turn, role, text))
                previous = message_id
    return rows


def _message_row(message_id: str, parent: str | None, edge_id: int, turn: int, role: str, text: str) -> dict[str, Any]:
    part = {"type": "text", "text": text, "tool_call_id": None, "name": None, "arguments": None, "is_error": None}
    return {
        "message_id": message_id,
        "parent_message_id": parent,
        "edge_id": edge_id,
        "turn": turn,
        "role": role,
        "content": [part],
        "sampled": role == "assistant",
        "input_tokens": None,
        "output_tokens": None,
        "sampled_token_ids": None,
        "sampled_logprobs": None,
        "created_ms": None,
        "completed_ms": None,
    }
