"""The tables of a tree against the journal of its search, where that still lies beside them.

The journal was written while the tree grew, each record with a checksum, and holds all that the Teacher answered: it
is a second account of what cannot be computed anew, such as feedback, code diffs and what was said.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from coral_pipeline import tables
from coral_pipeline.audit.compare import compare_json, difference
from coral_pipeline.audit.findings import Review
from coral_pipeline.audit.messages import edge_names
from coral_pipeline.audit.tree_tables import NONE, TreeTables
from coral_pipeline.errors import BadInput
from coral_pipeline.search.explore import WORK_FOLDER
from coral_pipeline.search.journal import JOURNAL_FILE, TRANSCRIPTS, Header, TurnRecord
from coral_pipeline.search.records import decode
from coral_pipeline.search.transcripts import read_transcript
from coral_pipeline.teacher.protocol import Message, Turn
from coral_pipeline.tree_file import TREE_FILE, read_tree_info

_OF_TURN = [column.name for column in tables.TURNS.columns if column.name in Turn.model_fields]
_OF_MESSAGE = list(Message.model_fields)


def verify_journal(review: Review, folder: Path) -> None:
    """Turns, sessions, messages and settings of the tree in ``folder`` are those that its journal tells."""
    work = folder / WORK_FOLDER
    with review.guarded(JOURNAL_FILE):
        if not (work / JOURNAL_FILE).is_file():
            review.notes.append("its journal is not here, so what the Teacher told could not be held against it")
            return
        header, turns = _read(work / JOURNAL_FILE)
        told = {"search": header.settings, "teacher": header.teacher}
        compare_json(review, f"{TREE_FILE}, configuration", read_tree_info(folder).get("configuration"), told)
        tree = TreeTables.read(folder)
        names = edge_names(tree)
        _turns(review, names, turns, tables.TURNS.rows(folder))
        _sessions(review, tree, names, turns)
        _messages(review, names, turns, tables.MESSAGES.rows(folder), work / TRANSCRIPTS)


def _read(file: Path) -> tuple[Header, dict[tuple[str, int], TurnRecord]]:
    """The header, and the finished turns by edge name and number."""
    turns: dict[tuple[str, int], TurnRecord] = {}
    header: Header | None = None
    for number, record in enumerate(_records(file), start=1):
        if number == 1:
            header = Header.model_validate(record)
        elif record["kind"] == "turn":
            turn = TurnRecord.model_validate(record)
            turns[turn.edge, turn.turn] = turn
    if header is None:
        raise BadInput(JOURNAL_FILE, "is empty", "bring it back from a copy")
    return header, turns


def _records(file: Path) -> Iterator[dict[str, Any]]:
    with file.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            record = decode(line)
            if record is None:
                raise BadInput(
                    f"{JOURNAL_FILE}, line {number}", "is damaged: its checksum does not match", "restore it"
                )
            yield record


def _turns(
    review: Review, names: list[str], turns: dict[tuple[str, int], TurnRecord], rows: list[dict[str, Any]]
) -> None:
    """Every column of every turn."""
    missing = dict.fromkeys(turns)
    for row in rows:
        key = names[row["edge_id"]], row["turn"]
        where = f"{tables.TURNS.file_name}, edge {row['edge_id']}, turn {row['turn']}"
        if key not in turns:
            review.find(where, "is not in the journal", kind="turns that are not in the journal")
            continue
        missing.pop(key, None)
        answer = turns[key].answer
        review.looked_at["turns"] += 1
        for name in _OF_TURN:
            if row[name] != getattr(answer, name):
                review.find(f"{where}, {name}", difference(row[name], getattr(answer, name)), kind=name)
    for name, number in missing:
        review.find(
            f"{tables.TURNS.file_name}, edge {name}, turn {number}", "is missing: the journal has it", "missing"
        )


def _sessions(review: Review, tree: TreeTables, names: list[str], turns: dict[tuple[str, int], TurnRecord]) -> None:
    """The session that each node ends: that of its edge's last turn."""
    children, found = tree.edges["child_id"].tolist(), tree.nodes["session_id"].tolist()
    for name, child in zip(names, children, strict=True):
        last = turns.get((name, 2)) or turns.get((name, 1))
        if child != NONE and last is not None and found[child] != last.answer.session_id:
            where = f"{tables.NODES.file_name}, node {child}, session_id"
            review.find(where, difference(found[child], last.answer.session_id), kind="session_id")
    if found[0] is not None:
        review.find(f"{tables.NODES.file_name}, node 0, session_id", difference(found[0], None), kind="session_id")


def _messages(
    review: Review,
    names: list[str],
    turns: dict[tuple[str, int], TurnRecord],
    rows: list[dict[str, Any]],
    transcripts: Path,
) -> None:
    """Every message as its turn's transcript holds it."""
    by_turn: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        by_turn[names[row["edge_id"]], row["turn"]].append(row)
    for key, turn in turns.items():
        told = [] if turn.transcript is None else list(read_transcript(transcripts, turn.transcript))
        found = by_turn.get(key, [])
        if len(found) != len(told):
            where = f"{tables.MESSAGES.file_name}, edge {key[0]}, turn {key[1]}"
            review.find(where, f"has {len(found)} messages, the transcript {len(told)}", kind="messages of turns")
        for row, message in zip(found, told, strict=False):
            review.looked_at["messages"] += 1
            said = message.model_dump()
            for name in _OF_MESSAGE:
                if _plain(row[name]) != _plain(said[name]):
                    where = f"{tables.MESSAGES.file_name}, message {row['message_id']}, {name}"
                    review.find(where, difference(_plain(row[name]), _plain(said[name])), kind=f"messages, {name}")


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
