"""The messages of a tree: linked along its edges, each once, and as many calls in them as the turns say."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from coral_pipeline import tables
from coral_pipeline.audit.compare import compare_tables
from coral_pipeline.audit.findings import Review
from coral_pipeline.audit.tree_tables import NONE, TreeTables
from coral_pipeline.conversations import Conversations
from coral_pipeline.message_links import Row

FILE = tables.MESSAGES.file_name
LINKS = ("message_id", "parent_message_id", "edge_id", "turn")
COUNTED = ("edge_id", "turn", "sampled", "content")


def verify_messages(review: Review, folder: Path) -> None:
    """The messages of the tree in ``folder``: ids, order, links, roles and parts, recorded tokens.

    Every message's id and predecessor follow from its edge, turn and place: an edge goes on from the last message
    on the path to its parent, so forks share their parent's prefix and each message is there once.
    """
    with review.guarded(FILE):
        tree, found = TreeTables.read(folder), tables.MESSAGES.read(folder, LINKS)
        ids = _expected_ids(tree, found)
        columns = {"message_id": ids, "parent_message_id": _expected_parents(tree, found, ids)}
        compare_tables(
            review, tables.MESSAGES, found, pa.table({n: pa.array(c, pa.string()) for n, c in columns.items()})
        )
        _order(review, tree, found)
        for row in Conversations.read(folder).rows:
            _verify_tokens(review, row)


def verify_counts(review: Review, folder: Path) -> None:
    """The tool calls and model calls that ``turns.parquet`` counts are those of the messages.

    Of trees in whose messages there are calls: a Teacher need not tell what its agents said.
    """
    with review.guarded(FILE):
        told: dict[tuple[int, int], Counter[str]] = defaultdict(Counter)
        for row in _rows(folder, COUNTED):
            counts = told[row["edge_id"], row["turn"]]
            counts["model calls"] += row["sampled"]
            for part in row["content"] or ():
                counts["tool calls"] += part["type"] == "tool_call"
                counts["failed tool calls"] += bool(part["type"] == "tool_result" and part["is_error"])
        if not any(counts["tool calls"] for counts in told.values()):
            review.notes.append("the messages hold no tool calls to count")
            return
        figures = ("edge_id", "turn", "tool_calls", "failed_tool_calls", "step_turns")
        for turn in tables.TURNS.read(folder, figures).to_pylist():
            counts = told[turn["edge_id"], turn["turn"]]
            where = f"{tables.TURNS.file_name}, edge {turn['edge_id']}, turn {turn['turn']}"
            review.looked_at["turns"] += 1
            if turn["tool_calls"] != counts["tool calls"]:
                found = f"is {turn['tool_calls']}, the messages hold {counts['tool calls']}"
                review.find(f"{where}, tool_calls", found, kind="tool_calls")
            # Neither a call cut off with its turn, nor a model call that said nothing, is counted by the turn.
            for name, most in (("failed_tool_calls", "failed tool calls"), ("step_turns", "model calls")):
                if turn[name] > counts[most]:
                    review.find(f"{where}, {name}", f"is {turn[name]}, the messages hold {counts[most]}", kind=name)


def _rows(folder: Path, only: Sequence[str]) -> Iterator[Row]:
    """These columns of every message; texts can be long, and are Python values a few at a time."""
    for batch in tables.MESSAGES.read(folder, only).to_batches(max_chunksize=256):
        yield from batch.to_pylist()


def edge_names(tree: TreeTables) -> list[str]:
    """Per edge, the expansions that lead to and through it: ``0.1`` is the second fork of the first fork's node."""
    parents, expansions, children = (tree.edges[name].tolist() for name in ("parent_id", "expansion", "child_id"))
    of_node = {0: ""}
    names = []
    for parent, expansion, child in zip(parents, expansions, children, strict=True):
        names.append(f"{of_node[parent]}{expansion}")
        if child != NONE:
            of_node[child] = f"{names[-1]}."
    return names


def _expected_ids(tree: TreeTables, found: pa.Table) -> list[str | None]:
    names = edge_names(tree)
    places: Counter[tuple[int, int]] = Counter()
    ids: list[str | None] = []
    for edge, turn in zip(found["edge_id"].to_pylist(), found["turn"].to_pylist(), strict=True):
        known = edge is not None and 0 <= edge < len(names)
        ids.append(f"{names[edge]}/{turn}/{places[edge, turn]}" if known else None)
        places[edge, turn] += 1
    return ids


def _expected_parents(tree: TreeTables, found: pa.Table, ids: Sequence[str | None]) -> list[str | None]:
    """Per message, the one before it in its session."""
    made_by = np.full(len(tree.nodes), NONE)
    made_by[tree.edges["child_id"][tree.made]] = tree.made
    before = made_by[tree.edges["parent_id"]].tolist()
    parents: list[str | None] = []
    seen: dict[int, str | None] = {}  # by edge: its last message so far
    for edge, message in zip(found["edge_id"].to_pylist(), ids, strict=True):
        if edge not in seen:
            above = before[edge] if edge is not None and 0 <= edge < len(before) else NONE
            while above != NONE and above not in seen:  # edges of which nothing is told pass on what came before
                above = before[above]
            seen[edge] = seen.get(above)
        parents.append(seen[edge])
        seen[edge] = message
    return parents


def _order(review: Review, tree: TreeTables, found: pa.Table) -> None:
    """Rows stand by edge and turn, and each of these is there."""
    edges, turns = tree.turns["edge_id"], tree.turns["turn"]
    there = set(zip(edges.tolist(), turns.tolist(), strict=True))
    previous = (0, 0)
    for row, pair in enumerate(zip(found["edge_id"].to_pylist(), found["turn"].to_pylist(), strict=True)):
        if pair not in there:
            review.find(
                f"{FILE}, row {row}", f"is of edge {pair[0]}, turn {pair[1]}, which was not run", kind="no turn"
            )
        if pair < previous:
            review.find(f"{FILE}, row {row}", f"edge {pair[0]}, turn {pair[1]} stands after {previous}", kind="order")
        previous = max(previous, pair)


def _verify_tokens(review: Review, row: Row) -> None:
    """What was recorded of the sampling fits together."""
    where = f"{FILE}, message {row['message_id']}"
    ids, logprobs = row["sampled_token_ids"], row["sampled_logprobs"]
    if not row["sampled"]:
        for name in ("input_tokens", "output_tokens", "sampled_token_ids", "sampled_logprobs"):
            if row[name] is not None:
                review.find(f"{where}, {name}", "is given for a message that was not sampled", kind=name)
    if logprobs is not None:
        if ids is None or len(ids) != len(logprobs):
            problem = f"has {len(logprobs)} entries for {0 if ids is None else len(ids)} tokens"
            review.find(f"{where}, sampled_logprobs", problem, kind="sampled_logprobs")
        elif not all(value is not None and math.isfinite(value) for value in logprobs):
            review.find(f"{where}, sampled_logprobs", "holds a number that is not finite", kind="sampled_logprobs")
    if ids is not None and any(token is None or token < 0 for token in ids):
        review.find(f"{where}, sampled_token_ids", "holds what is no token id", kind="sampled_token_ids")
    for name in ("input_tokens", "output_tokens"):
        if row[name] is not None and row[name] < 0:
            review.find(f"{where}, {name}", f"is {row[name]}", kind=name)
