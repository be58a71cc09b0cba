"""What the search takes from a root folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from coral_pipeline import tables
from coral_pipeline.errors import BadInput
from coral_pipeline.search.root_folder import read_root

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def make_root(folder: Path, metadata: Any = None, attempt: Any = None) -> Path:
    root = folder / "eval-000007-agent-1-0123456789ab"
    (root / "shared" / "attempts").mkdir(parents=True)
    fields = {"commit_hash": COMMIT, "eval_ok": True, "score": 2.5} if metadata is None else metadata
    (root / "metadata.json").write_text(fields if isinstance(fields, str) else json.dumps(fields))
    if attempt is not None:
        (root / "shared" / "attempts" / f"{COMMIT}.json").write_text(json.dumps(attempt))
    return root


def test_the_score_that_the_selection_wrote_comes_first(tmp_path: Path) -> None:
    root = make_root(tmp_path, attempt={"commit_hash": COMMIT, "score": 9.0})
    node = read_root(root).node
    assert (node.key, node.score, node.commit_hash) == (root.name, 2.5, COMMIT)


@pytest.mark.parametrize("score", [{}, {"score": None}, {"score": "2.5"}, {"score": True}])
def test_without_one_the_attempt_record_gives_it(tmp_path: Path, score: dict) -> None:
    root = make_root(tmp_path, {"commit_hash": COMMIT} | score, {"commit_hash": COMMIT, "score": 9})
    assert read_root(root).node.score == 9.0


@pytest.mark.parametrize(("written", "stage"), [("late", "late"), ("later", None), (3, None)])
def test_the_stage_is_the_one_that_the_selection_wrote(tmp_path: Path, written: object, stage: str | None) -> None:
    assert read_root(make_root(tmp_path, {"score": 1, "stage": written})).node.stage == stage


def test_metadata_alone_is_enough(tmp_path: Path) -> None:
    (tmp_path / "metadata.json").write_text('{"score": -1}')
    root = read_root(tmp_path)
    assert (root.node.key, root.node.score, root.node.commit_hash) == (tmp_path.name, -1.0, None)


@pytest.mark.parametrize(
    ("metadata", "told"),
    [
        ({"commit_hash": COMMIT}, "no numeric score"),
        ('{"score": NaN}', "no numeric score"),
        ('{"score": 1', "not JSON"),
        ("[1]", "not a JSON object"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_what_is_no_root_is_refused(tmp_path: Path, metadata: Any, told: str) -> None:
    with pytest.raises(BadInput, match=told):
        read_root(make_root(tmp_path, metadata))


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="nowhere: is missing"):
        read_root(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInput, match=r"metadata\.json: is missing"):
        read_root(tmp_path / "empty")


@pytest.mark.parametrize("place", ["task/task.yaml", "selected_roots/task/task.yaml", "task.yaml"])
def test_the_direction_is_that_of_the_task_nearby(tmp_path: Path, place: str) -> None:
    root = make_root(tmp_path / "selected_roots")
    (tmp_path / place).parent.mkdir(exist_ok=True)
    (tmp_path / place).write_text("grader: {direction: minimize}")
    found = read_root(root)
    assert (found.direction, found.task, found.notices) == ("minimize", (tmp_path / place).parent, ())
    assert read_root(root, "maximize").direction == "maximize", "an option goes first"


def test_without_a_task_higher_is_better_and_it_is_said(tmp_path: Path) -> None:
    found = read_root(make_root(tmp_path))
    assert (found.direction, found.task) == ("maximize", None)
    assert "task.yaml" in found.notices[0] and "--direction" in found.notices[0]


def test_a_task_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    root = make_root(tmp_path / "selected_roots")
    (tmp_path / "task.yaml").write_text("grader: {direction: sideways}")
    with pytest.raises(BadInput, match=r"task\.yaml: grader\.direction is 'sideways'"):
        read_root(root)


def test_the_student_run_is_told_by_the_table_of_roots_or_by_the_run_around_it(tmp_path: Path) -> None:
    root = make_root(tmp_path / "selected_roots")
    assert read_root(root).node.student_run is None
    row = {
        "root": root.name,
        "student_run": "tour",
        "global_index": 7,
        "agent_id": "agent-1",
        "commit_hash": COMMIT,
        "score": 2.5,
        "stage": "early",
        "selection_reason": "quota",
    }
    tables.SELECTED_ROOTS.write([row], root.parent)
    assert read_root(root).node.student_run == "tour"
    assert read_root(make_root(tmp_path / "some-run" / "all_snapshots")).node.student_run == "some-run"


def test_the_fingerprint_changes_with_the_snapshot_but_not_with_why_it_was_chosen(tmp_path: Path) -> None:
    fields = {"commit_hash": COMMIT, "score": 2.5, "eval_count": 3, "stage": "early", "selection_reason": "quota"}

    def fingerprint(place: str, **changed: Any) -> str:
        return read_root(make_root(tmp_path / place, fields | changed)).node.fingerprint

    same = fingerprint("a")
    assert fingerprint("b", stage="middle", selection_reason="backfill") == same
    assert fingerprint("c", commit_hash=COMMIT[::-1]) != same
    assert fingerprint("d", eval_count=4) != same
