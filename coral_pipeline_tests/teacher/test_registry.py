"""The Teachers by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from coral_pipeline.errors import BadInput
from coral_pipeline.teacher.registry import TEACHERS, TeacherRequest, open_teacher


def request(folder: Path, script: Path | None = None) -> TeacherRequest:
    return TeacherRequest(folder, 1.0, "maximize", None, folder / "states", script=script)


def test_a_teacher_has_the_name_it_is_asked_for_by(tmp_path: Path) -> None:
    (tmp_path / "script").write_text("")
    assert open_teacher("scripted", request(tmp_path, tmp_path / "script")).name == "scripted"
    assert open_teacher("simulated", request(tmp_path)).name == "simulated"
    assert not (tmp_path / "states").exists(), "opening touches nothing another process may be using"


def test_what_a_teacher_cannot_do_without_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="give one with --script FILE"):
        open_teacher("scripted", request(tmp_path))
    with pytest.raises(BadInput, match=r"no task\.yaml"):
        open_teacher("embedded", request(tmp_path))


def test_an_unknown_name_is_answered_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=f"choose one of {', '.join(TEACHERS)}"):
        open_teacher("oracle", request(tmp_path))
