"""Small Student runs on disk, from a list of scores.

    write_student_run(folder, [1.0, None, 2.0])

has three snapshots of two agents in turn; the second one's eval failed (``eval_ok`` false, score null).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coral_pipeline import tables
from coral_pipeline.settings import Direction


@dataclass(frozen=True)
class S:
    """One snapshot whose metadata or attempt differs from what a score alone says."""

    score: object = None
    eval_ok: object = True


def commit(index: int) -> str:
    """The commit of the snapshot with this global index: 40 hex digits."""
    return hashlib.sha1(str(index).encode(), usedforsecurity=False).hexdigest()


def agent(index: int) -> str:
    """The agent of the snapshot with this global index."""
    return f"agent-{1 + index % 2}"


def snapshot_name(index: int) -> str:
    """The folder's name of the snapshot with this global index."""
    return f"eval-{index:06d}-{agent(index)}-{commit(index)[:12]}"


def write_snapshot(
    folder: Path, metadata: object = None, attempts: Sequence[dict[str, Any]] = (), notes: str = "none yet\n"
) -> Path:
    """A snapshot folder: code/, shared/ with the attempts, each named after its commit, and metadata.json."""
    for name in ("code", "shared/attempts", "shared/notes"):
        (folder / name).mkdir(parents=True)
    (folder / "code" / "solve.py").write_text("print(1)\n")
    (folder / "shared" / "notes" / "ideas.md").write_text(notes)
    for attempt in attempts:
        (folder / "shared" / "attempts" / f"{attempt['commit_hash']}.json").write_text(json.dumps(attempt, indent=2))
    if metadata is not None:
        (folder / "metadata.json").write_text(json.dumps(metadata, indent=2))
    return folder


def write_student_run(
    folder: Path, scores: Sequence[float | S | None], direction: Direction = "maximize", first_index: int = 1
) -> Path:
    """A Student run with one snapshot per score, in time order; each holds the attempts made so far."""
    (folder / "all_snapshots").mkdir(parents=True)
    (folder / "task.yaml").write_text(f"task:\n  name: A small task\ngrader:\n  direction: {direction}\n")
    attempts: list[dict[str, Any]] = []
    for index, score in enumerate(scores, first_index):
        snapshot = score if isinstance(score, S) else S(score, eval_ok=score is not None)
        attempts.append(
            {
                "commit_hash": commit(index),
                "agent_id": agent(index),
                "title": f"try {index}",
                "score": snapshot.score,
                "status": "crashed" if snapshot.score is None else "improved",
                "feedback": f"feedback {index}",
            }
        )
        metadata = {
            "commit_hash": commit(index),
            "agent_id": agent(index),
            "eval_count": index,
            "eval_ok": snapshot.eval_ok,
        }
        write_snapshot(folder / "all_snapshots" / snapshot_name(index), metadata, attempts)
    return folder


def filtered_table(scores: Sequence[float | S | None]) -> Any:
    """``tables.FILTERED_SNAPSHOTS`` of such a run, without writing one."""
    snapshots = [score if isinstance(score, S) else S(score, eval_ok=score is not None) for score in scores]
    return tables.FILTERED_SNAPSHOTS.build(
        {
            "snapshot": snapshot_name(index),
            "global_index": index,
            "agent_id": agent(index),
            "commit_hash": commit(index),
            "eval_ok": snapshot.eval_ok is True,
            "eval_count": index,
            "score": snapshot.score,
            "status": None,
            "feedback": None,
            "eligible": snapshot.eval_ok is True and snapshot.score is not None,
            "metadata_sha256": hashlib.sha256(str(index).encode()).hexdigest(),
            "attempt_sha256": None,
        }
        for index, snapshot in enumerate(snapshots, 1)
    )
