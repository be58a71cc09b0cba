"""One tree as the page's scripts read it: numbers and texts in one JSON object, packed."""

from __future__ import annotations

import base64
import json
import math
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from coral_pipeline import tables
from coral_pipeline.report.page.diffs import combined
from coral_pipeline.report.page.reading import RootReading, Row
from coral_pipeline.report.page.texts import TextPool, visible
from coral_pipeline.settings import ReportSettings

_LEVEL = 6
"""Of compression: 9 takes twice the time for one part in a hundred."""
_OF_MESSAGES = ("message_id", "turn", "role", "output_tokens")
"""Columns that are shown as they are."""


@dataclass(frozen=True)
class PackedTree:
    """A tree's data, ready to stand in the page."""

    data: str
    """Base64 of the zlib-compressed JSON."""
    limit: int
    """Characters kept of one text."""
    cut: int
    """Texts that are shown without their middle."""


def pack_tree(root: RootReading, settings: ReportSettings, share: int) -> PackedTree:
    """The tree of a finished root in at most ``share`` bytes, if cutting its texts can do that."""
    limit = settings.text_characters
    texts = TextPool(limit)
    data = tree_data(root, texts)
    while True:
        shown = texts.shown(limit)
        content = json.dumps(data | {"texts": shown}, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        packed = base64.b64encode(zlib.compress(content.encode(), _LEVEL)).decode()
        if len(packed) <= share or limit <= settings.min_text_characters:
            return PackedTree(packed, limit, sum(not isinstance(text, str) for text in shown))
        limit = max(limit // 2, settings.min_text_characters)


def tree_data(root: RootReading, texts: TextPool) -> Row:
    """All that is told of the tree's nodes and edges. Texts are numbers: their places in ``texts``."""
    turns: dict[int, list[Row]] = defaultdict(list)
    for turn in sorted(tables.TURNS.rows(root.folder), key=lambda turn: (turn["edge_id"], turn["turn"])):
        turns[turn["edge_id"]].append(turn)
    messages: dict[int, list[Row]] = defaultdict(list)
    for message in root.rows(tables.MESSAGES, "edge_id", "content", *_OF_MESSAGES):
        messages[message["edge_id"]].append(_message(message, texts))
    credit = {} if root.credit is None else {row["edge_id"]: row for row in root.credit.to_pylist()}
    edges = [
        {
            **edge,
            "code_diff": _placed(_edge_diff(turns[edge["edge_id"]], texts.limit), texts),
            "turns": [_turn(turn, texts) for turn in turns[edge["edge_id"]]],
            "messages": messages[edge["edge_id"]],
            "credit": _picked(credit.get(edge["edge_id"]), ("estimator", "reward", "advantage")),
        }
        for edge in root.edges.to_pylist()
    ]
    data = {
        "direction": root.info["direction"],
        "chosen": root.chosen,
        "search": root.info.get("configuration", {}).get("search", {}),
        "nodes": root.nodes.to_pylist(),
        "edges": edges,
        "rounds": placed_rounds(root.rounds),
        "paths": None if root.ranked is None else root.ranked.to_pylist(),
        "values": list(root.values),
        "folder": "/".join(("explored_trees", root.chosen["student_run"], root.name)),
    }
    plain = _json_values(data)
    assert isinstance(plain, dict)
    return plain


def placed_rounds(rounds: Sequence[Row]) -> list[Row]:
    """The rounds' rows with the place of each candidate in its round, from 1, and how many there were (method T12).

    Rows of a round stand in the order of the ranking.
    """
    sizes = Counter(row["round"] for row in rounds)
    places: Counter[int] = Counter()
    placed = []
    for row in rounds:
        places[row["round"]] += 1
        placed.append({**row, "place": places[row["round"]], "of": sizes[row["round"]]})
    return placed


def _edge_diff(turns: Sequence[Row], limit: int) -> str | None:
    """What the edge changed in its parent's code; None: not told, or not to be said of two diffs so long or special."""
    diffs: list[str] = [turn[tables.CODE_DIFF.name] for turn in turns if turn[tables.CODE_DIFF.name] is not None]
    if len(diffs) < sum(turn["commit_hash"] is not None for turn in turns):
        return None
    if len(diffs) != 2:
        return diffs[0] if diffs else None
    return combined(*diffs) if sum(map(len, diffs)) <= limit else None


def _placed(text: str | None, texts: TextPool) -> int | None:
    return None if text is None else texts.put(text)


def _turn(turn: Row, texts: TextPool) -> Row:
    """Feedback and diff go to the pool."""
    own = {name: value for name, value in turn.items() if name != "edge_id"}
    return own | {name: _placed(turn[name], texts) for name in ("feedback", tables.CODE_DIFF.name)}


def _message(message: Row, texts: TextPool) -> Row:
    parts = [_part(part, texts) for part in message["content"]]
    return {name: message[name] for name in _OF_MESSAGES} | {"parts": parts}


def _part(part: Mapping[str, Any], texts: TextPool) -> Row:
    """``text`` is what the part says, of a tool call its arguments."""
    said = _arguments(part["arguments"]) if part["type"] == "tool_call" else part["text"]
    return {
        "type": part["type"],
        "name": part["name"],
        "is_error": part["is_error"],
        "text": texts.put(said or ""),
    }


def _arguments(arguments: str | None) -> str:
    """A tool call's arguments as a person reads them: one to a line, texts as they are; not JSON: as it is."""
    try:
        values = json.loads(arguments or "")
    except (ValueError, RecursionError):
        return arguments or ""
    if not isinstance(values, dict):
        return arguments or ""
    return "\n".join(_argument(name, value) for name, value in values.items())


def _argument(name: str, value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"{name}:\n{text}" if "\n" in text else f"{name}: {text}"


def _picked(row: Row | None, names: Sequence[str]) -> Row | None:
    return None if row is None else {name: row[name] for name in names}


def _json_values(value: object) -> object:
    """The same in what JSON knows: infinities and NaN as text; names and other short texts made visible."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, Mapping):
        return {str(name): _json_values(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json_values(item) for item in value]
    return value


def rows_of_tree(root: RootReading) -> Iterator[Row]:
    """The tree's nodes and failed edges in depth-first order, each with what a line of its table shows."""
    children: dict[int | None, list[Row]] = defaultdict(list)
    edges = root.edges.to_pylist()
    made = {edge["child_id"]: edge for edge in edges if edge["child_id"] is not None}
    for node in root.nodes.to_pylist():
        children[node["parent_id"]].append({"node": node, "edge": made.get(node["node_id"])})
    for edge in edges:
        if edge["child_id"] is None:
            children[edge["parent_id"]].append({"node": None, "edge": edge})
    selected = _ranks(root)
    advantages = {} if root.credit is None else {r["edge_id"]: r["advantage"] for r in root.credit.to_pylist()}

    def below(parent: int | None, level: int) -> Iterator[Row]:
        rows = children[parent]
        for place, row in enumerate(rows, 1):
            node, edge = row["node"], row["edge"]
            inner = node is not None and bool(children[node["node_id"]])
            yield {
                **row,
                "level": level,
                "place": place,
                "of": len(rows),
                "inner": inner,
                "rank": None if node is None else selected.get(node["node_id"]),
                "advantage": None if edge is None else advantages.get(edge["edge_id"]),
            }
            if inner:
                yield from below(node["node_id"], level + 1)

    return below(None, 1)


def _ranks(root: RootReading) -> dict[int, int]:
    """Rank of the selected path that ends in a leaf."""
    rows = [] if root.ranked is None else root.ranked.to_pylist()
    return {row["leaf_id"]: row["rank"] for row in rows if row["selected"]}
