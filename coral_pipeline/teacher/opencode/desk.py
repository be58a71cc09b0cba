"""Where the agents' evals are graded: outside their sandbox, by the task's own grader, once per turn.

Whose ``coral`` command the agent has does not matter: it commits, writes a pending attempt and waits. The desk
finds that attempt, checks the commit out (in a sandbox: the repository is the agent's, hooks, filters and all),
grades the checkout in another sandbox that sees the private part, and writes the result back. The turn's
score is what the grader said here; what the attempts say in the end is up to the agent.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from coral_pipeline.errors import LASTING
from coral_pipeline.settings import OpenCodeSettings
from coral_pipeline.teacher.code_diff import DIFF, shown_diff
from coral_pipeline.teacher.grading.grade import CHILD, PRIVATE, STAND_IN, Verdict, grade
from coral_pipeline.teacher.grading.task import Task
from coral_pipeline.teacher.opencode.agent_files import AgentFolder
from coral_pipeline.teacher.opencode.coral_tools.shared_state import TURN_OVER
from coral_pipeline.teacher.opencode.forks import View
from coral_pipeline.teacher.opencode.root import CORAL, SEEN
from coral_pipeline.teacher.opencode.sandbox import Mount, Sandbox, SandboxedFamily, environment
from coral_pipeline.teacher.processes import Finished, ProcessFamily
from coral_pipeline.teacher.protocol import InfrastructureFault

_RECORD_BYTES = 1 << 20
_PATCH_BYTES = 1 << 22
_SAID_CHARACTERS = 2_000
_CHECKOUT_SECONDS = 600.0
_PRIVATE = SEEN / ".coral" / "private"
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_STARTED = b"started\n"
"""What a script in the repository says first: what goes wrong from there on is the repository's fault."""
_CHECKOUT = """
scratch=$(mktemp -d) && echo started || exit 1
trap 'rm -rf "$scratch"' EXIT
export GIT_DIR="$1/repo/.git" GIT_WORK_TREE="$3" GIT_INDEX_FILE="$scratch/index"
git -c core.hooksPath=/dev/null read-tree "$2" && git -c core.hooksPath=/dev/null checkout-index --all --force &&
git show --format= --binary --no-ext-diff --no-textconv "$2"
"""
_DIFF = f'echo started; git --git-dir="$1/repo/.git" {shlex.join(DIFF)} "$4" "$2" 2>/dev/null'
_ROOT_COMMIT = "refs/heads/master"
"""The code of the root; the agent works on a branch of its own."""
_REFUSED = Verdict(None, "crashed", "Tuning evals are not graded here: leave out --tune.", {"budget_class": "tune"})


@dataclass(frozen=True)
class Graded:
    """An eval and what the grader said of it."""

    commit: str
    title: str
    verdict: Verdict
    patch: bytes = b""
    """What the commit changed, as git shows it, the first megabytes of it."""
    code_diff: str | None = None
    """For readers: what changed since the eval before, or the root; None where git could not tell."""


