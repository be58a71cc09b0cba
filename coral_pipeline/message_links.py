"""The messages of a tree as they lie on disk: roles and parts checked, and put in order along the edges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from coral_pipeline import tables
from coral_pipeline.errors import BadInput
from coral_pipeline.teacher.protocol import ContentPart
from coral_pipeline.tree_file import REMAKE

Row = Mapping[str, Any]
"""A row of ``tables.MESSAGES``."""

PART_TYPES: tuple[str, ...] = get_args(ContentPart.model_fields["type"].annotation)
ROLE_PARTS: Mapping[str, tuple[str, ...]] = {
    "system": ("text",),
    "user": ("text",),
    "assistant": ("text", "reasoning", "tool_call"),
    "tool": ("tool_result",),
}
"""The parts a message of each role may have."""


def message_rows(folder: Path) -> list[dict[str, Any]]:
    """The rows of ``messages.parquet`` in ``folder``; ``BadInput`` for a role or part that cannot be."""
    file = folder / tables.MESSAGES.file_name
    try:
        rows = tables.MESSAGES.rows(folder)
    except UnicodeDecodeError as error:
        raise BadInput(file, f"holds text that is not UTF-8 ({error.reason})", REMAKE) from error
    for row in rows:
        thing = f"{file}, message {row['message_id']}"
        allowed = ROLE_PARTS.get(row["role"])
        if allowed is None:
            raise BadInput(thing, f"has the unknown role {row['role']!r}", f"expected one of {', '.join(ROLE_PARTS)}")
        for part in row["content"] or ():
            if part["type"] not in PART_TYPES:
                problem = f"has a part of the unknown type {part['type']!r}"
                raise BadInput(thing, problem, f"expected one of {', '.join(PART_TYPES)}")
            if part["type"] not in allowed:
                raise BadInput(thing, f"{part['type']} in a message of role {row['role']}", REMAKE)
            if part["type"] == "tool_call" and not part["name"]:
                raise BadInput(thing, "has a tool call without a name", REMAKE)
        if row["role"] == "tool" and not row["content"]:
            raise BadInput(thing, "has role tool but no tool_result", REMAKE)
        if row["sampled"] and row["role"] != "assistant":
            raise BadInput(thing, f"is sampled but its role is {row['role']}", REMAKE)
    return rows


def chains(folder: Path, rows: Sequence[Row], edge_paths: Mapping[int, tuple[int, ...]]) -> dict[int, tuple[int, ...]]:
    """The positions of each edge's messages in order, its first one following the last one on the path before it.

    ``edge_paths``: for every edge, the edges from the root down to it. Raises ``BadInput`` for a message
    that is not linked so.
    """
    file = folder / tables.MESSAGES.file_name
    position_of: dict[str, int] = {}
    members: dict[int, list[int]] = {edge_id: [] for edge_id in edge_paths}
    for position, row in enumerate(rows):
        thing = f"{file}, message {row['message_id']}"
        if row["message_id"] in position_of:
            raise BadInput(thing, "appears more than once", REMAKE)
        if row["edge_id"] not in members:
            raise BadInput(thing, f"belongs to edge {row['edge_id']}, which the tree does not have", REMAKE)
        position_of[row["message_id"]] = position
        members[row["edge_id"]].append(position)
    made: dict[int, tuple[int, ...]] = {}
    last: dict[int, str | None] = {}
    for edge_id in sorted(edge_paths, key=lambda edge: len(edge_paths[edge])):
        above = edge_paths[edge_id][:-1]
        before = last[above[-1]] if above else None
        made[edge_id] = _chain(file, edge_id, rows, members[edge_id], position_of, before)
        last[edge_id] = rows[made[edge_id][-1]]["message_id"] if made[edge_id] else before
    return made


def _chain(
    file: Path,
    edge_id: int,
    rows: Sequence[Row],
    members: Sequence[int],
    position_of: Mapping[str, int],
    before: str | None,
) -> tuple[int, ...]:
    """The messages of one edge in order. ``before``: last message of the edge it continues; None: a new session."""
    following: dict[str | None, int] = {}
    for position in members:
        row = rows[position]
        parent = row["parent_message_id"]
        thing = f"{file}, message {row['message_id']}"
        if parent is not None and parent not in position_of:
            raise BadInput(thing, f"follows message {parent}, which is not there", REMAKE)
        if parent != before and (parent is None or rows[position_of[parent]]["edge_id"] != edge_id):
            expected = "begin a conversation" if before is None else f"follow {before}"
            raise BadInput(
                thing, f"follows {parent or 'nothing'}: the first message of its edge must {expected}", REMAKE
            )
        if parent in following:
            other = rows[following[parent]]["message_id"]
            raise BadInput(thing, f"follows the same message of its edge as {other} does", REMAKE)
        following[parent] = position
    chain: list[int] = []
    last = before
    while last in following:
        chain.append(following.pop(last))
        last = rows[chain[-1]]["message_id"]
    if following:
        lost = rows[next(iter(following.values()))]["message_id"]
        raise BadInput(f"{file}, message {lost}", "is linked in a circle", REMAKE)
    return tuple(chain)
