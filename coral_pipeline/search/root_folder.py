"""Reading a copied root folder: what the search must know of it before it starts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coral_pipeline.errors import BadInput
from coral_pipeline.scores import numeric
from coral_pipeline.search.tree import RootNode
from coral_pipeline.settings import STAGES, Direction
from coral_pipeline.student_run.attempts import find_attempt
from coral_pipeline.student_run.copying import TASK_FOLDER
from coral_pipeline.student_run.guarded import Folder, Unreadable
from coral_pipeline.student_run.layout import METADATA_FILE, SNAPSHOTS_FOLDER, TASK_FILE, student_run_name
from coral_pipeline.student_run.reading import read_direction, read_metadata
from coral_pipeline.tables import SELECTED_ROOTS

_MEND = "give a folder that `coral-pipeline select` copied to selected_roots/"
_ADDED_BY_SELECTION = ("stage", "selection_reason")
"""Keys of metadata.json that say why a root was chosen, not what it is."""
_LEVELS_ABOVE = 3
"""How far above the root folder its task is looked for."""


@dataclass(frozen=True)
class RootFolder:
    """A root on disk."""

    path: Path
    node: RootNode
    direction: Direction
    task: Path | None
    """Folder with the task's ``task.yaml`` and, where there is one, ``grader/``; None: not found."""
    notices: tuple[str, ...]
    """What the user should know, one line each."""


def read_root(root_dir: Path, direction: Direction | None = None) -> RootFolder:
    """The root in ``root_dir``.

    Its score is the one that the selection wrote into metadata.json, else the attempt record's. The
    direction, unless given, is that of the nearest task.yaml: in a folder ``task`` beside the root or its
    folder, or in the Student run the root lies in. Raises ``BadInput`` where the folder is no root, or has
    no numeric score.
    """
    path = root_dir.resolve()
    metadata, attempt_score = _read(path)
    task = _find_task(path)
    notices: tuple[str, ...] = ()
    if direction is None and task is None:
        notices = (
            f"no {TASK_FILE} near {root_dir}, so higher scores are taken to be better; --direction says otherwise",
        )
    own_score = numeric(metadata.get("score"))
    score = attempt_score if own_score is None else own_score
    if score is None:
        raise BadInput(root_dir, "has no numeric score, neither in metadata.json nor in its attempt record", _MEND)
    commit_hash = metadata.get("commit_hash")
    node = RootNode(
        key=path.name.encode("utf-8", "backslashreplace").decode(),
        student_run=_student_run(path),
        score=score,
        fingerprint=_fingerprint(metadata),
        commit_hash=commit_hash if isinstance(commit_hash, str) else None,
        stage=next((stage for stage in STAGES if metadata.get("stage") == stage), None),
    )
    return RootFolder(
        path=path,
        node=node,
        direction=direction or (read_direction(task) if task else "maximize"),
        task=task,
        notices=notices,
    )


def _read(path: Path) -> tuple[dict[str, Any], float | None]:
    """The metadata, and the score of the attempt record."""
    try:
        with Folder.of_run(path) as root:
            metadata = read_metadata(root)
            commit_hash = metadata.get("commit_hash")
            return metadata, find_attempt(root, commit_hash).score if isinstance(commit_hash, str) else None
    except Unreadable as unreadable:
        thing = path / METADATA_FILE if path.is_dir() else path
        raise BadInput(thing, str(unreadable), _MEND) from unreadable


def _find_task(path: Path) -> Path | None:
    for above in path.parents[:_LEVELS_ABOVE]:
        for folder in (above / TASK_FOLDER, above):
            if (folder / TASK_FILE).is_file():
                return folder
    return None


def _student_run(path: Path) -> str | None:
    """Name of the Student run: by the table of selected roots beside the root, or the run it still lies in."""
    if (path.parent / SELECTED_ROOTS.file_name).is_file():
        for row in SELECTED_ROOTS.rows(path.parent):
            if row["root"] == path.name:
                return str(row["student_run"])
    return student_run_name(path.parent.parent) if path.parent.name == SNAPSHOTS_FOLDER else None


def _fingerprint(metadata: Mapping[str, Any]) -> str:
    """Hash of the metadata, the commit among it; a new selection that keeps the root does not change it."""
    lasting = {key: value for key, value in metadata.items() if key not in _ADDED_BY_SELECTION}
    return hashlib.sha256(json.dumps(lasting, sort_keys=True).encode()).hexdigest()
