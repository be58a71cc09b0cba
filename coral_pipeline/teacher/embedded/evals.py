"""``coral eval`` in a fork: commit, grade, write the attempt, say how it went, as CORAL does."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from coral_pipeline.teacher.embedded.repository import Repository
from coral_pipeline.teacher.embedded.toolbox import Paths, Result
from coral_pipeline.teacher.grading.grade import Verdict
from coral_pipeline.teacher.opencode.coral_tools.listings import result

AGENT_ID = "teacher"


@dataclass(frozen=True)
class Eval:
    """A graded commit."""

    commit: str
    verdict: Verdict
    code_diff: str | None
    """What the commit changed; None where git could not tell."""


class EvalCommand:
    """Carries out ``coral eval`` in one fork, once."""

    def __init__(
        self,
        repository: Repository,
        shared: Path,
        moment: int,
        paths: Paths,
        grade: Callable[[str], Verdict],
        diff_bytes: int,
    ) -> None:
        """``moment``: Unix time the attempt is given. ``grade`` grades the last commit, named to it.

        ``diff_bytes``: where the diff of what was committed is cut.
        """
        self.done: Eval | None = None
        """The eval, once it was made."""
        self._repository = repository
        self._shared = shared
        self._moment = moment
        self._paths = paths
        self._grade = grade
        self._diff_bytes = diff_bytes

    def __call__(self, message: str) -> Result:
        """Commit and grade; what the command prints, and its exit code."""
        parent = self._repository.head
        commit = self._repository.commit_all(message)
        if commit is None:
            return Result("Error: Nothing to commit. Make changes before running eval.\n", exit_code=1)
        diff = self._repository.diff(parent, commit, self._diff_bytes)
        found = self._grade(commit)
        verdict = Verdict(found.score, found.status, self._paths.show(found.feedback), found.metadata)
        self.done = Eval(commit, verdict, diff and self._paths.show(diff))
        record = self._write_attempt(message, parent, self.done)
        return Result(result(record, "CORAL Eval", str(self._count())) + "\n", exit_code=0)

    def _write_attempt(self, title: str, parent: str, done: Eval) -> dict[str, Any]:
        record = {
            "commit_hash": done.commit,
            "agent_id": AGENT_ID,
            "title": title,
            "score": done.verdict.score,
            "status": done.verdict.status,
            "parent_hash": parent,
            "timestamp": datetime.fromtimestamp(self._moment, UTC).isoformat(),
            "feedback": done.verdict.feedback,
            "metadata": done.verdict.metadata,
        }
        file = self._shared / "attempts" / f"{done.commit}.json"
        file.parent.mkdir(exist_ok=True)
        file.unlink(missing_ok=True)  # the agent's program may have left a link, or worse, under this name
        file.write_text(json.dumps(record, indent=2))
        return record

    def _count(self) -> int:
        """Number of this eval among all that the shared knowledge counts."""
        file = self._shared / "eval_count"
        try:
            count = int(file.read_text()) + 1
        except (FileNotFoundError, ValueError):
            count = sum(1 for _ in (self._shared / "attempts").glob("*.json"))
        file.write_text(str(count))
        return count
