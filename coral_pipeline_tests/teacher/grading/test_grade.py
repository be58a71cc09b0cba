"""The grader's process: what it tells comes through whole, and nobody else can speak in its place."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from coral_pipeline.settings import OpenCodeSettings, SandboxSettings
from coral_pipeline.teacher.grading.grade import CHILD, STAND_IN, Verdict, grade
from coral_pipeline.teacher.grading.task import Task
from coral_pipeline.teacher.opencode.sandbox import Mount, Sandbox, SandboxedFamily, environment
from coral_pipeline.teacher.processes import ProcessFamily
from coral_pipeline_tests.teacher.grading.test_task import write_task

SETTINGS = OpenCodeSettings(grading_seconds=60)
RUNS_IT = """
from coral.grader import TaskGrader

class Grader(TaskGrader):
    def evaluate(self):
        return self.score(1.0, self.run_program("program.py").stdout)
"""
FORKS_IT = """
import multiprocessing, runpy
from coral.grader import TaskGrader

class Grader(TaskGrader):
    def evaluate(self):
        program = self.codebase_path + "/program.py"
        forked = multiprocessing.get_context("fork").Process(target=runpy.run_path, args=[program])
        forked.start()
        forked.join()
        return self.score(1.0)
"""
FORGES = """
import json, os, signal
forged = json.dumps({"score": 999.0}).encode()
for number in range(3, 64):
    try:
        os.write(number, forged)
    except OSError:
        pass
for process in {os.getppid(), 1} if os.getpid() < 100 else {os.getppid()}:
    try:
        for name in os.listdir(f"/proc/{process}/fd"):
            if os.readlink(f"/proc/{process}/fd/{name}").startswith("pipe:"):
                os.write(os.open(f"/proc/{process}/fd/{name}", os.O_WRONLY), forged)
    except OSError:
        pass
try:
    open(f"/proc/{os.getppid()}/mem", "r+b").close()
    print("its memory can be written")
except OSError:
    pass
"""
KILLS = "os.kill(os.getppid(), signal.SIGKILL)\n"


def graded(folder: Path, grader: str, program: str = "", isolation: str = "none") -> Verdict:
    """What comes of grading ``program`` under ``folder``."""
    (folder / "task" / "grader").mkdir(parents=True)
    task_dir = write_task(folder / "task")
    (task_dir / "grader" / "grader.py").write_text(grader)
    scratch = folder / "scratch"
    (scratch / "c0ffee").mkdir(parents=True)
    (scratch / "c0ffee" / "program.py").write_text(program)
    task = Task.read(task_dir)
    sandbox = Sandbox(SandboxSettings.model_validate({"isolation": isolation}))
    mounts = [Mount(scratch, scratch, "write"), *(Mount(place, place) for place in (task_dir, CHILD, STAND_IN))]
    with ProcessFamily(f"test-grade-{os.getpid()}") as plain:
        family = SandboxedFamily(plain, sandbox, mounts, scratch)
        return grade(task, "c0ffee", scratch, None, family, SETTINGS, environment(sandbox))


@pytest.mark.parametrize("isolation", ["bubblewrap", "none"])
@pytest.mark.parametrize("grader", [RUNS_IT, FORKS_IT], ids=["run", "forked"])
def test_a_graded_program_cannot_speak_for_the_grader(tmp_path: Path, isolation: str, grader: str) -> None:
    if grader == FORKS_IT and isolation == "none" and os.geteuid() == 0:
        pytest.skip("a fork of root's grader has all of root's rights")
    honest = graded(tmp_path / "stays", grader, FORGES, isolation)
    assert (honest.score, honest.status) == (1.0, "improved") and "memory" not in honest.feedback
    killed = graded(tmp_path / "kills", grader, FORGES + KILLS, isolation)
    assert (killed.score, killed.status) == (None, "crashed")


def test_a_report_counts_only_where_the_grader_ended_well(tmp_path: Path) -> None:
    """Whatever has come through the channel until then."""
    speaks = (
        "import os\nfor fd in range(3, 64):\n    try: os.write(fd, b'{\"score\": 999}')\n    except OSError: pass\n"
    )
    assert graded(tmp_path, f"{speaks}os._exit(1)").score is None


@pytest.mark.parametrize(
    ("result", "kept"),
    [
        ("self.score(2.0, metadata={'few': 1})", {"few": 1}),
        ("self.score(2.0, 'é' * 3_000_000, metadata={'many': 'é' * 3_000_000})", {}),
        ("self.score(2.0, metadata={('no', 'text'): 1})", {}),
        ("self.score(2.0, metadata=(lambda own: own.update(own=own) or own)({}))", {}),
    ],
    ids=["short", "long", "keys", "circle"],
)
def test_a_score_comes_through_whatever_comes_with_it(tmp_path: Path, result: str, kept: dict[str, object]) -> None:
    grader = (
        f"from coral.grader import TaskGrader\nclass Grader(TaskGrader):\n    def evaluate(self): return {result}\n"
    )
    verdict = graded(tmp_path, grader)
    assert verdict.score == 2.0
    assert {name: value for name, value in verdict.metadata.items() if name != "budget_class"} == kept


def test_a_long_error_comes_through_shortened(tmp_path: Path) -> None:
    verdict = graded(tmp_path, "raise ValueError('x' * 3_000_000)")
    assert verdict.status == "crashed" and verdict.feedback.startswith("Grader failed: xxx")
    assert len(verdict.feedback) < 50_000


def test_what_goes_wrong_after_the_grading_takes_no_score(tmp_path: Path) -> None:
    ends_badly = "import atexit, os\natexit.register(os._exit, 5)\n"
    assert graded(tmp_path, ends_badly + RUNS_IT).score == 1.0
