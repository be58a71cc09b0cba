"""A root and its task, small but whole, for tests of the embedded teacher."""

from __future__ import annotations

import json
from pathlib import Path

import yaml

from coral_pipeline.settings import EmbeddedSettings
from coral_pipeline.teacher.embedded import EmbeddedTeacher
from coral_pipeline.teacher.protocol import EdgeRequest

PROGRAM = '"""Numbers to tune."""\nVALUES = [0.5, 0.5, 0.5]\n'
GRADER = '''
"""Minus the squared distance of VALUES from 0.7, higher is better; the task's args may ask for other behaviour."""
import json, os, subprocess, sys, time
from coral.grader import TaskGrader
from coral.types import ScoreBundle

READ = "import json, runpy, sys; print(json.dumps(runpy.run_path(sys.argv[1])['VALUES']))"

class Grader(TaskGrader):
    def evaluate(self) -> ScoreBundle:
        mode = self.args.get("mode")
        if mode == "raise":
            raise ValueError("grader blew up on purpose")
        if mode == "exit":
            os._exit(3)
        if mode == "none":
            return self.fail("no score for this one", feedback="explicit None")
        if mode == "nan":
            return self.score(float("nan"))
        if mode == "bytes":
            return self.fail(b"\\xff is no text".decode(errors="surrogateescape"))
        if mode == "number":
            return 7
        if mode == "late":
            time.sleep(1.1)
            return self.score(1.0)
        if mode == "hang":
            subprocess.Popen(["sleep", "600"], start_new_session=True)
            open(self.args["sign"], "w").close()
            time.sleep(600)
        if mode == "secret":
            return self.score(1.0, self.read_eval("secret.txt"))
        command = [sys.executable, "-I", "-S", "-c", READ, self.codebase_path + "/values.py"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=self.timeout)
        if done.returncode != 0:
            return self.fail("values.py failed: " + done.stderr[-500:])
        values = json.loads(done.stdout.splitlines()[-1])
        score = -sum((value - 0.7) ** 2 for value in values)
        return self.score(score, f"score {score:.6f}", metadata={"values": values})
'''
ROOT_SCORE = -0.12
"""Of ``PROGRAM``: -3 (0.5 - 0.7)²."""
ROOT_COMMIT = "0123456789abcdef0123456789abcdef01234567"


def write_task(folder: Path, mode: str | None = None, timeout: int = 20, **args: str) -> Path:
    """The task's folder; ``mode`` and ``args`` are the grader's."""
    (folder / "grader").mkdir(parents=True)
    (folder / "grader" / "grader.py").write_text(GRADER)
    (folder / "grader" / "secret.txt").write_text("only the grader knows")
    grader = {"direction": "maximize", "timeout": timeout, "args": {"mode": mode, **args}}
    task = {"name": "Values", "description": "Tune `VALUES` in `values.py`.\n"}
    (folder / "task.yaml").write_text(yaml.safe_dump({"task": task, "grader": grader}))
    return folder


def write_root(folder: Path, program: str = PROGRAM, score: float | None = ROOT_SCORE) -> Path:
    """The root's folder, with one attempt and one note of the Student's."""
    for name in ("code", "shared/attempts", "shared/notes", "shared/roles"):
        (folder / name).mkdir(parents=True)
    (folder / "code" / "values.py").write_text(program)
    (folder / "code" / ".git").write_text("gitdir: /nowhere/repo/.git/worktrees/agent-1\n")
    (folder / "shared" / "notes" / "ideas.md").write_text("- larger values may be better\n")
    attempt = {
        "commit_hash": ROOT_COMMIT,
        "agent_id": "agent-1",
        "title": "first",
        "score": score,
        "status": "improved",
        "timestamp": "2026-05-01T12:00:00+00:00",
    }
    (folder / "shared" / "attempts" / f"{ROOT_COMMIT}.json").write_text(json.dumps(attempt))
    metadata = {"commit_hash": ROOT_COMMIT, "agent_id": "agent-1", "eval_ok": True, "score": score}
    (folder / "metadata.json").write_text(json.dumps(metadata))
    return folder


def open_teacher(
    place: Path,
    program: str = PROGRAM,
    mode: str | None = None,
    timeout: int = 20,
    seed: int = 0,
    settings: EmbeddedSettings = EmbeddedSettings(),
    **args: str,
) -> EmbeddedTeacher:
    """A teacher for a new small root in ``place``, whose states are in ``place / "work"``."""
    task = write_task(place / "task", mode, timeout, **args)
    root = write_root(place / "root", program)
    return EmbeddedTeacher.open(root, task, place / "work", seed, settings)


def edge(*path: int) -> EdgeRequest:
    """The edge of that name: the last number is the expansion."""
    return EdgeRequest(root="root", path=path[:-1], expansion=path[-1])
