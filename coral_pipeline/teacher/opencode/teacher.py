"""The real Teacher: OpenCode agents that work in forks of a CORAL run and are graded by its grader."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from coral_pipeline.disk_use import disk_bytes
from coral_pipeline.errors import BadInput
from coral_pipeline.settings import Direction, OpenCodeSettings
from coral_pipeline.teacher.grading.task import Task
from coral_pipeline.teacher.opencode.desk import GradingDesk
from coral_pipeline.teacher.opencode.endpoint import ModelEndpoint
from coral_pipeline.teacher.opencode.forks import View, choose_method
from coral_pipeline.teacher.opencode.grounds import Grounds, Root, existing_folder, prepare_root
from coral_pipeline.teacher.opencode.programs import find_programs
from coral_pipeline.teacher.opencode.prompts import prompts_for
from coral_pipeline.teacher.opencode.records import keep_for_audit, messages_of, next_state, turn_of
from coral_pipeline.teacher.opencode.sandbox import Sandbox
from coral_pipeline.teacher.opencode.setup import AgentSetup
from coral_pipeline.teacher.opencode.states import ROOT, State, StateStore
from coral_pipeline.teacher.opencode.turns import Worked, work
from coral_pipeline.teacher.processes import ProcessFamily, kill_marked
from coral_pipeline.teacher.protocol import EdgeRequest, Fork, Turn
from coral_pipeline.teacher.space import machine_faults, require_free_space, require_small_tree
from coral_pipeline.tree_copy import remove_tree

logger = logging.getLogger(__name__)

BEHAVIOUR_VERSION = 1
"""Raised whenever the same edge may be answered otherwise than before."""
_TOLD_OTHERWISE = {"coral", "fork_method", "instructions", "first_prompt", "second_prompt", "sandbox", "recording"}
"""Settings of which ``describe`` tells what came of them."""


class OpenCodeTeacher:
    """A Teacher (see ``teacher.protocol``) for one root."""

    name = "opencode"

    def __init__(self, grounds: Grounds) -> None:
        """Use ``open``, which checks that everything is there."""
        self._grounds = grounds
        self._preparing = threading.Lock()
        self._is_prepared = False

    @classmethod
    def open(
        cls,
        root_dir: Path,
        task_dir: Path | None,
        workdir: Path,
        settings: OpenCodeSettings,
        key: str = "",
        direction: Direction | None = None,
    ) -> OpenCodeTeacher:
        """The teacher of the root in ``root_dir``, which keeps its states in ``workdir``.

        ``task_dir`` holds ``task.yaml`` and ``grader/grader.py``; None: it was not found. ``key``: of the
        model endpoint; kept in memory alone. ``direction``: None, the task's own. Nothing is written before the
        first fork. Raises ``BadInput`` where something is missing, with how to get it.
        """
        for name in ("endpoint", "model"):
            if not getattr(settings, name):
                raise BadInput(f"teacher opencode: {name}", "is not given", f"give it with --{name}")
        if task_dir is None:
            raise BadInput(
                root_dir, "its task is not found", "put task.yaml and grader/ into a folder above the root's"
            )
        task = Task.read(task_dir, settings.grader_python, "opencode.grader_python")
        task = task if direction is None else task.directed(direction)
        root = Root.read(root_dir.resolve(), task.config.grader.direction)
        programs = find_programs(settings)
        sandbox = Sandbox(settings.sandbox)
        sandbox.require([*task.hidden, workdir], programs.coral_folders)
        prompts = prompts_for(task.config, root.agent_id, settings)
        setup = AgentSetup(settings, sandbox, programs, root.agent_id, prompts.instructions)
        method = choose_method(existing_folder(workdir), settings.fork_method, sandbox.isolated)
        store = StateStore(workdir / "states", method, settings.max_layers)
        return cls(Grounds(root, task, prompts, workdir.absolute(), store, setup, key))

    def describe(self) -> dict[str, Any]:
        """What decides what the teacher answers, and what it ran with.

        Not told, since no other machine has the same: what the sandbox shows of this one (programs, devices,
        environment, memory). Nor how the model server is waited for, and asked for token ids.
        """
        grounds, programs = self._grounds, self._grounds.setup.programs
        return {
            "name": self.name,
            "behaviour_version": BEHAVIOUR_VERSION,
            "task": grounds.task.fingerprint,
            "prompts": grounds.prompts.fingerprint,
            "opencode": programs.opencode_version,
            "coral": programs.coral,
            "fork_method": grounds.store.method.name,
            "isolation": grounds.settings.sandbox.isolation,
            "settings": grounds.settings.model_dump(
                mode="json", exclude={*OpenCodeSettings.UNDECIDING, *_TOLD_OTHERWISE}
            ),
            "extra_body": grounds.settings.recording.extra_body,
        }

    def fork(self, edge: EdgeRequest, state: str | None, stop: threading.Event) -> AbstractContextManager[Fork]:
        """A fresh fork; see ``teacher.protocol``."""
        return self._fork(edge, ROOT if state is None else state, stop)

    def release(self, state: str | None) -> None:
        """Reduce the state to what an audit needs, once no other stands on it; again does no harm.

        One that cannot be reduced only takes up space.
        """
        try:
            self._grounds.store.release(state or ROOT)
        except OSError as error:
            logger.warning("root %s: state %s stays: %s", self._grounds.root.folder.name, state, error)

    @contextmanager
    def _fork(self, edge: EdgeRequest, state: str, stop: threading.Event) -> Iterator[Fork]:
        grounds = self._grounds
        scratch = grounds.workdir / "forks" / edge.name
        with machine_faults():
            self._prepare(state)
            remove_tree(scratch)
            for name in (state_name(edge, turn) for turn in (1, 2)):
                if name != state:
                    grounds.store.discard(name)
        settings = grounds.settings
        endpoint = ModelEndpoint(settings.endpoint, grounds.key, settings.model, settings.recording)
        try:
            yield OpenCodeFork(grounds, edge, state, endpoint, stop, scratch)
        finally:
            endpoint.close()
            with machine_faults():
                remove_tree(scratch)

    def _prepare(self, state: str) -> None:
        """Before the first fork, end what a killed process left running. Make the root's state if need be."""
        with self._preparing:
            if not self._is_prepared:
                kill_marked(self._grounds.marker)
                remove_tree(self._grounds.workdir / "forks")
                self._is_prepared = True
            if state == ROOT:
                prepare_root(self._grounds)


