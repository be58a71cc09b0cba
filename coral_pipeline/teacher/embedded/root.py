"""What the embedded teacher needs to know of a root's snapshot."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from coral_pipeline.errors import BadInput
from coral_pipeline.scores import numeric
from coral_pipeline.teacher.embedded.states import PARTS
from coral_pipeline.teacher.json_files import json_object

NO_MOMENT = datetime(2000, 1, 1, tzinfo=UTC)
"""Stands for the time of a root whose attempt has no readable timestamp."""


@dataclass(frozen=True)
class Root:
    """A root's snapshot, as far as its metadata and its attempt tell."""

    commit_hash: str
    score: float | None
    """Raw score of its attempt; None: no numeric score."""
    moment: int
    """Unix time of its attempt."""

    @classmethod
    def read(cls, folder: Path) -> Root:
        """The root in ``folder``; ``BadInput`` where it is none."""
        metadata = json_object(folder / "metadata.json")
        missing = [name for name in PARTS if not (folder / name).is_dir()]
        if metadata is None or missing:
            what = f"holds no {missing[0]}/" if missing else "holds no metadata.json with an object"
            raise BadInput(folder, what, "name the folder of a copied root")
        commit_hash = str(metadata.get("commit_hash") or folder.name)
        attempt = json_object(folder / "shared" / "attempts" / f"{commit_hash}.json") or {}
        score = numeric(metadata.get("score"))
        if score is None:
            score = numeric(attempt.get("score"))
        return cls(commit_hash, score, _moment(attempt.get("timestamp")))


def _moment(timestamp: object) -> int:
    try:
        time = datetime.fromisoformat(str(timestamp))
    except ValueError:
        time = NO_MOMENT
    return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp())
