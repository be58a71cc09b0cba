"""A task as CORAL configures it: its grader, as a file or a package, and what the grader alone may see."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from coral_pipeline.errors import BadInput
from coral_pipeline.teacher.grading.task import Task
from coral_pipeline_tests.teacher.grading.packages import packaged_grader


def write_task(folder: Path, **grader: Any) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "task.yaml").write_text(yaml.safe_dump({"grader": grader}))
    return folder


def with_grader(folder: Path) -> Path:
    (folder / "grader").mkdir(parents=True)
    (folder / "grader" / "grader.py").write_text("class Grader: ...")
    return folder


def test_private_data_lies_in_the_runs_own_folder_or_where_coral_finds_it(tmp_path: Path) -> None:
    (with_grader(tmp_path) / "private").mkdir()
    (tmp_path / "private" / "answers.json").write_text("[]")
    (tmp_path / "data" / "hard").mkdir(parents=True)
    task = Task.read(write_task(tmp_path, private=["elsewhere/answers.json", "data/hard"]))
    assert task.private == {
        "answers.json": tmp_path / "private" / "answers.json",
        "hard": tmp_path / "data" / "hard",
        "eval": tmp_path / "grader",
    }
    assert sorted(task.hidden) == sorted(task.private.values())


def test_private_data_that_is_missing_is_named_with_its_place(tmp_path: Path) -> None:
    with_grader(tmp_path)
    with pytest.raises(BadInput, match=r"private/answers\.json: is in grader\.private of task\.yaml.*put it there"):
        Task.read(write_task(tmp_path, private=["data/answers.json"]))


@pytest.mark.parametrize(
    "text", [b"grader: !!int ''", b"grader: [", b"\xff", b"[1]", b"grader: 3", b"a: " + b"[" * 5000]
)
def test_a_configuration_that_cannot_be_read_is_named_in_one_line(tmp_path: Path, text: bytes) -> None:
    (with_grader(tmp_path) / "task.yaml").write_bytes(text)
    with pytest.raises(BadInput, match=r"task\.yaml: is no CORAL task configuration") as refused:
        Task.read(tmp_path)
    assert len(str(refused.value).splitlines()) == 1


def test_the_fingerprint_is_of_everything_that_decides_a_score(tmp_path: Path) -> None:
    (with_grader(tmp_path) / "private").mkdir()
    (tmp_path / "private" / "answers.json").write_text("[]")
    python = packaged_grader(tmp_path / "environment")
    task = write_task(tmp_path, private=["answers.json"], entrypoint="answer_grader.scoring:Scoring")
    prints = [Task.read(task, python).fingerprint]
    [package] = (tmp_path / "environment").glob("lib/*/site-packages/answer_grader")
    for file in (tmp_path / "private" / "answers.json", tmp_path / "grader" / "data", package / "scoring.py"):
        file.write_text("changed")
        prints.append(Task.read(task, python).fingerprint)
    (tmp_path / "unrelated").write_text("file")
    assert len(set(prints)) == 4 and Task.read(task, python).fingerprint == prints[-1]


def test_a_packaged_grader_is_found_in_its_environment(tmp_path: Path) -> None:
    python = packaged_grader(tmp_path / "environment")
    package = Task.read(write_task(tmp_path, entrypoint="answer_grader.scoring:Scoring"), python).package
    assert package is not None and package.source.name == "answer_grader" and package.python == python
    assert package.source in package.folders and tmp_path / "environment" in package.folders


@pytest.mark.parametrize("entrypoint", ["not_installed.scoring:Scoring", "answer_grader.missing:Scoring"])
def test_a_package_that_is_not_installed_is_told_with_the_setting(tmp_path: Path, entrypoint: str) -> None:
    python = packaged_grader(tmp_path / "environment")
    with pytest.raises(BadInput, match=r"is not installed for .*opencode\.grader_python"):
        Task.read(write_task(tmp_path, entrypoint=entrypoint), python, "opencode.grader_python")


@pytest.mark.parametrize("entrypoint", ["scoring", "a b:C", ":C", "a:", "a.b:c.d"])
def test_an_entry_point_of_another_form_is_refused(tmp_path: Path, entrypoint: str) -> None:
    with pytest.raises(BadInput, match=r"package\.module:Class"):
        Task.read(write_task(tmp_path, entrypoint=entrypoint))


def test_a_task_without_a_grader_is_told_both_ways_to_have_one(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"holds no grader \(grader/grader\.py or eval/grader\.py\).*package"):
        Task.read(write_task(tmp_path))
