"""One logical edge of the embedded teacher: turn after turn, from a state to the next."""

from __future__ import annotations

import hashlib
import os
import random
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from coral_pipeline.settings import EmbeddedSettings
from coral_pipeline.teacher.embedded.agent import Agent
from coral_pipeline.teacher.embedded.evals import AGENT_ID, EvalCommand
from coral_pipeline.teacher.embedded.repository import Repository, git_environment
from coral_pipeline.teacher.embedded.root import Root
from coral_pipeline.teacher.embedded.states import Session, States
from coral_pipeline.teacher.embedded.strategy import Strategy
from coral_pipeline.teacher.embedded.toolbox import CODE, SHARED, Paths, Toolbox
from coral_pipeline.teacher.grading.grade import Verdict, grade, package_folders
from coral_pipeline.teacher.grading.task import Task
from coral_pipeline.teacher.processes import ProcessFamily
from coral_pipeline.teacher.protocol import EdgeRequest, Message, Turn
from coral_pipeline.teacher.space import machine_faults, require_free_space, require_small_tree

SECONDS_PER_EVAL = 60
"""What an eval adds to the session's clock."""
PRIVATE = "/coral/.coral/private"


@dataclass(frozen=True)
class Grounds:
    """What all forks of one root have in common."""

    task: Task
    root: Root
    workdir: Path
    """Absolute."""
    seed: int
    settings: EmbeddedSettings

    @property
    def states(self) -> States:
        """The states of the root's tree."""
        return States(self.workdir)

    @property
    def objects(self) -> Path:
        """Git's objects of all the states: git only ever adds to them, and a copy of a state is a third smaller."""
        return self.workdir / "objects"

    def require_space(self) -> None:
        """Raises ``InfrastructureFault`` where the disk is all but full."""
        require_free_space(self.workdir, self.settings.min_free_bytes)

    def family(self, name: str, stop: threading.Event | None = None) -> ProcessFamily:
        """The processes of the edge of that name."""
        return ProcessFamily(f"{self.marker}{name}", stop)

    @property
    def marker(self) -> str:
        """What the markers of all the tree's processes begin with: the same in every process that explores it."""
        return f"embedded-{hashlib.sha256(str(self.workdir).encode()).hexdigest()[:16]}-"

    def environment(self, folder: Path, moment: int) -> dict[str, str]:
        """What programs in a fork see: ``folder`` for their temporary files, ``moment`` as the time of commits."""
        folder.mkdir()
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
        return {
            "PATH": path,
            "HOME": str(folder),
            "TMPDIR": str(folder),
            "LANG": "C.UTF-8",
            "LC_ALL": "C.UTF-8",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONHASHSEED": "0",
            "GIT_OBJECT_DIRECTORY": str(self.objects),
            **git_environment(moment, AGENT_ID),
        }

    def paths(self, folder: Path) -> Paths:
        """How the folders of this machine are shown, those of a turn's working folder first."""
        return Paths(
            {
                folder / "fork" / "code": CODE,
                folder / "fork" / "shared": SHARED,
                folder / "grading": PRIVATE,
                **{source: f"{PRIVATE}/{name}" for name, source in self.task.private.items()},
                self.workdir: "/coral/states",
                Path(__file__).parents[2]: "/python/coral_pipeline",
                Path(sys.prefix): "/python",
                Path(sys.base_prefix): "/python",
            }
        )


