"""The embedded teacher: a small real agent in real forks, with no language model (the default of a fresh machine).

Programs run as the user, with time and output limits but without a sandbox. Two runs of the same edge give
the same Turn, ``seconds`` apart, as long as the program and its grader answer the same.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from coral_pipeline.errors import BadInput
from coral_pipeline.settings import Direction, EmbeddedSettings
from coral_pipeline.teacher.embedded.fork import EmbeddedFork, Grounds, state_name
from coral_pipeline.teacher.embedded.repository import Repository
from coral_pipeline.teacher.embedded.root import Root
from coral_pipeline.teacher.embedded.states import KNOWLEDGE, LINKS, ROOT, Session, prepare_root
from coral_pipeline.teacher.grading.task import Task
from coral_pipeline.teacher.processes import kill_marked
from coral_pipeline.teacher.protocol import EdgeRequest, Fork
from coral_pipeline.teacher.space import machine_faults

logger = logging.getLogger(__name__)

BEHAVIOUR_VERSION = 3
"""Raised whenever the same edge may be answered otherwise than before."""


class EmbeddedTeacher:
    """A Teacher (see ``teacher.protocol``) for one root."""

    name = "embedded"

    def __init__(self, root_dir: Path, grounds: Grounds) -> None:
        """Use ``open``."""
        self._root_dir = root_dir
        self._grounds = grounds
        self._preparing = threading.Lock()
        self._is_prepared = False

    @classmethod
    def open(
        cls,
        root_dir: Path,
        task_dir: Path | None,
        workdir: Path,
        seed: int,
        settings: EmbeddedSettings = EmbeddedSettings(),
        direction: Direction | None = None,
    ) -> EmbeddedTeacher:
        """The teacher of the root in ``root_dir`` (a copied root folder), which keeps its states in ``workdir``.

        ``task_dir`` holds ``task.yaml`` and ``grader/grader.py``. ``workdir`` is for this tree alone and may
        hold the states of an earlier run; it is left alone until the first fork. ``direction``: None, the task's
        own. Raises ``BadInput`` where root or task cannot be used.
        """
        if task_dir is None:
            raise BadInput(root_dir, "no task.yaml near it", "keep the task's folder beside the root's")
        task = Task.read(task_dir, settings.grader_python, "embedded.grader_python")
        task = task if direction is None else task.directed(direction)
        return cls(root_dir, Grounds(task, Root.read(root_dir), workdir.absolute(), seed, settings))

    def describe(self) -> dict[str, Any]:
        """Everything that decides what the teacher answers on a given root.

        Room on the disk does not, nor how much of a diff is shown.
        """
        return {
            "name": self.name,
            "behaviour_version": BEHAVIOUR_VERSION,
            "seed": self._grounds.seed,
            "task": self._grounds.task.fingerprint,
            "settings": self._grounds.settings.model_dump(mode="json", exclude=set(EmbeddedSettings.UNDECIDING)),
        }

    def fork(self, edge: EdgeRequest, state: str | None, stop: threading.Event) -> AbstractContextManager[Fork]:
        """A fresh fork; see ``teacher.protocol``."""
        return self._fork(edge, ROOT if state is None else state, stop)

    def release(self, state: str | None) -> None:
        """Delete the state; again does no harm. One that cannot be deleted only takes up space."""
        try:
            self._grounds.states.discard(state or ROOT)
        except OSError as error:
            logger.warning("root %s: state %s stays: %s", self._root_dir.name, state, error)

    @contextmanager
    def _fork(self, edge: EdgeRequest, state: str, stop: threading.Event) -> Iterator[Fork]:
        with self._grounds.family(edge.name, stop) as family:
            with machine_faults():
                self._prepare(state)
                for name in (state_name(edge, turn) for turn in (1, 2)):
                    if name != state:
                        self._grounds.states.discard(name)
            yield EmbeddedFork(self._grounds, edge, state, family)

    def _prepare(self, state: str) -> None:
        """Before the first fork, end what a killed process left running. Make the root's state if need be."""
        with self._preparing:
            if not self._is_prepared:
                kill_marked(self._grounds.marker)
                self._is_prepared = True
            if state == ROOT:
                _prepare_root(self._root_dir, self._grounds)


def _prepare_root(root_dir: Path, grounds: Grounds) -> None:
    """Make the root's state, unless it is there from an earlier run."""
    states, root = grounds.states, grounds.root
    if states.path(ROOT).is_dir():
        if Session.read(states.path(ROOT)).root_commit != root.commit_hash:
            raise BadInput(grounds.workdir, "holds the states of another root", "choose another output folder")
        return
    folder = states.begin(ROOT)
    prepare_root(root_dir, folder / "fork")
    with grounds.family(ROOT) as family:
        repository = Repository(folder / "fork" / "code", family, grounds.environment(folder / "tmp", root.moment))
        excluded = tuple(f"/{LINKS}/{knowledge}" for knowledge in KNOWLEDGE)
        objects = os.path.relpath(grounds.objects, states.path(ROOT) / "code" / ".git" / "objects")
        commit = repository.create(excluded, objects)
    session = Session(root_commit=root.commit_hash, best_commit=commit, best_score=root.score, moment=root.moment)
    session.write(folder / "fork")
    states.finish(ROOT, folder)
