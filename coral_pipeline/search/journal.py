"""What a growing tree has learned from its Teacher, kept on disk: the truth until the tables are written.

A folder with ``journal.jsonl`` (a header that says which tree this is, then one record per finished turn
and edge, in the order in which they ended) and the turns' messages under ``transcripts/``. A lock keeps
a second process out.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from coral_pipeline.errors import BadInput
from coral_pipeline.search.records import RecordFile, decode
from coral_pipeline.search.transcripts import Transcript, check_transcript, read_transcript, write_transcript
from coral_pipeline.search.tree import FailureReason, RootNode
from coral_pipeline.settings import OF_TEACHER, Direction, SearchSettings, with_defaults
from coral_pipeline.teacher.protocol import EdgeRequest, InfrastructureFault, Message, Teacher, Turn

FORMAT = 1
"""Version of the journal's records."""
JOURNAL_FILE = "journal.jsonl"
TRANSCRIPTS = "transcripts"
"""Folder beside the journal."""
_MEND_DISK = "mend that, then explore again"


class OtherTree(BadInput):
    """The journal was begun for another root, or with other settings or another Teacher."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Header(_Record):
    """First record: which tree this is. Whatever decides what the tree will be stands here."""

    kind: Literal["header"] = "header"
    format: int
    root: dict[str, Any]
    direction: str
    settings: dict[str, Any]
    teacher: dict[str, Any]


class TurnRecord(_Record):
    """A finished Rollout Turn."""

    kind: Literal["turn"] = "turn"
    edge: str
    turn: int
    answer: Turn
    """Without its messages."""
    transcript: Transcript | None
    """None: the turn has no messages."""


class EdgeRecord(_Record):
    """A logical edge that ended."""

    kind: Literal["edge"] = "edge"
    edge: str
    turns: int
    failure_reason: FailureReason | None


class DoneRecord(_Record):
    """The tree stopped growing and its tables were written."""

    kind: Literal["done"] = "done"


_AnyRecord = Annotated[Header | TurnRecord | EdgeRecord | DoneRecord, Field(discriminator="kind")]
_RECORD: TypeAdapter[_AnyRecord] = TypeAdapter(_AnyRecord)


def header(root: RootNode, direction: Direction, settings: SearchSettings, teacher: Teacher) -> Header:
    """The header of a tree's journal."""
    return Header(
        format=FORMAT,
        root={"key": root.key, "score": root.score, "fingerprint": root.fingerprint},
        direction=direction,
        settings=settings.model_dump(mode="json"),
        teacher=json.loads(json.dumps({"name": teacher.name, **teacher.describe()})),
    )


def header_in(folder: Path) -> Header | None:
    """The header of the journal in ``folder``; None where none was begun, or it cannot be read."""
    try:
        with (folder / JOURNAL_FILE).open("rb") as file:
            first = decode(file.readline())
        return None if first is None else Header.model_validate(first)
    except (FileNotFoundError, NotADirectoryError, ValidationError):
        return None


