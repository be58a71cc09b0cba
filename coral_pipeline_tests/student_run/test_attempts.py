"""Which attempt record belongs to a snapshot: by name first, then by abbreviation, then by content (method S3)."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from coral_pipeline.student_run.attempts import Attempt, find_attempt
from coral_pipeline.student_run.guarded import Folder

COMMIT = "0123456789abcdef0123456789abcdef01234567"
OTHER = "fedcba9876543210fedcba9876543210fedcba98"


def find(folder: Path, records: dict[str, Any], commit_hash: str = COMMIT) -> Attempt:
    """The attempt found among records given as file name -> content (a string: the bytes themselves)."""
    attempts = folder / "shared" / "attempts"
    attempts.mkdir(parents=True)
    for name, record in records.items():
        (attempts / name).write_text(record if isinstance(record, str) else json.dumps(record))
    with Folder.of_run(folder) as snapshot:
        return find_attempt(snapshot, commit_hash)


def record(score: float, commit_hash: object = COMMIT) -> dict[str, Any]:
    return {"commit_hash": commit_hash, "score": score}


def test_the_record_named_after_the_commit_wins_whatever_the_others_say(tmp_path: Path) -> None:
    found = find(tmp_path, {f"{COMMIT}.json": record(1, OTHER), "a.json": record(2), f"{COMMIT[:12]}.json": record(3)})
    assert found == Attempt(score=1.0)


def test_one_open_file_is_enough_where_the_name_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading every attempt of every snapshot would be quadratic."""
    opened: list[str] = []
    real = os.open

    def counting(path: Any, *args: Any, **options: Any) -> int:
        opened.append(os.fspath(path))
        return real(path, *args, **options)

    names = {f"{index:040x}.json": record(0, f"{index:040x}") for index in range(1, 100)}
    monkeypatch.setattr(os, "open", counting)
    monkeypatch.setattr(os, "listdir", None)
    assert find(tmp_path, names | {f"{COMMIT}.json": record(1)}).score == 1.0
    assert [name for name in opened if name.endswith(".json")] == [f"{COMMIT}.json"]


@pytest.mark.parametrize("wanted", [COMMIT[:7], COMMIT[:12]])
def test_an_abbreviated_commit_finds_the_full_name(tmp_path: Path, wanted: str) -> None:
    assert find(tmp_path, {f"{COMMIT}.json": record(1), f"{OTHER}.json": record(2, OTHER)}, wanted).score == 1.0


def test_a_full_commit_finds_an_abbreviated_name(tmp_path: Path) -> None:
    assert find(tmp_path, {f"{COMMIT[:7]}.json": {"score": 1}, f"{OTHER}.json": record(2, OTHER)}).score == 1.0


def test_six_digits_name_no_commit(tmp_path: Path) -> None:
    assert find(tmp_path, {f"{COMMIT[:6]}.json": {"score": 1}}) == Attempt()


@pytest.mark.parametrize("known_as", [COMMIT, COMMIT[:7], COMMIT[:12]])
def test_a_record_of_another_name_is_found_by_its_content(tmp_path: Path, known_as: str) -> None:
    records = {"attempt-1.json": record(1, known_as), "attempt-2.json": record(2, OTHER), "broken.json": "{"}
    assert find(tmp_path, records).score == 1.0


def test_an_equal_commit_is_preferred_to_an_abbreviated_one(tmp_path: Path) -> None:
    assert find(tmp_path, {"a.json": record(1, COMMIT[:7]), "b.json": record(2)}).score == 2.0


def test_a_name_whose_content_tells_of_another_commit_is_not_trusted(tmp_path: Path) -> None:
    other = COMMIT[:7] + "f" * 33
    assert find(tmp_path, {f"{COMMIT[:7]}.json": record(1, other), "b.json": record(2)}).score == 2.0


def test_two_that_match_are_none_and_it_is_said(tmp_path: Path) -> None:
    found = find(tmp_path, {"a.json": record(1), "b.json": record(2)})
    assert (found.score, found.problem) == (None, "2 attempt records match its commit")


def test_other_files_and_records_are_no_attempts(tmp_path: Path) -> None:
    records = {
        f"{COMMIT}.txt": record(1),
        f"{COMMIT}.json.bak": record(1),
        "list.json": f'["{COMMIT}"]',
        "number.json": f'{{"commit_hash": 3, "parent_hash": "{COMMIT}"}}',
    }
    assert find(tmp_path, records) == Attempt()


@pytest.mark.parametrize("commit_hash", ["not-hex", "ü" * 4, "x" * 300, "a/b", "a\0b", "\ud800", ""])
def test_a_commit_that_is_no_file_name_is_still_looked_for_in_the_records(tmp_path: Path, commit_hash: str) -> None:
    assert find(tmp_path, {"a.json": record(1, commit_hash)}, commit_hash).score == 1.0


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("{", "its attempt record is not JSON"),
        ("", "its attempt record is not JSON"),
        ("[1]", "its attempt record is not a JSON object"),
        ('{"score": ' + "1" * 5000 + "}", "its attempt record is JSON with a number too long to read"),
        ('{"score": ' + "[" * 100_000, "its attempt record is JSON nested too deeply"),
    ],
)
def test_a_record_that_cannot_be_read_is_said_to_be_so(tmp_path: Path, content: str, problem: str) -> None:
    found = find(tmp_path, {f"{COMMIT}.json": content})
    assert found.score is None
    assert found.problem is not None and found.problem.startswith(problem)


def test_no_records_at_all_is_no_problem(tmp_path: Path) -> None:
    assert find(tmp_path, {}) == Attempt()
    (tmp_path / "shared" / "attempts").rmdir()
    with Folder.of_run(tmp_path) as snapshot:
        assert find_attempt(snapshot, COMMIT) == Attempt()
    (tmp_path / "shared").rmdir()
    with Folder.of_run(tmp_path) as snapshot:
        assert find_attempt(snapshot, COMMIT) == Attempt()


def test_fields_of_the_wrong_type_are_missing(tmp_path: Path) -> None:
    found = find(tmp_path, {f"{COMMIT}.json": {"score": {"value": 1}, "status": 3, "feedback": ["x"]}})
    assert found == Attempt()
