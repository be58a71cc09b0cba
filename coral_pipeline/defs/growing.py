"""Growing one root's tree in its place under the output folder; a tree of other making is moved aside, never lost."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from coral_pipeline.defs.folders import TREES, Folders
from coral_pipeline.defs.partitions import RootKey
from coral_pipeline.errors import BadInput
from coral_pipeline.search.explore import WORK_FOLDER, TreeSummary, explore_root
from coral_pipeline.search.explorer import Observer
from coral_pipeline.search.journal import JOURNAL_FILE, OtherTree
from coral_pipeline.search.root_folder import RootFolder, read_root
from coral_pipeline.search.width import with_width
from coral_pipeline.settings import PipelineSettings
from coral_pipeline.storage import Storage
from coral_pipeline.tables import SELECTED_ROOTS, text_file
from coral_pipeline.teacher.protocol import Teacher
from coral_pipeline.teacher.registry import TeacherRequest, api_key_of, fitting_width, open_teacher
from coral_pipeline.tree_file import TREE_FILE

VERSIONS_FILE = "versions.json"
"""Beside the journal: the ``Versions`` with which the tree was begun, or its tables were written anew."""


@dataclass(frozen=True)
class Versions:
    """What a tree is made from."""

    root: str
    """Of all that the copied root and its task hold; the journal knows the root's metadata only."""
    settings: str
    """Of search and Teacher."""


@dataclass(frozen=True)
class Plot:
    """A root, who explores it, and where its tree grows."""

    key: RootKey
    root: RootFolder
    teacher: Teacher
    settings: PipelineSettings
    out: Path
    storage: Storage

    @classmethod
    def of(cls, folders: Folders, settings: PipelineSettings, key: RootKey, version: str) -> Plot:
        """``version``: of the copied root and its task, as they are now.

        Raises ``BadInput`` where they are not there or were changed, or the Teacher cannot work with them.
        """
        root = read_root(folders.root(key))
        chosen = folders.storage.provenance(SELECTED_ROOTS.name, key.student_run)
        copied = chosen.folders.get(key.root) if chosen else None  # none where it is no longer chosen
        if copied and copied != version:
            raise BadInput(root.path, "is not as it was copied", "choose the roots anew")
        out = folders.asset(TREES, str(key))
        workdir, api_key = out / WORK_FOLDER / "teacher", api_key_of(settings.opencode)
        request = TeacherRequest(root.path, root.node.score, root.direction, root.task, workdir, settings, api_key)
        teacher = open_teacher(settings.teacher.name, request)
        return cls(key, root, teacher, settings, out, folders.storage)

    def grow(
        self, versions: Versions, stop: threading.Event, observer: Observer, notice: Callable[[str], None]
    ) -> TreeSummary:
        """Grow the tree, or go on with it, to its end. ``versions``: what it is made from now.

        Where root or settings have changed since the tree was begun, what grew so far is moved aside and
        ``notice`` is told; where only the code has, the tables are written anew from the journal. Raises as
        ``explore_root`` does: a tree that cannot go on for another reason, such as another version of the
        Teacher's programs, is refused and stays.
        """
        begun = self._begun_with()
        if not self.has_begun and self.storage.provenance(TREES, str(self.key)):
            self._make_room(notice, "it was made from something else, or its files have changed")
        if begun and begun.root != versions.root:
            self._make_room(notice, "the files of the root or of its task have changed")
        try:
            summary = self._explore(versions, stop, observer)
        except OtherTree as other:
            if begun is None or begun == versions:
                raise
            self._make_room(notice, other.problem)
            return self._explore(versions, stop, observer)
        if summary.was_finished and begun != versions:  # by earlier code: its tables are not those of now
            (self.out / TREE_FILE).unlink()
            summary = self._explore(versions, stop, observer)
            self._note(versions)
        return summary

    @property
    def has_begun(self) -> bool:
        """Whether the tree grows here: its journal is on this machine."""
        return (self.out / WORK_FOLDER / JOURNAL_FILE).exists()

    def _begun_with(self) -> Versions | None:
        """The versions with which what grows here was begun; None where nothing does, or it was begun elsewhere."""
        file = self.out / WORK_FOLDER / VERSIONS_FILE
        return Versions(**json.loads(file.read_text())) if file.exists() else None

    def _explore(self, versions: Versions, stop: threading.Event, observer: Observer) -> TreeSummary:
        if not self.has_begun:
            self._note(versions)
        root, settings = self.root, self.settings
        search = with_width(settings.search, self.out, self._fitting_width)
        return explore_root(root.node, root.direction, self.teacher, self.out, search, settings.retry, stop, observer)

    def _fitting_width(self) -> int:
        return fitting_width(self.settings, self.settings.trees_at_once)

    def _note(self, versions: Versions) -> None:
        file = self.out / WORK_FOLDER / VERSIONS_FILE
        file.parent.mkdir(parents=True, exist_ok=True)
        with text_file(file) as writing:
            json.dump(asdict(versions), writing)

    def _make_room(self, notice: Callable[[str], None], why: str) -> None:
        place = self.storage.supersede(TREES, str(self.key))
        notice(f"{self.root.node.key}: explored anew, since {why}; the earlier tree is in {place}")