class Journal:
    """The journal of one tree, open in this process alone. Safe to use from several threads."""

    def __init__(self, folder: Path, expected: Header) -> None:
        """Open or begin the journal in ``folder``, which is locked already: see ``open``."""
        self._folder = folder / TRANSCRIPTS
        self._folder.mkdir(parents=True, exist_ok=True)
        self._file = RecordFile(folder / JOURNAL_FILE)
        self._turns: dict[str, list[TurnRecord]] = {}
        self._edges: dict[str, EdgeRecord] = {}
        self.header = expected
        """With what the tree was begun."""
        self.done = False
        """The tables of the finished tree were written."""
        try:
            self._replay(expected)
        except BaseException:
            self.close()
            raise

    @classmethod
    @contextmanager
    def open(cls, folder: Path, expected: Header) -> Iterator[Journal]:
        """The journal in ``folder``, made where there is none, for the length of the block.

        Raises ``BadInput`` where another process has it open, where it was begun for another tree (it
        names what differs), or where it is damaged.
        """
        with contextlib.ExitStack() as stack:
            try:
                folder.mkdir(parents=True, exist_ok=True)
                stack.enter_context(_locked(folder))
                journal = stack.enter_context(contextlib.closing(cls(folder, expected)))
            except OSError as error:
                raise BadInput(error.filename or folder, f"cannot be used ({error.strerror})", _MEND_DISK) from error
            except InfrastructureFault as error:
                raise BadInput(folder, str(error), _MEND_DISK) from error
            yield journal

    @property
    def begun(self) -> bool:
        """Whether any turn has been finished."""
        return bool(self._turns)

    def turns(self, edge: EdgeRequest) -> tuple[Turn, ...]:
        """The finished turns of the edge, without their messages."""
        return tuple(record.answer for record in self._turns.get(edge.name, ()))

    def record_turn(self, edge: EdgeRequest, number: int, turn: Turn) -> Turn:
        """Keep a finished turn, its messages first; returns it without them."""
        transcript = write_transcript(self._folder, f"{edge.name}-{number}", turn.messages)
        answer = turn.model_copy(update={"messages": ()})
        record = TurnRecord(edge=edge.name, turn=number, answer=answer, transcript=transcript)
        self._append(record)
        self._turns.setdefault(edge.name, []).append(record)
        return answer

    def record_edge(self, edge: EdgeRequest, turns: int, failure: FailureReason | None) -> None:
        """Keep that the edge has ended; raises ``BadInput`` where it ended otherwise before."""
        record = EdgeRecord(edge=edge.name, turns=turns, failure_reason=failure)
        known = self._edges.get(edge.name)
        if known is None:
            self._append(record)
            self._edges[edge.name] = record
        elif known != record:
            raise self._other_rules(f"edge {edge.name} ended with {known}, but with these rules it is {record}")

    def record_done(self) -> None:
        """Keep that the tables were written."""
        self._append(DoneRecord())
        self.done = True

    def require_only(self, names: Iterable[str]) -> None:
        """Raise ``BadInput`` where the journal knows an edge that is not among ``names``, those of the whole tree."""
        unknown = sorted(self._turns.keys() - set(names))
        if unknown:
            raise self._other_rules(f"edge {unknown[0]} is in it, but with these rules it is never asked for")

    def messages(self, edge: str, number: int) -> Iterator[Message]:
        """The messages of a finished turn, one at a time."""
        transcript = self._turns[edge][number - 1].transcript
        return iter(()) if transcript is None else read_transcript(self._folder, transcript)

    def close(self) -> None:
        """Close the file; all that was recorded is on the disk already."""
        self._file.close()

    def _append(self, record: _Record) -> None:
        self._file.append(record.model_dump(mode="json"))

    def _replay(self, expected: Header) -> None:
        if not self._file.records:
            self._append(expected)
            return
        for number, fields in enumerate(self._file.records, start=1):
            try:
                record = _RECORD.validate_python(fields)
            except ValidationError as error:
                raise self._other_rules(f"record {number} is not of format {FORMAT}") from error
            if number == 1:
                self.header = self._same(expected, record)
            elif isinstance(record, TurnRecord):
                if record.transcript is not None:
                    check_transcript(self._folder, record.transcript)
                self._turns.setdefault(record.edge, []).append(record)
            elif isinstance(record, EdgeRecord):
                self._edges[record.edge] = record
            elif isinstance(record, DoneRecord):
                self.done = True
        self._file.records.clear()

    def _same(self, expected: Header, found: _AnyRecord) -> Header:
        if not isinstance(found, Header):
            raise self._other_rules("record 1 is no header")
        if differences := "; ".join(_differences(_filled(found), _filled(expected))):
            raise OtherTree(
                self._file.path,
                f"was begun for another tree: {differences}",
                "resume with what it was begun with, or explore into another folder",
            )
        return found

    def _other_rules(self, problem: str) -> BadInput:
        return BadInput(
            self._file.path,
            f"was written by another version: {problem}",
            "finish the tree with that version, or explore into another folder",
        )


def _filled(header: Header) -> dict[str, Any]:
    """The header's fields, settings that joined since it was written among them."""
    fields, section = header.model_dump(mode="json"), OF_TEACHER.get(header.teacher.get("name", ""))
    fields["settings"] = with_defaults({"search": header.settings})["search"]
    if section and "settings" in header.teacher:
        fields["teacher"]["settings"] = with_defaults({section: header.teacher["settings"]})[section]
    return fields


def _differences(found: Mapping[str, Any], expected: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """What differs between two headers, field by field."""
    for name in sorted(found.keys() | expected.keys()):
        was, now = found.get(name), expected.get(name)
        if isinstance(was, dict) and isinstance(now, dict):
            yield from _differences(was, now, f"{prefix}{name}.")
        elif was != now:
            was, now = (json.dumps(side[name]) if name in side else "absent" for side in (found, expected))
            yield f"{prefix}{name} was {was}, now {now}"


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock, which ends with the process, or raise ``BadInput`` where another holds it."""
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(lock, 32, 0).decode(errors="replace").strip() or "unknown"
            raise BadInput(
                folder, f"process {holder} is exploring this tree", "wait until it has ended, or end it"
            ) from error
        os.ftruncate(lock, 0)
        os.pwrite(lock, b"%d\n" % os.getpid(), 0)
        yield
    finally:
        os.close(lock)
