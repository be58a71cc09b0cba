"""Kept and rejected snapshots, the order of the run, the direction (method S1, S2, S4, S6)."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from coral_pipeline import tables
from coral_pipeline.errors import BadInput
from coral_pipeline.student_run.layout import SnapshotName, parse_snapshot_name
from coral_pipeline.student_run.reading import read_direction, read_student_run
from coral_pipeline_tests.student_runs import S, commit, snapshot_name, write_snapshot, write_student_run


def rows(table: Any) -> dict[str, dict[str, Any]]:
    return {row["snapshot"]: row for row in table.to_pylist()}


def attempt(index: int, score: object = 1.0) -> dict[str, Any]:
    return {"commit_hash": commit(index), "score": score, "status": "improved", "feedback": "good"}


def sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def test_a_snapshot_gives_its_row(tmp_path: Path) -> None:
    run = read_student_run(write_student_run(tmp_path / "run", [1.5]))
    snapshot = tmp_path / "run" / "all_snapshots" / snapshot_name(1)
    assert run.filtered.to_pylist() == [
        {
            "snapshot": snapshot_name(1),
            "global_index": 1,
            "agent_id": "agent-2",
            "commit_hash": commit(1),
            "eval_ok": True,
            "eval_count": 1,
            "score": 1.5,
            "status": "improved",
            "feedback": "feedback 1",
            "eligible": True,
            "metadata_sha256": sha256(snapshot / "metadata.json"),
            "attempt_sha256": sha256(snapshot / "shared" / "attempts" / f"{commit(1)}.json"),
        }
    ]
    assert run.filtered.schema.equals(tables.FILTERED_SNAPSHOTS.schema)
    assert (run.rejected.num_rows, run.direction, run.warnings) == (0, "maximize", ())


@pytest.mark.parametrize(
    ("eval_ok", "score", "row"),
    [
        (True, 2, (True, 2.0, True)),
        (True, 0.0, (True, 0.0, True)),
        (True, None, (True, None, False)),
        (True, "2", (True, None, False)),
        (True, True, (True, None, False)),
        (True, [2], (True, None, False)),
        (True, float("nan"), (True, None, False)),
        (True, float("-inf"), (True, None, False)),
        (True, 10**400, (True, None, False)),
        (False, 2, (False, 2.0, False)),
        (None, 2, (False, 2.0, False)),
        (1, 2, (False, 2.0, False)),
        ("true", 2, (False, 2.0, False)),
    ],
)
def test_kept_whatever_eval_ok_is_but_eligible_only_when_true_and_numeric(
    tmp_path: Path, eval_ok: object, score: object, row: tuple[bool, float | None, bool]
) -> None:
    run = read_student_run(write_student_run(tmp_path / "run", [S(score, eval_ok)]))
    (found,) = run.filtered.select(["eval_ok", "score", "eligible"]).to_pylist()
    assert tuple(found.values()) == row


def test_a_snapshot_without_eval_ok_is_pending(tmp_path: Path) -> None:
    folder = write_student_run(tmp_path / "run", [1.0, 2.0])
    (folder / "all_snapshots" / snapshot_name(2) / "metadata.json").write_text('{"commit_hash": "x"}')
    run = read_student_run(folder)
    assert list(rows(run.filtered)) == [snapshot_name(1)]
    assert [(row["snapshot"], row["reason"]) for row in run.rejected.to_pylist()] == [(snapshot_name(2), "pending")]
    assert run.rejected_by_reason() == {"pending": 1}


def test_what_metadata_leaves_out_comes_from_the_folders_name(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    write_student_run(folder, [])
    abbreviated = commit(7)[:12]
    write_snapshot(
        folder / "all_snapshots" / f"eval-000007-a-b-c-{abbreviated}",
        {"eval_ok": True, "commit_hash": None, "agent_id": 3, "eval_count": True},
        [attempt(7, 4)],
    )
    (row,) = read_student_run(folder).filtered.to_pylist()
    assert (row["agent_id"], row["commit_hash"], row["eval_count"]) == ("a-b-c", abbreviated, None)
    assert row["score"] == 4, "the attempt is found by the abbreviated commit"


def test_metadata_wins_over_the_folders_name(tmp_path: Path) -> None:
    folder = write_student_run(tmp_path / "run", [])
    write_snapshot(
        folder / "all_snapshots" / f"eval-000007-agent-1-{'0' * 12}",
        {"eval_ok": True, "commit_hash": commit(7), "agent_id": "the-agent"},
        [attempt(7, 4)],
    )
    (row,) = read_student_run(folder).filtered.to_pylist()
    assert (row["agent_id"], row["commit_hash"], row["score"]) == ("the-agent", commit(7), 4.0)


def test_run_order_is_by_index_as_a_number_then_agent_then_commit(tmp_path: Path) -> None:
    folder = write_student_run(tmp_path / "run", [])
    names = [
        f"eval-9-zoe-{'0' * 12}",
        f"eval-10-ann-{'b' * 12}",
        f"eval-000010-ann-{'c' * 12}",
        f"eval-010-bob-{'a' * 12}",
    ]
    for name in reversed(names):
        write_snapshot(folder / "all_snapshots" / name, {"eval_ok": False})
    run = read_student_run(folder)
    assert list(rows(run.filtered)) == names
    assert run.warnings == (f"global index 10 is repeated: {', '.join(names[1:])}",)


def test_progress_sees_every_entry(tmp_path: Path) -> None:
    folder = write_student_run(tmp_path / "run", [1.0, 2.0])
    (folder / "all_snapshots" / ".DS_Store").touch()
    seen: list[str] = []

    def progress(names: Any) -> Any:
        for name in names:
            seen.append(name)
            yield name

    run = read_student_run(folder, progress)
    assert len(seen) == run.filtered.num_rows + run.rejected.num_rows == 3


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("eval-000003-agent-3-e248a487ce3d", SnapshotName(3, "agent-3", "e248a487ce3d")),
        ("eval-3-a-e248a487ce3d-e248a487ce3d", SnapshotName(3, "a-e248a487ce3d", "e248a487ce3d")),
        ("eval-3-агент-é-E248A487CE3D", SnapshotName(3, "агент-é", "E248A487CE3D")),
        ("eval-3--e248a487ce3d", None),
        ("eval-3-e248a487ce3d", None),
        ("eval-٣-agent-e248a487ce3d", None),
        ("eval-3-agent-e248a487ce3", None),
        ("eval-3-agent-e248a487ce3g", None),
        ("eval-3-agent-e248a487ce3d\n", None),
        ("eval-3-a\nb-e248a487ce3d", None),
        ("eval-3-a\udcffb-e248a487ce3d", None),
        (f"eval-{'9' * 19}-agent-e248a487ce3d", None),
        ("Eval-3-agent-e248a487ce3d", None),
    ],
)
def test_names_are_parsed_from_both_ends(name: str, parts: SnapshotName | None) -> None:
    assert parse_snapshot_name(name) == parts


@pytest.mark.parametrize(
    ("task", "direction"),
    [
        ("grader:\n  direction: minimize\n", "minimize"),
        ("grader:\n  direction: maximize\n", "maximize"),
        ("grader: {timeout: 3}\n", "maximize"),
        ("grader:\n", "maximize"),
        ("task: {name: x}\n", "maximize"),
        ("base: &base {direction: minimize}\ngrader:\n  <<: *base\n", "minimize"),
    ],
)
def test_the_direction_is_corals_own(tmp_path: Path, task: str, direction: str) -> None:
    (tmp_path / "task.yaml").write_text(task)
    assert read_direction(tmp_path) == direction


@pytest.mark.parametrize(
    ("task", "problem"),
    [
        (b"grader: {direction: Minimize}", "grader.direction is 'Minimize'"),
        (b"grader: {direction: }", "grader.direction is None"),
        (b"grader: {direction: [minimize]}", "grader.direction is ['minimize']"),
        (b"grader: minimize", "grader is not a mapping"),
        (b"- grader", "is not a mapping"),
        (b"", "is not a mapping"),
        (b"a: [", "is not YAML"),
        (b"a: \xff", "is not YAML"),
        (b'a: !!int ""', "is not YAML"),
        (b"a: !!timestamp b", "is not YAML"),
        (b"a: 2024-13-45", "is not YAML"),
        (b"a: !!python/object/apply:os.abort []", "is not YAML"),
        (b"a: " + b"[" * 5000, "is not YAML"),
        (b"# " + b"x" * 2**20, "is larger than"),
    ],
)
def test_a_task_that_cannot_be_used_is_named_in_one_line(tmp_path: Path, task: bytes, problem: str) -> None:
    (tmp_path / "task.yaml").write_bytes(task)
    with pytest.raises(BadInput) as error:
        read_direction(tmp_path)
    assert str(error.value).startswith(f"{tmp_path / 'task.yaml'}: ")
    assert problem in error.value.problem
    assert "\n" not in str(error.value)


def test_a_folder_that_is_no_student_run_is_named(tmp_path: Path) -> None:
    def problem(folder: Path) -> tuple[str, str]:
        with pytest.raises(BadInput) as error:
            read_student_run(folder)
        return error.value.thing, error.value.problem

    run = tmp_path / "run"
    assert problem(run) == (str(run), "is missing")
    run.mkdir()
    assert problem(run) == (str(run / "task.yaml"), "is missing")
    (run / "task.yaml").write_text("grader: {}\n")
    assert problem(run) == (str(run / "all_snapshots"), "is missing")
    (run / "all_snapshots").touch()
    assert problem(run) == (str(run / "all_snapshots"), "is not a folder")
    (run / "all_snapshots").unlink()
    (run / "all_snapshots").mkdir()
    assert problem(run) == (str(run / "all_snapshots"), "holds no snapshots")
    assert problem(run / "task.yaml") == (str(run / "task.yaml"), "is not a folder")


def test_a_run_may_be_reached_through_a_link(tmp_path: Path) -> None:
    write_student_run(tmp_path / "run", [1.0])
    (tmp_path / "link").symlink_to("run")
    assert read_student_run(tmp_path / "link").filtered.num_rows == 1


def test_corals_own_records_are_read(tmp_path: Path) -> None:
    """NaN is what CORAL writes for it, and no JSON: the record can be read, its score is not numeric."""
    folder = write_student_run(tmp_path / "run", [])
    text = json.dumps(attempt(1, float("nan")) | {"status": "regressed"}, indent=2)
    assert '"score": NaN' in text
    snapshot = write_snapshot(folder / "all_snapshots" / snapshot_name(1), {"eval_ok": True, "commit_hash": commit(1)})
    (snapshot / "shared" / "attempts" / f"{commit(1)}.json").write_text(text)
    (row,) = read_student_run(folder).filtered.to_pylist()
    assert (row["score"], row["status"], row["eligible"]) == (None, "regressed", False)
