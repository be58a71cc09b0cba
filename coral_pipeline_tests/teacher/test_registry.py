"""The Teachers by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from coral_pipeline.errors import BadInput
from coral_pipeline.settings import OpenCodeSettings, PipelineSettings, TeacherSettings
from coral_pipeline.teacher.registry import TEACHERS, TeacherRequest, open_teacher
from coral_pipeline_tests.teacher.opencode.roots import make_root


def request(folder: Path, script: Path | None = None) -> TeacherRequest:
    settings = PipelineSettings(teacher=TeacherSettings(script=script))
    return TeacherRequest(folder, 1.0, "maximize", None, folder / "states", settings)


def test_a_teacher_has_the_name_it_is_asked_for_by(tmp_path: Path) -> None:
    (tmp_path / "script").write_text("")
    assert open_teacher("scripted", request(tmp_path, tmp_path / "script")).name == "scripted"
    assert open_teacher("simulated", request(tmp_path)).name == "simulated"
    assert not (tmp_path / "states").exists(), "opening touches nothing another process may be using"


@pytest.mark.parametrize("name", ["embedded", "opencode"])
def test_a_real_teacher_explores_in_the_direction_of_the_search(tmp_path: Path, name: str) -> None:
    """Whatever task.yaml says: here that more is better."""
    root, task = make_root(tmp_path)
    opencode = OpenCodeSettings(endpoint="http://127.0.0.1:1/v1", model="m", opencode_command="/bin/true")
    asked = TeacherRequest(root, 1.0, "minimize", task, tmp_path / "states", PipelineSettings(opencode=opencode))
    teacher: Any = open_teacher(name, asked)
    assert teacher._grounds.task.config.grader.direction == "minimize"
    if name == "opencode":
        assert "**minimize**" in teacher._grounds.prompts.instructions


def test_what_a_teacher_cannot_do_without_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="give one with --script FILE"):
        open_teacher("scripted", request(tmp_path))
    with pytest.raises(BadInput, match=r"no task\.yaml"):
        open_teacher("embedded", request(tmp_path))


def test_an_unknown_name_is_answered_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=f"choose one of {', '.join(TEACHERS)}"):
        open_teacher("oracle", request(tmp_path))