class OpenCodeFork:
    """A forked state in which one agent works; see ``teacher.protocol.Fork``."""

    def __init__(
        self,
        grounds: Grounds,
        edge: EdgeRequest,
        state: str,
        endpoint: ModelEndpoint,
        stop: threading.Event,
        scratch: Path,
    ) -> None:
        """``scratch``: for this fork alone."""
        self._grounds = grounds
        self._edge = edge
        self._state = state
        self._endpoint = endpoint
        self._stop = stop
        self._scratch = scratch

    def run_turn(self, turn: int) -> Turn:
        """Run Rollout Turn 1 or 2; see ``teacher.protocol.Fork``."""
        grounds, store = self._grounds, self._grounds.store
        name, scratch = state_name(self._edge, turn), self._scratch / str(turn)
        with machine_faults():
            remove_tree(scratch)
            store.discard(name)
            parent = store.get(self._state)
            require_free_space(grounds.workdir, grounds.settings.min_free_bytes)
            require_small_tree(grounds.workdir, grounds.settings.max_tree_bytes, "opencode.max_tree_bytes")
            with (
                ProcessFamily(f"{grounds.marker}{self._edge.name}", self._stop) as family,
                store.fork(parent.name, scratch / "fork") as view,
            ):
                worked = self._work(turn, parent, view, scratch, family)
                # Else a program may have failed for want of it, which says nothing about the agent.
                require_free_space(grounds.workdir, grounds.settings.min_free_bytes)
                state = next_state(name, parent, worked, grounds.task.config.grader.direction)
                messages = messages_of(worked, parent)
                keep_for_audit(store.prepare(name, parent, view), worked, store.place(parent.name), grounds.key)
            store.commit(state, parent, scratch / "fork")
            remove_tree(scratch)
        self._state = name
        return turn_of(worked, state, messages, parent.name == ROOT)

    def _work(self, turn: int, parent: State, view: View, scratch: Path, family: ProcessFamily) -> Worked:
        grounds = self._grounds
        desk = GradingDesk(
            view,
            scratch / "grading",
            parent.agent_id,
            parent.best_score,
            parent.commit_hash,
            grounds.task,
            grounds.setup.sandbox,
            family,
            grounds.settings,
        )
        before = disk_bytes(scratch)
        return work(
            grounds.setup,
            parent,
            grounds.prompts.of_turn(turn),
            view,
            scratch,
            desk,
            self._endpoint,
            grounds.tree,
            family,
            self._stop,
            lambda: disk_bytes(scratch) - before,
        )


def state_name(edge: EdgeRequest, turn: int) -> str:
    """Name of the state after a turn of an edge."""
    return f"{edge.name}-t{turn}"
