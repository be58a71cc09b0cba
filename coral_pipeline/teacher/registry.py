"""The Teachers by name. Each is imported only when it is asked for."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from coral_pipeline.errors import BadInput
from coral_pipeline.settings import Direction, OpenCodeSettings, PipelineSettings
from coral_pipeline.teacher.protocol import Teacher


@dataclass(frozen=True)
class TeacherRequest:
    """What a Teacher may need to know to explore from one root."""

    root_dir: Path
    root_score: float
    """Raw score of the root."""
    direction: Direction
    task_dir: Path | None
    """Folder with the task's ``task.yaml`` and perhaps ``grader/``; None: not found."""
    workdir: Path
    """Where the Teacher keeps its states; not yet there, and perhaps in use by another process until the first fork."""
    settings: PipelineSettings = field(default_factory=PipelineSettings)
    """Of all Teachers, and in ``teacher`` their seed and script."""
    api_key: str = field(default="", repr=False)
    """Key of the opencode teacher's model endpoint."""


def open_teacher(name: str, request: TeacherRequest) -> Teacher:
    """The Teacher of this name. Raises ``BadInput`` where it cannot work with the root."""
    if name not in TEACHERS:
        raise BadInput(f"teacher {name!r}", "is not known", f"choose one of {', '.join(TEACHERS)}")
    return TEACHERS[name](request)


def api_key_of(settings: OpenCodeSettings) -> str:
    """Key of the model endpoint, from the variable that the settings name; empty: it wants none."""
    return os.environ.get(settings.api_key_variable, "")


def fitting_width(settings: PipelineSettings, trees_at_once: int = 1) -> int:
    """What ``parallel_width: auto`` is now for each of so many trees: what model server and machine can take, shared.

    Raises ``BadInput`` where the Teacher asks no model server, or that cannot be reached.
    """
    require_fitting_width(settings)
    from coral_pipeline.teacher.opencode.model_server import width_for

    return max(1, width_for(settings.opencode, api_key_of(settings.opencode)) // trees_at_once)


def require_fitting_width(settings: PipelineSettings) -> None:
    """Raise ``BadInput`` where the width is ``auto`` and the Teacher asks no model server."""
    name = settings.teacher.name
    if settings.search.parallel_width == "auto" and name != "opencode":
        problem = f"is what a model server can take, and the {name} teacher asks none"
        raise BadInput("width auto", problem, "give a number")


def _scripted(request: TeacherRequest) -> Teacher:
    from coral_pipeline.teacher.scripted import ScriptedTeacher

    script = request.settings.teacher.script
    if script is None:
        raise BadInput("teacher scripted", "has no script", "give one with --script FILE")
    return ScriptedTeacher(script)


def _simulated(request: TeacherRequest) -> Teacher:
    from coral_pipeline.teacher.simulated import SimulatedTeacher

    settings = request.settings
    return SimulatedTeacher(settings.simulation, request.root_score, request.direction, settings.teacher.seed)


def _embedded(request: TeacherRequest) -> Teacher:
    from coral_pipeline.teacher.embedded import EmbeddedTeacher

    seed, settings = request.settings.teacher.seed, request.settings.embedded
    return EmbeddedTeacher.open(request.root_dir, request.task_dir, request.workdir, seed, settings, request.direction)


def _opencode(request: TeacherRequest) -> Teacher:
    from coral_pipeline.teacher.opencode.teacher import OpenCodeTeacher

    settings = request.settings.opencode
    return OpenCodeTeacher.open(
        request.root_dir, request.task_dir, request.workdir, settings, request.api_key, request.direction
    )


TEACHERS: dict[str, Callable[[TeacherRequest], Teacher]] = {
    "embedded": _embedded,
    "opencode": _opencode,
    "scripted": _scripted,
    "simulated": _simulated,
}
"""The factories; a Teacher of one's own joins by being put in here."""
