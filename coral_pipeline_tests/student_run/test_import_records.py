"""Attempt records that cannot be used: each a row of the report, and the rest imports."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from coral_pipeline import tables
from coral_pipeline.student_run.importing import import_run
from coral_pipeline_tests.coral_runs import (
    CoralRun,
    metadata_of,
    report,
)


@pytest.fixture(scope="module")
def run_of_one(tmp_path_factory: pytest.TempPathFactory) -> CoralRun:
    """A run with one good attempt; tests add the record of ``HASH``."""
    run = CoralRun(tmp_path_factory.mktemp("one") / "run")
    run.attempt(1.0)
    return run


HASH = "0123456789" * 4
RECORD = {"commit_hash": HASH, "agent_id": "agent-1", "timestamp": "2026-05-01T12:00:00+00:00", "score": 1.0}


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "is not JSON"),
        (b"{", "is not JSON"),
        (b"[1]", "is not a JSON object"),
        (b"\xff\xfe", "is not UTF-8"),
        (b"[" * 100_000, "nested too deeply"),
        (b"1" * 10_000, "too long to read"),
        (b" " * (1 << 23) + b"{}", "is larger than"),
        (json.dumps(RECORD | {"commit_hash": "abc"}).encode(), "no full git hash"),
        (json.dumps(RECORD | {"commit_hash": 5}).encode(), "no full git hash"),
        (json.dumps(RECORD | {"commit_hash": "f" * 40}).encode(), "not named after its commit_hash"),
        (json.dumps(RECORD | {"agent_id": "../../etc"}).encode(), "no part of a name"),
        (json.dumps(RECORD | {"agent_id": "a/b"}).encode(), "no part of a name"),
        (json.dumps(RECORD | {"agent_id": ""}).encode(), "no part of a name"),
        (json.dumps(RECORD | {"agent_id": "\ud800"}).encode(), "no part of a name"),
        (json.dumps(RECORD | {"agent_id": "x" * 300}).encode(), "no part of a name"),
        (json.dumps(RECORD | {"timestamp": None}).encode(), "no ISO 8601 time"),
        (json.dumps(RECORD | {"timestamp": "yesterday"}).encode(), "no ISO 8601 time"),
        (json.dumps(RECORD | {"timestamp": "0001-01-01T00:00:00+23:59"}).encode(), "no ISO 8601 time"),
    ],
)
def test_an_unusable_record_is_a_row_and_the_rest_imports(
    run_of_one: CoralRun, student_run: Path, content: bytes, problem: str
) -> None:
    (run_of_one.attempts / f"{HASH}.json").write_bytes(content)
    import_run(run_of_one.path, student_run)
    (good, bad) = report(student_run)
    assert good == (1, None, None)
    assert bad[:2] == (None, "record")
    assert problem in bad[2]
    assert "\n" not in bad[2] and len(bad[2]) < 200


def test_records_that_are_no_files_are_rows(run: CoralRun, student_run: Path) -> None:
    record = run.attempt(1.0)
    (run.attempts / "a.json").mkdir()
    (run.attempts / "b.json").symlink_to("/etc/passwd")
    (run.attempts / "c.json").symlink_to(f"{record['commit_hash']}.json")
    subprocess.run(["mkfifo", str(run.attempts / "d.json")], check=True)
    (run.attempts / "caf\udce9.json").write_bytes(b"{}")
    (run.attempts / f".{HASH}.x.json.tmp").write_bytes(b"{")  # what CORAL renames to the record when it is whole
    (run.attempts / "README").write_bytes(b"no record")
    import_run(run.path, student_run)
    rows = {row["attempt"]: row["detail"] for row in tables.IMPORT_REPORT.rows(student_run)[1:]}
    assert rows == {
        "a.json": "is not a regular file",
        "b.json": "is a link, not a record",
        "c.json": "is a link, not a record",
        "d.json": "is not a regular file",
        "caf\\udce9.json": "has a commit_hash that is no full git hash: None",
    }


def test_hostile_text_in_a_record_changes_nothing_but_its_own_words(run: CoralRun, student_run: Path) -> None:
    record = run.attempt(1.0, title="\ud800\n\x1b[31m", status=["improved"], parent_hash={"a": 1}, feedback=7)
    import_run(run.path, student_run)
    metadata = metadata_of(student_run, record)
    assert (metadata["title"], metadata["parent_hash"], metadata["eval_ok"]) == ("\ud800\n\x1b[31m", None, True)
