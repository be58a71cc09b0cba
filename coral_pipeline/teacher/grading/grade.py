"""Grading a code folder with the task's own grader, apart from the agent: own process, own folder, own channel.

The grader sees a checkout of the graded commit, not the agent's fork, and reports through a pipe that no
program it starts can reach (``child.shut_off``). The score is what came through the pipe from a grader that ended
well: whatever the graded program prints, writes into the attempts, or kills, changes nothing. A grader that
imports the graded code, and so has it run in its own process, believes that code by its nature.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict, ValidationError

from coral_pipeline.scores import numeric
from coral_pipeline.settings import orient
from coral_pipeline.teacher.grading import child
from coral_pipeline.teacher.grading.task import Task
from coral_pipeline.teacher.processes import Finished, ProcessFamily
from coral_pipeline.teacher.protocol import InfrastructureFault

CHILD = Path(child.__file__)
STAND_IN = CHILD.parent / "stand_in"
PRIVATE = "private"
"""Name of the folder, beside the checkout, in which the grader finds its own files."""
_OUTPUT_BYTES = 2_000
"""Of what is printed where no grader started; what a grader prints is nobody's business."""


@dataclass(frozen=True)
class Verdict:
    """How an eval ended."""

    score: float | None
    """Finite; None: no score."""
    status: str
    """``improved`` | ``baseline`` | ``regressed`` | ``crashed`` | ``timeout``, as CORAL names them."""
    feedback: str
    metadata: dict[str, Any] = field(default_factory=dict)


class GradingSettings(Protocol):
    """What a Teacher's settings say of grading."""

    @property
    def grading_seconds(self) -> int:
        """Time limit of an eval where the task gives none."""

    @property
    def grading_grace_seconds(self) -> float:
        """How long past its limit an eval may take to say so itself before it is killed."""


class _Report(BaseModel):
    """What the child process tells of an eval."""

    model_config = ConfigDict(extra="forbid")

    score: Any = None
    feedback: str = ""
    metadata: dict[str, Any] = {}
    error: str | None = None
    """The grader raised this."""
    traceback: str = ""


def grade(
    task: Task,
    commit: str,
    folder: Path,
    previous_best: float | None,
    family: ProcessFamily,
    settings: GradingSettings,
    env: dict[str, str],
) -> Verdict:
    """Grade ``folder/<commit>``, a checkout of the commit, and compare with the session's best score so far.

    ``folder`` is for this eval alone; the grader's own files are linked in beside the checkout. Raises
    ``InfrastructureFault`` where the grader's process does not come to start, ``Stopped`` as ``ProcessFamily.run``.
    """
    private = folder / PRIVATE
    private.mkdir()
    for name, source in task.private.items():
        (private / name).symlink_to(source)
    timeout = task.config.grader.timeout or settings.grading_seconds
    request = {
        "codebase_path": str(folder / commit),
        "private_dir": str(private),
        "timeout": timeout,
        "args": task.config.grader.args,
        "direction": task.config.grader.direction,
        "task_name": task.config.task.name,
        "task_description": task.config.task.description,
        "stand_in": str(STAND_IN),
        "import_paths": [] if task.package else package_folders(),
        "entrypoint": task.package.entrypoint if task.package else None,
    }
    # -S: finding the installed packages anew, for every eval, takes longer than starting Python.
    python = [str(task.package.python), "-I"] if task.package else [sys.executable, "-I", "-S"]
    done = family.run(
        [*python, str(CHILD), json.dumps(request)],
        cwd=folder,
        env=env,
        timeout=timeout + settings.grading_grace_seconds,
        output_limit=_OUTPUT_BYTES,
        channel_limit=len(child.STARTED) + child.REPORT_BYTES,
    )
    if not done.channel:
        raise InfrastructureFault(f"the grader could not be started: {done.text.strip() or 'no word of it'}")
    if done.timed_out:
        return _broken("timeout", f"Eval timed out after {timeout}s.")
    report = _reported(done)
    if report is None:
        return _broken("crashed", "Grader process exited without returning a result")
    if report.error is not None:
        return _broken("crashed", f"Grader failed: {report.error}\n{report.traceback}")
    return _verdict(report, previous_best, task)


def _reported(done: Finished) -> _Report | None:
    """What a grader that ended well has told; None where it did not."""
    if done.returncode:
        return None
    try:
        return _Report.model_validate_json(done.channel)
    except ValidationError:
        return None


def package_folders() -> list[str]:
    """Where the packages of this Python are installed."""
    return [entry for entry in sys.path if Path(entry).name in {"site-packages", "dist-packages"}]


def _broken(status: str, feedback: str) -> Verdict:
    """The grader, rather than the code, went wrong."""
    return Verdict(None, status, feedback, {"budget_class": "grader_error"})


def _verdict(report: _Report, previous_best: float | None, task: Task) -> Verdict:
    metadata = {**report.metadata, "budget_class": "real"}
    score, feedback = numeric(report.score), report.feedback
    if score is None:
        if report.score is not None:
            feedback = "\n".join([*([feedback] if feedback else []), f"the score is no number: {report.score}"])
        return Verdict(None, "crashed", feedback, metadata)
    direction = task.config.grader.direction
    if previous_best is None or orient(score, direction) > orient(previous_best, direction):
        return Verdict(score, "improved", feedback, metadata)
    return Verdict(score, "baseline" if score == previous_best else "regressed", feedback, metadata)
