"""What all forks of one tree of the real Teacher have in common, and the state they begin with."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from coral_pipeline.disk_use import disk_bytes
from coral_pipeline.errors import BadInput
from coral_pipeline.scores import numeric
from coral_pipeline.settings import Direction, OpenCodeSettings, orient
from coral_pipeline.student_run.layout import ATTEMPTS_FOLDER, METADATA_FILE, SHARED_FOLDER
from coral_pipeline.teacher.file_trees import flush
from coral_pipeline.teacher.grading.task import Task
from coral_pipeline.teacher.json_files import json_object
from coral_pipeline.teacher.opencode.prompts import Prompts
from coral_pipeline.teacher.opencode.root import lay_out
from coral_pipeline.teacher.opencode.setup import AgentSetup
from coral_pipeline.teacher.opencode.states import FILES, ROOT, STATE_FILE, State, StateStore
from coral_pipeline.teacher.protocol import TeacherError
from coral_pipeline.teacher.space import require_free_space
from coral_pipeline.tree_copy import remove_tree

_AGENT_ID = re.compile(r"\w[\w.-]*")
_ANY_AGENT = "agent-1"


@dataclass(frozen=True)
class Root:
    """What the Teacher needs to know of a root's snapshot."""

    folder: Path
    commit_hash: str
    agent_id: str
    best_score: float | None
    """Best raw score of that agent's attempts."""

    @classmethod
    def read(cls, folder: Path, direction: Direction) -> Root:
        """The root in ``folder``; ``BadInput`` where its ``metadata.json`` cannot be used."""
        metadata = json_object(folder / METADATA_FILE)
        if metadata is None or not isinstance(metadata.get("commit_hash"), str):
            mend = "name a root folder that `coral-pipeline select` copied"
            raise BadInput(folder / METADATA_FILE, "is no object with a commit_hash", mend)
        agent_id = str(metadata.get("agent_id", ""))
        if not _AGENT_ID.fullmatch(agent_id):
            agent_id = _ANY_AGENT
        attempts = [json_object(path) or {} for path in (folder / SHARED_FOLDER / ATTEMPTS_FOLDER).glob("*.json")]
        own = [numeric(attempt.get("score")) for attempt in attempts if attempt.get("agent_id") == agent_id]
        scores = [score for score in [numeric(metadata.get("score")), *own] if score is not None]
        best = max(scores, key=lambda score: orient(score, direction), default=None)
        return cls(folder, metadata["commit_hash"], agent_id, best)


@dataclass(frozen=True)
class Grounds:
    """What all forks of one tree have in common."""

    root: Root
    task: Task
    prompts: Prompts
    workdir: Path
    store: StateStore
    setup: AgentSetup
    key: str

    @property
    def settings(self) -> OpenCodeSettings:
        """The Teacher's settings."""
        return self.setup.settings

    @property
    def tree(self) -> str:
        """Short key of the tree, the same in every process that explores it."""
        return hashlib.sha256(f"{self.workdir}\0{self.root.folder.name}".encode()).hexdigest()[:16]

    @property
    def marker(self) -> str:
        """What the markers of all the tree's processes begin with."""
        return f"opencode-{self.tree}-"


def prepare_root(grounds: Grounds) -> None:
    """Make the root's state, unless it is there from an earlier run; again where it has been reduced.

    Raises ``InfrastructureFault`` where there is no room for it, ``BadInput`` where the root cannot be used.
    """
    store, root = grounds.store, grounds.root
    known = store.find(ROOT)
    if known is not None:
        if root.commit_hash not in (known.root_commit, known.commit_hash):
            raise TeacherError(f"{grounds.workdir}: holds the states of another root; choose another output folder")
        if not known.reduced:
            return
    store.folder.mkdir(parents=True, exist_ok=True)
    require_free_space(store.folder, grounds.settings.min_free_bytes)
    place = store.place(f".{ROOT}")
    remove_tree(place)
    lay_out(root.folder, grounds.task.config.model_dump(), root.agent_id, place / FILES)
    state = State(
        name=ROOT,
        layers=(ROOT,),
        agent_id=root.agent_id,
        date=datetime.now(UTC).strftime("%a %b %d %Y"),
        best_score=root.best_score,
        root_commit=root.commit_hash,
        bytes=disk_bytes(place / FILES),
    )
    (place / STATE_FILE).write_text(state.model_dump_json(indent=1))
    flush(place)
    remove_tree(store.place(ROOT))
    place.rename(store.place(ROOT))


def existing_folder(path: Path) -> Path:
    """The nearest folder at or above ``path`` that is there: on the same disk as what will be made there."""
    return next(folder for folder in (path.absolute(), *path.absolute().parents) if folder.is_dir())
