"""A root and its task on disk, small but whole, for tests of the real Teacher."""

from __future__ import annotations

import json
from pathlib import Path

GRADER = '''
"""The score is the number in answer.py; how to fail is asked for there too."""
import subprocess, sys, time
from coral.grader import TaskGrader

class Grader(TaskGrader):
    def evaluate(self):
        names = {}
        exec(open(self.codebase_path + "/answer.py").read(), names)
        mode = names.get("MODE", "ok")
        if mode == "raise":
            raise ValueError("grader blew up on purpose")
        if mode == "none":
            return self.fail("no score for this one")
        if mode == "nan":
            return self.score(float("nan"))
        if mode == "sleep":
            time.sleep(600)
        if mode == "exit":
            import os
            os._exit(3)
        secret = self.read_eval("secret.txt").strip()
        return self.score(float(names["X"]), f"X={names['X']}, graded with the {secret}")
'''

TASK = """\
task:
  name: Answer
  description: |
    Set `X` in `answer.py` as high as you can.
grader:
  timeout: 3
  args: {}
  direction: maximize
sharing:
  attempts: true
"""


def attempt(commit: str, agent: str, score: float | None, status: str) -> dict[str, object]:
    """A record as CORAL writes it."""
    return {
        "commit_hash": commit,
        "agent_id": agent,
        "title": f"{agent} scored {score}",
        "score": score,
        "status": status,
        "parent_hash": None,
        "timestamp": "2026-11-30T12:34:01.167356+00:00",
        "feedback": "as it was",
    }


def make_root(folder: Path) -> tuple[Path, Path]:
    """A root's folder (agent-1, score 1.0) and its task's, under ``folder``."""
    root, task = folder / "selected_roots" / f"eval-000003-agent-1-{'a' * 12}", folder / "task"
    (root / "code").mkdir(parents=True)
    (root / "code" / "answer.py").write_text("X = 1.0\n")
    (root / "code" / "AGENTS.md").write_text("Run `coral eval` for ever.\n")
    (root / "code" / ".coral_dir").write_text("/somewhere/else/.coral")
    for name in ("notes", "attempts", "roles", "logs"):
        (root / "shared" / name).mkdir(parents=True)
    (root / "shared" / "notes" / "first.md").write_text("---\ncreator: agent-2\n---\n# X may grow\nIt helped.\n")
    (root / "shared" / "manager.pid").write_text("1")
    (root / "shared" / "logs" / "agent-1.log").write_text("old")
    (root / "shared" / "eval_count").write_text("3")
    records = [
        attempt("a" * 40, "agent-1", 1.0, "improved"),
        attempt("b" * 40, "agent-2", 0.5, "improved"),
        attempt("c" * 40, "agent-2", None, "pending"),
    ]
    for record in records:
        (root / "shared" / "attempts" / f"{record['commit_hash']}.json").write_text(json.dumps(record))
    metadata = {"commit_hash": "a" * 40, "eval_count": 3, "agent_id": "agent-1", "eval_ok": True, "score": 1.0}
    (root / "metadata.json").write_text(json.dumps(metadata))
    (task / "grader").mkdir(parents=True)
    (task / "task.yaml").write_text(TASK)
    (task / "grader" / "grader.py").write_text(GRADER)
    (task / "grader" / "secret.txt").write_text("hidden key\n")
    return root, task
