"""The tables of ``explored_trees`` from a finished tree, and ``tree.json``."""

from __future__ import annotations

import json
import platform
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

from coral_pipeline import tables
from coral_pipeline.search.journal import FORMAT, Header, Journal
from coral_pipeline.search.progress import tokens
from coral_pipeline.search.rules import good_leaves, leaf_kind
from coral_pipeline.search.tree import Selection, Tree
from coral_pipeline.tree_file import TREE_FILE

Row = dict[str, Any]

MESSAGES_AT_ONCE = 256
CHARACTERS_AT_ONCE = 4_000_000
"""Messages, and characters in them, that are held in memory while they are copied from transcripts to the table."""

FILES = (*(table.file_name for table in tables.TABLES["explored_trees"]), TREE_FILE)
"""What a finished tree's folder holds."""


def is_written(folder: Path) -> bool:
    """Whether every file of a finished tree is there."""
    return all((folder / name).is_file() for name in FILES)


def write_tree(tree: Tree, journal: Journal, header: Header, folder: Path) -> None:
    """Write the tables and then ``tree.json``, whose presence says that the tree is complete.

    The same tree gives the same rows and the same ``tree.json``, on any machine and however often it was
    interrupted.
    """
    (folder / TREE_FILE).unlink(missing_ok=True)
    tables.remove_partial(folder)
    tables.NODES.write(node_rows(tree), folder)
    tables.EDGES.write(edge_rows(tree), folder)
    tables.TURNS.write(turn_rows(tree), folder)
    tables.ROUNDS.write(round_rows(tree), folder)
    messages = 0
    with tables.MESSAGES.writer(folder) as writer:
        for rows in _batches(_message_rows(tree, journal)):
            writer.write_table(tables.MESSAGES.build(rows))
            messages += len(rows)
    with tables.replaced_when_done(folder / TREE_FILE) as partial:
        partial.write_text(json.dumps(_description(tree, header, messages), indent=2) + "\n", encoding="utf-8")


def node_rows(tree: Tree) -> Iterator[Row]:
    """The rows of ``nodes.parquet``."""
    for node in tree.nodes:
        yield {
            "node_id": node.node_id,
            "parent_id": node.parent_id,
            "depth": node.depth,
            "score": node.score,
            "path_best_score": node.path_best_score,
            "max_token_total": node.max_token_total,
            "valid_children": node.children,
            "failed_expansions": node.failed_expansions,
            "leaf_kind": leaf_kind(node, tree.settings),
            "kept_by": node.kept_by,
            "commit_hash": node.commit_hash,
            "session_id": node.session_id,
        }


def edge_rows(tree: Tree) -> Iterator[Row]:
    """The rows of ``edges.parquet``."""
    for edge in tree.edges:
        soft = edge.soft
        yield {
            "edge_id": edge.edge_id,
            "parent_id": edge.parent_id,
            "child_id": edge.child_id,
            "depth": edge.depth,
            "round": edge.round,
            "expansion": edge.expansion,
            "failure_reason": edge.failure_reason,
            "kept_by": edge.kept_by,
            **asdict(edge.figures),
            **(dict.fromkeys(("outcome", "cleanliness", "knowledge", "soft")) if soft is None else asdict(soft)),
        }


def turn_rows(tree: Tree) -> Iterator[Row]:
    """The rows of ``turns.parquet``."""
    for edge in tree.edges:
        for number, turn in enumerate(edge.turns, start=1):
            fields = turn.model_dump(exclude={"messages", "session_id", "state", "tools"})
            yield {"edge_id": edge.edge_id, "turn": number, **fields}


def round_rows(tree: Tree) -> Iterator[Row]:
    """The rows of ``rounds.parquet``."""
    names = [field.name for field in fields(Selection)]
    for selection in tree.selections:  # thousands in a large tree, and asdict is slow
        yield {name: getattr(selection, name) for name in names}


def _message_rows(tree: Tree, journal: Journal) -> Iterator[Row]:
    """The messages of all edges by edge id; a session begins with its parent node's last message."""
    last: dict[int, str | None] = {0: None}
    for edge in tree.edges:
        previous = last[edge.parent_id]
        for number in range(1, len(edge.turns) + 1):
            for index, message in enumerate(journal.messages(edge.name, number)):
                message_id = f"{edge.name}/{number}/{index}"
                yield {
                    "message_id": message_id,
                    "parent_message_id": previous,
                    "edge_id": edge.edge_id,
                    "turn": number,
                    **message.model_dump(),
                }
                previous = message_id
        if edge.child_id is not None:
            last[edge.child_id] = previous


def _batches(rows: Iterable[Row]) -> Iterator[list[Row]]:
    batch: list[Row] = []
    characters = 0
    for row in rows:
        batch.append(row)
        characters += sum(len(part["text"] or "") + len(part["arguments"] or "") for part in row["content"])
        if len(batch) == MESSAGES_AT_ONCE or characters >= CHARACTERS_AT_ONCE:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def _description(tree: Tree, header: Header, messages: int) -> dict[str, Any]:
    return {
        **outcome(tree, messages),
        **_tools(tree),
        "configuration": {"search": header.settings, "teacher": header.teacher},
        "versions": {
            "coral_pipeline": version("coral-pipeline"),
            "journal_format": FORMAT,
            "python": platform.python_version(),
            "pyarrow": version("pyarrow"),
        },
    }


def _tools(tree: Tree) -> dict[str, Any]:
    """The tools the agents were given, where the Teacher tells them."""
    told = next((turn.tools for edge in tree.edges for turn in edge.turns if turn.tools), None)
    return {} if told is None else {"tools": told}


def outcome(tree: Tree, messages: int) -> dict[str, Any]:
    """Of ``tree.json`` what the tree alone tells; ``messages``: rows of ``messages.parquet``."""
    kinds = Counter(kind for node in tree.nodes if (kind := leaf_kind(node, tree.settings)) is not None)
    return {
        "root": tree.root.key,
        "student_run": tree.root.student_run,
        "stage": tree.root.stage,
        "direction": tree.direction,
        "stop_reason": tree.stop_reason,
        "root_fingerprint": tree.root.fingerprint,
        "counts": {
            "rounds": tree.round,
            "nodes": len(tree.nodes),
            "edges": len(tree.edges),
            "valid_edges": tree.valid_edges,
            "failed_edges": len(tree.edges) - tree.valid_edges,
            "kept_edges": sum(edge.kept_by is not None for edge in tree.edges),
            "improved_edges": sum(edge.figures.improved for edge in tree.edges),
            "turns": sum(len(edge.turns) for edge in tree.edges),
            "messages": messages,
            "good_leaves": good_leaves(tree),
            "leaves": dict(sorted(kinds.items())),
            "tokens": tokens(tree),
        },
    }
