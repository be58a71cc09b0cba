"""The attempt record of a snapshot: what CORAL wrote about its commit (method S3)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from coral_pipeline.scores import numeric
from coral_pipeline.student_run.guarded import Folder, Missing, Unreadable, parse_json
from coral_pipeline.student_run.layout import ATTEMPTS_FOLDER, SHARED_FOLDER

PREFIX_DIGITS = 7
"""Fewest hex digits by which an abbreviated commit names another (S3)."""
_ABBREVIATED = re.compile(rf"[0-9a-fA-F]{{{PREFIX_DIGITS},}}")
_SUFFIX = ".json"


@dataclass(frozen=True)
class Attempt:
    """What the attempt record of a snapshot says; all None where there is none that can be read."""

    score: float | None = None
    """Raw score; None where the record has no numeric one."""
    status: str | None = None
    feedback: str | None = None
    problem: str | None = None
    """Why a record that is there could not be used, in one line."""
    sha256: str | None = field(default=None, compare=False)
    """Of the record's bytes, in hex; None where none was used."""


def find_attempt(snapshot: Folder, commit_hash: str) -> Attempt:
    """The attempt of ``commit_hash`` among the snapshot's records.

    The record named after the commit is opened without looking at the others. Only where there is none
    are the names searched for an abbreviation of the commit, and only where that fails the contents.
    """
    try:
        with snapshot.folder(SHARED_FOLDER) as shared, shared.folder(ATTEMPTS_FOLDER) as attempts:
            if _can_be_a_file_name(commit_hash):
                try:
                    return _attempt(attempts.read(commit_hash + _SUFFIX))
                except Missing:
                    pass
            return _search(attempts, commit_hash)
    except Missing:
        return Attempt()
    except Unreadable as unreadable:
        return Attempt(problem=f"its attempt record {unreadable}")


def _attempt(data: bytes, record: Any = None) -> Attempt:
    """The attempt in the bytes of a record; ``record``: what they say, where that is known already."""
    record = parse_json(data) if record is None else record
    if not isinstance(record, dict):
        raise Unreadable("is not a JSON object")
    status, feedback = record.get("status"), record.get("feedback")
    return Attempt(
        score=numeric(record.get("score")),
        status=status if isinstance(status, str) else None,
        feedback=feedback if isinstance(feedback, str) else None,
        sha256=hashlib.sha256(data).hexdigest(),
    )


def _search(attempts: Folder, commit_hash: str) -> Attempt:
    """The one record whose commit equals or abbreviates ``commit_hash``: by names, then by contents."""
    names = [name for name in attempts.names() if name.endswith(_SUFFIX)]
    named = [name for name in names if _abbreviates(name.removesuffix(_SUFFIX), commit_hash)]
    if len(named) == 1:
        data = attempts.read(named[0])
        record = parse_json(data)
        if not isinstance(record, dict) or _related(record.get("commit_hash", commit_hash), commit_hash):
            return _attempt(data, record)
    records = list(_records_that_mention(attempts, names, commit_hash))
    equal = [(data, record) for data, record in records if record["commit_hash"] == commit_hash]
    found = equal or records
    if len(found) > 1:
        return Attempt(problem=f"{len(found)} attempt records match its commit")
    return _attempt(*found[0]) if found else Attempt()


def _records_that_mention(
    attempts: Folder, names: Iterable[str], commit_hash: str
) -> Iterable[tuple[bytes, dict[str, Any]]]:
    """The readable records whose ``commit_hash`` is related to the given one, each after its bytes."""
    # Related commits share their first digits: a record without them need not be parsed.
    mark = commit_hash[:PREFIX_DIGITS].encode() if _ABBREVIATED.match(commit_hash) else b""
    for name in names:
        try:
            data = attempts.read(name)
            if mark in data:
                record = parse_json(data)
                if isinstance(record, dict) and _related(record.get("commit_hash"), commit_hash):
                    yield data, record
        except Unreadable:
            continue


def _related(found: object, commit_hash: str) -> bool:
    return isinstance(found, str) and (found == commit_hash or _abbreviates(found, commit_hash))


def _abbreviates(one: str, other: str) -> bool:
    """One commit is a prefix of the other, the shorter one long enough to name it."""
    short, long = sorted((one, other), key=len)
    return long.startswith(short) and _ABBREVIATED.fullmatch(short) is not None


def _can_be_a_file_name(commit_hash: str) -> bool:
    return commit_hash.isascii() and len(commit_hash) <= 200 and "/" not in commit_hash and "\0" not in commit_hash