class EmbeddedFork:
    """A Fork (see ``teacher.protocol``)."""

    def __init__(self, grounds: Grounds, edge: EdgeRequest, state: str, family: ProcessFamily) -> None:
        """``state`` is where the next turn starts; ``family`` takes the fork's processes."""
        self._grounds = grounds
        self._edge = edge
        self._state = state
        self._family = family

    def run_turn(self, turn: int) -> Turn:
        """One Rollout Turn, from a copy of the state to a new state; see ``teacher.protocol``."""
        started = time.perf_counter()
        with machine_faults():
            result, self._state = self._run(turn)
        return result.model_copy(update={"seconds": time.perf_counter() - started})

    def _run(self, turn: int) -> tuple[Turn, str]:
        grounds, name = self._grounds, state_name(self._edge, turn)
        before = Session.read(grounds.states.path(self._state))
        session = before.model_copy(update={"moment": before.moment + SECONDS_PER_EVAL})
        folder = grounds.states.begin(name)
        grounds.require_space()
        require_small_tree(grounds.workdir, grounds.settings.max_tree_bytes, "embedded.max_tree_bytes")
        grounds.states.copy(self._state, folder)
        code, shared = folder / "fork" / "code", folder / "fork" / "shared"
        env, paths = grounds.environment(folder / "tmp", session.moment), grounds.paths(folder)
        repository = Repository(code, self._family, env)
        evaluate = EvalCommand(
            repository,
            shared,
            session.moment,
            paths,
            lambda commit: self._grade(commit, session, repository, env),
            grounds.settings.code_diff_bytes,
        )
        # With the packages named here, the agent's `python -S` finds them without the time that takes Python itself.
        shell_env = {**env, "PYTHONPATH": os.pathsep.join(package_folders())}
        tools = Toolbox(code, paths, self._family, shell_env, grounds.settings, evaluate, before.calls)
        rng = random.Random(f"{grounds.seed}/{grounds.root.commit_hash}/{self._edge.name}/{turn}")
        # Of all forks of a state one takes up where it left off, lest siblings all do the same.
        follows_up = turn > 1 or self._edge.expansion == 0
        strategy = Strategy(grounds.settings, grounds.task.config.grader.direction, follows_up, rng)
        agent = Agent(grounds.task, grounds.settings, session, strategy, code, tools, evaluate)
        after = agent.play(at_best=repository.head == session.best_commit)
        context_bytes = before.context_bytes + sum(map(_bytes, tools.messages))
        after = after.model_copy(update={"context_bytes": context_bytes, "calls": before.calls + tools.tool_calls})
        self._family.end()  # nothing may go on writing into what becomes the state
        grounds.require_space()  # else a program may have failed for want of it, which says nothing about the program
        after.write(folder / "fork")
        grounds.states.finish(name, folder)
        return self._turn(name, tools, evaluate, context_bytes), name

    def _grade(self, commit: str, session: Session, repository: Repository, env: dict[str, str]) -> Verdict:
        folder = repository.folder.parents[1] / "grading"
        folder.mkdir()
        repository.check_out_into(folder / commit)
        grounds = self._grounds
        return grade(grounds.task, commit, folder, session.best_score, self._family, grounds.settings, env)

    def _turn(self, state: str, tools: Toolbox, evaluate: EvalCommand, context_bytes: int) -> Turn:
        done = evaluate.done
        return Turn(
            score=done.verdict.score if done else None,
            status=done.verdict.status if done else None,
            commit_hash=done.commit if done else None,
            feedback=done.verdict.feedback if done else None,
            code_diff=done.code_diff if done else None,
            step_turns=tools.steps,
            tool_calls=tools.tool_calls,
            failed_tool_calls=tools.failed_tool_calls,
            knowledge_read=tools.knowledge.read,
            knowledge_write=tools.knowledge.write,
            context_tokens=-(-context_bytes // self._grounds.settings.bytes_per_token),
            seconds=0.0,
            session_id=f"embedded-{self._edge.name}",
            state=state,
            messages=tuple(tools.messages),
        )


def state_name(edge: EdgeRequest, turn: int) -> str:
    """Name of the state after a turn of an edge."""
    return f"{edge.name}-{turn}"


def _bytes(message: Message) -> int:
    """UTF-8 bytes of what a message says."""
    texts = [text for part in message.content for text in (part.text, part.name, part.arguments) if text]
    return sum(len(text.encode()) for text in texts)