class GradingDesk:
    """Grades the one eval of one turn."""

    def __init__(
        self,
        view: View,
        scratch: Path,
        agent_id: str,
        best_score: float | None,
        last_commit: str | None,
        task: Task,
        sandbox: Sandbox,
        family: ProcessFamily,
        settings: OpenCodeSettings,
    ) -> None:
        """``scratch``: an empty folder for the checkout. ``best_score``: the agent's best so far, raw.

        ``last_commit``: of its last eval; None: none since the root.
        """
        self.graded: Graded | None = None
        """The turn's eval, once it was made."""
        self.on_graded: Callable[[], object] = lambda: None
        """Called when an eval was graded, before the agent can know."""
        self._view = view
        self._scratch = scratch
        self._agent_id = agent_id
        self._best_score = best_score
        self._last_commit = last_commit or _ROOT_COMMIT
        self._task = task
        self._sandbox = sandbox
        self._family = family
        self._settings = settings
        self._attempts = AgentFolder(view.files, f"{CORAL}/.coral/public/attempts")
        self._public = AgentFolder(view.files, f"{CORAL}/.coral/public")
        self._patch = b""
        self._code_diff: str | None = None
        self._looked_at = set(self._attempts.names())

    def look(self) -> bool:
        """Grade an eval that was submitted since the turn began, where there is one and none was graded yet.

        Returns whether one was graded just now. A tuning eval, which stock CORAL knows, is refused, and so is
        not yet an eval. Raises ``InfrastructureFault`` where one cannot be graded, ``Stopped`` where the family's
        stop event is set.
        """
        if self.graded is not None:
            return False
        record = min(self._submitted(), key=lambda record: str(record.get("timestamp")), default=None)
        if record is None:
            return False
        if _is_tuning(record):
            self._looked_at.add(f"{record['commit_hash']}.json")
            self._write(_finished(record, _REFUSED))
            return self.look()
        verdict = self._grade(record["commit_hash"])
        title = str(record.get("title", ""))
        self.graded = Graded(record["commit_hash"], title, verdict, self._patch, self._code_diff)
        self.on_graded()
        # First the record that has further evals of this turn refused, then the one the agent waits for.
        self._write(self._turn_over())
        self._count()
        self._write(_finished(record, verdict))
        return True

    def close(self) -> None:
        """Take out what would keep the next turn from submitting; called when the agent has ended."""
        pending = [f"{record['commit_hash']}.json" for record in self._submitted()]
        try:
            for name in (f"{TURN_OVER}.json", *pending):
                self._attempts.remove(name)
        except OSError:
            pass  # the agent removed the folder: nothing is pending there

    def _submitted(self) -> list[dict[str, Any]]:
        """Pending attempts of the agent that were not there when the turn began."""
        found = []
        for name in self._attempts.names() - self._looked_at:
            if not name.endswith(".json") or name.startswith(".") or name == f"{TURN_OVER}.json":
                continue
            record = _record(self._attempts.read(name, _RECORD_BYTES))
            if record is None:
                continue  # perhaps still being written
            ours = name == f"{record['commit_hash']}.json" and record.get("agent_id") == self._agent_id
            if ours and record.get("status") == "pending" and record.get("score") is None:
                found.append(record)
            else:
                self._looked_at.add(name)  # finished without us: the agent's own invention
        return found

    def _grade(self, commit: str) -> Verdict:
        problem = self._check_out(commit)
        if problem is not None:
            return Verdict(None, "crashed", f"Grader failed: {problem}", {"budget_class": "grader_error"})
        mounts = [
            Mount(self._scratch, self._scratch, "write"),
            Mount(self._scratch / PRIVATE, self._scratch / PRIVATE),  # lest graded programs put others in their place
            *(Mount(place, place) for place in self._task.private.values()),
            *(Mount(place, place) for place in (self._task.package.folders if self._task.package else ())),
            Mount(CHILD, CHILD),
            Mount(STAND_IN, STAND_IN),
        ]
        family = SandboxedFamily(self._family, self._sandbox, mounts, self._scratch)
        env = environment(self._sandbox)
        verdict = grade(self._task, commit, self._scratch, self._best_score, family, self._settings, env)
        return replace(verdict, feedback=self._without_places(verdict.feedback))

    def _check_out(self, commit: str) -> str | None:
        """Check the commit out into ``scratch/<commit>``, and see what it changed; why git refuses, where it does.

        Raises ``InfrastructureFault`` where git could not be asked.
        """
        target = self._scratch / commit
        target.mkdir(parents=True)
        done = self._in_repository(_CHECKOUT, commit, target, _PATCH_BYTES)
        if done.returncode:
            return f"commit {commit[:12]} cannot be checked out: {done.text.strip()[-_SAID_CHARACTERS:]}"
        self._patch = done.output
        limit = self._settings.code_diff_bytes
        done = self._in_repository(_DIFF, commit, target, limit + 1)
        self._code_diff = None if done.returncode else shown_diff(done.output, limit)
        return None

    def _in_repository(self, script: str, commit: str, target: Path, output_limit: int) -> Finished:
        """Run the script, sandboxed: its arguments are run, commit, ``target`` (writable), the commit before."""
        isolated = self._sandbox.isolated
        run = SEEN if isolated else self._view.seen / CORAL
        place = Path("/checkout") if isolated else target
        mounts = [Mount(self._view.seen / CORAL, SEEN), Mount(target, place, "write")]
        arguments = ["sh", "-c", script, "sh", str(run), commit, str(place), self._last_commit]
        done = self._family.run(
            self._sandbox.command(self._view, mounts, arguments, place),
            cwd=self._scratch,
            env=environment(self._sandbox),
            timeout=_CHECKOUT_SECONDS,
            output_limit=len(_STARTED) + output_limit,
        )
        if not done.output.startswith(_STARTED):
            raise InfrastructureFault(f"a commit could not be looked at: {done.text.strip()[-_SAID_CHARACTERS:]}")
        return replace(done, output=done.output.removeprefix(_STARTED))

    def _without_places(self, text: str) -> str:
        """Feedback without this machine's paths: as if graded where CORAL grades."""
        text = text.replace(str(self._scratch / PRIVATE), str(_PRIVATE))
        for name, source in self._task.private.items():
            text = text.replace(str(source), str(_PRIVATE / name))
        for folder in self._task.package.folders if self._task.package else ():
            text = text.replace(str(folder), str(_PRIVATE / "grader_venv"))
        text = text.replace(str(CHILD.parent), "/opt/teacher/grader")
        return text.replace(str(self._scratch), str(_PRIVATE / "grader_checkouts"))

    def _turn_over(self) -> dict[str, Any]:
        return {
            "commit_hash": TURN_OVER,
            "agent_id": self._agent_id,
            "title": "this turn has had its eval",
            "score": None,
            "status": "pending",
            "parent_hash": None,
            "timestamp": "2000-01-01T00:00:00+00:00",
            "feedback": "",
        }

    def _write(self, record: Mapping[str, Any]) -> None:
        # NaN and infinities as CORAL writes them, though JSON does not know them.
        _put(self._attempts, f"{record['commit_hash']}.json", json.dumps(record, indent=2))

    def _count(self) -> None:
        text = self._public.read("eval_count", 32) or b"0"
        count = int(text) if text.strip().isdigit() else 0
        _put(self._public, "eval_count", str(count + 1))


def _put(folder: AgentFolder, name: str, text: str) -> None:
    """Tell the agent; one that has put something in the way, or removed the folder, is not told."""
    try:
        folder.write(name, text.encode())
    except OSError as error:
        if error.errno in LASTING:
            return
        raise InfrastructureFault(f"the result of an eval cannot be written ({error})") from error


def _record(data: bytes | None) -> dict[str, Any] | None:
    try:
        record = json.loads(data or b"")
    except ValueError:
        return None
    if not isinstance(record, dict) or not _COMMIT.fullmatch(str(record.get("commit_hash"))):
        return None
    return record


def _is_tuning(record: Mapping[str, Any]) -> bool:
    metadata = record.get("metadata")
    return isinstance(metadata, dict) and metadata.get("budget_class") == "tune"


def _finished(record: Mapping[str, Any], verdict: Verdict) -> dict[str, Any]:
    metadata = {**verdict.metadata, "budget_class": verdict.metadata.get("budget_class", "real")}
    graded = {"score": verdict.score, "status": verdict.status, "feedback": verdict.feedback, "metadata": metadata}
    return {**record, **graded}
