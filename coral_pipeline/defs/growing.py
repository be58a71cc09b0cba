"""Growing one root's tree in its place under the output folder; a tree of other making is moved aside, never lost."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coral_pipeline.defs.folders import Folders
from coral_pipeline.defs.partitions import RootKey
from coral_pipeline.defs.versions import root_version
from coral_pipeline.search.explore import WORK_FOLDER, TreeSummary, explore_root
from coral_pipeline.search.explorer import Observer
from coral_pipeline.search.journal import OtherTree, header
from coral_pipeline.search.root_folder import RootFolder, read_root
from coral_pipeline.settings import PipelineSettings
from coral_pipeline.teacher.protocol import Teacher
from coral_pipeline.teacher.registry import TeacherRequest, open_teacher

ROOT_VERSION_FILE = "root_version"
"""Beside the journal, which knows the root's metadata only: version of all that the copied root holds."""


@dataclass(frozen=True)
class Plot:
    """A root, who explores it, and where its tree grows."""

    root: RootFolder
    root_version: str
    teacher: Teacher
    out: Path
    settings: PipelineSettings

    @classmethod
    def of(cls, folders: Folders, settings: PipelineSettings, key: RootKey) -> Plot:
        """Raises ``BadInput`` where the copied root is not there or the Teacher cannot work with it."""
        root = read_root(folders.root(key))
        out = folders.asset("explored_trees", str(key))
        request = TeacherRequest(
            root_dir=root.path,
            root_score=root.node.score,
            direction=root.direction,
            task_dir=root.task,
            workdir=out / WORK_FOLDER / "teacher",
            seed=settings.teacher.seed,
            script=settings.teacher.script,
            simulation=settings.simulation,
            embedded=settings.embedded,
            opencode=settings.opencode,
            api_key=os.environ.get(settings.opencode.api_key_variable, ""),
        )
        return cls(root, root_version(root), open_teacher(settings.teacher.name, request), out, settings)

    @property
    def identity(self) -> dict[str, Any]:
        """Everything that decides which tree will grow, as JSON values."""
        return header(self.root.node, self.root.direction, self.settings.search, self.teacher).model_dump(mode="json")

    def grow(
        self, stop: threading.Event, observer: Observer, superseded: Path, notice: Callable[[str], None]
    ) -> TreeSummary:
        """Grow the tree, or go on with it, to its end.

        What already grows here from another root, or with other settings or another Teacher, goes into a
        new folder under ``superseded`` first, and ``notice`` is told. Raises as ``explore_root`` does.
        """
        known = self.out / WORK_FOLDER / ROOT_VERSION_FILE
        if known.exists() and known.read_text() != self.root_version:
            self._make_room(superseded, notice, "the root's files have changed")
        try:
            return self._explore(stop, observer)
        except OtherTree as other:
            self._make_room(superseded, notice, other.problem)
            return self._explore(stop, observer)

    def _explore(self, stop: threading.Event, observer: Observer) -> TreeSummary:
        known = self.out / WORK_FOLDER / ROOT_VERSION_FILE
        known.parent.mkdir(parents=True, exist_ok=True)
        known.write_text(self.root_version)
        root, settings = self.root, self.settings
        return explore_root(
            root.node, root.direction, self.teacher, self.out, settings.search, settings.retry, stop, observer
        )

    def _make_room(self, superseded: Path, notice: Callable[[str], None], why: str) -> None:
        superseded.mkdir(parents=True, exist_ok=True)
        place = next(path for n in itertools.count(1) if not (path := superseded / str(n)).exists())
        self.out.rename(place)
        notice(f"{self.root.node.key}: explored anew, since {why}; the earlier tree is in {place}")
