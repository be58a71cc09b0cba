"""Reading a Student run: every entry under all_snapshots is kept or rejected with a reason (method S1–S6)."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from coral_pipeline import tables
from coral_pipeline.errors import BadInput
from coral_pipeline.settings import Direction
from coral_pipeline.student_run.attempts import find_attempt
from coral_pipeline.student_run.guarded import Folder, Unreadable, parse_json
from coral_pipeline.student_run.layout import (
    METADATA_FILE,
    SNAPSHOTS_FOLDER,
    TASK_FILE,
    parse_snapshot_name,
    unicode_text,
)
from coral_pipeline.yaml_text import parse_yaml

TASK_LIMIT = 2**20
"""Bytes of the largest task.yaml that is read."""
_WHAT_IT_IS = (
    f"a Student run holds {TASK_FILE} and {SNAPSHOTS_FOLDER}/; `coral-pipeline import-run` makes one from a CORAL run"
)


@dataclass(frozen=True)
class StudentRunTables:
    """A Student run as read: kept + rejected = entries seen under all_snapshots."""

    direction: Direction
    filtered: pa.Table
    """``tables.FILTERED_SNAPSHOTS``, in run order (S6)."""
    rejected: pa.Table
    """``tables.REJECTED_SNAPSHOTS``, by name."""
    warnings: tuple[str, ...]
    """One line each: repeated global indices, attempt records that could not be used."""

    def rejected_by_reason(self) -> dict[str, int]:
        """Number of rejected entries per reason, most frequent first."""
        return dict(Counter(self.rejected.column("reason").to_pylist()).most_common())


class _Rejected(Exception):
    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = detail


def read_direction(student_run: Path) -> Direction:
    """Which scores are better: ``grader.direction`` of the run's task.yaml, ``maximize`` where it has none (S1).

    Raises ``BadInput`` where the run or its task.yaml cannot be used, or the direction is neither
    ``maximize`` nor ``minimize``.
    """
    path = student_run / TASK_FILE
    with _open_run(student_run) as run:
        try:
            task = parse_yaml(run.read(TASK_FILE, TASK_LIMIT))
        except Unreadable as unreadable:
            raise BadInput(path, str(unreadable), _WHAT_IT_IS) from unreadable
        except ValueError as error:
            raise BadInput(path, f"is not YAML ({error})", "give CORAL's own task configuration") from error
    if not isinstance(task, dict):
        raise BadInput(path, "is not a mapping", "give CORAL's own task configuration")
    grader = task.get("grader")
    if grader is None:
        return "maximize"
    if not isinstance(grader, dict):
        raise BadInput(path, "grader is not a mapping", "give CORAL's own task configuration")
    direction = grader.get("direction", "maximize")
    if direction not in ("maximize", "minimize"):
        raise BadInput(path, f"grader.direction is {direction!r}", "set it to maximize or minimize")
    return "maximize" if direction == "maximize" else "minimize"


def read_student_run(
    student_run: Path, progress: Callable[[Iterable[str]], Iterable[str]] | None = None
) -> StudentRunTables:
    """Read every snapshot of the run; ``progress`` may wrap the snapshots' names to show how far it is.

    What a snapshot holds never raises: it becomes a row of the rejected table. Raises ``BadInput`` where
    there is no usable task.yaml, no all_snapshots, or nothing in it, and ``OSError`` where the machine cannot
    read a file just now.
    """
    direction = read_direction(student_run)
    kept: list[dict[str, Any]] = []
    rejected: list[dict[str, Any]] = []
    warnings: list[str] = []
    with _open_run(student_run) as run, _open_snapshots(run, student_run) as snapshots:
        names = _names(snapshots, student_run)
        for name in progress(names) if progress else names:
            try:
                row, warning = _read_snapshot(snapshots, name)
            except _Rejected as no:
                rejected.append({"snapshot": unicode_text(name), "reason": no.reason, "detail": no.detail})
                continue
            kept.append(row)
            if warning:
                warnings.append(warning)
    kept.sort(key=lambda row: (row["global_index"], row["agent_id"], row["commit_hash"], row["snapshot"]))
    return StudentRunTables(
        direction=direction,
        filtered=tables.FILTERED_SNAPSHOTS.build(kept),
        rejected=tables.REJECTED_SNAPSHOTS.build(rejected),
        warnings=(*_repeated_indices(kept), *warnings),
    )


def read_metadata(snapshot: Folder) -> dict[str, Any]:
    """The snapshot's metadata.json. Raises ``Unreadable`` where it is missing, malformed or no object."""
    return _metadata(snapshot.read(METADATA_FILE))


def _metadata(data: bytes) -> dict[str, Any]:
    metadata = parse_json(data)
    if not isinstance(metadata, dict):
        raise Unreadable("is not a JSON object")
    return metadata


def _open_run(student_run: Path) -> Folder:
    try:
        return Folder.of_run(student_run)
    except Unreadable as unreadable:
        raise BadInput(student_run, str(unreadable), _WHAT_IT_IS) from unreadable


def _open_snapshots(run: Folder, student_run: Path) -> Folder:
    try:
        return run.folder(SNAPSHOTS_FOLDER)
    except Unreadable as unreadable:
        raise BadInput(student_run / SNAPSHOTS_FOLDER, str(unreadable), _WHAT_IT_IS) from unreadable


def _names(snapshots: Folder, student_run: Path) -> list[str]:
    try:
        names = snapshots.names()
    except Unreadable as unreadable:
        raise BadInput(student_run / SNAPSHOTS_FOLDER, str(unreadable), "make it readable") from unreadable
    if not names:
        raise BadInput(student_run / SNAPSHOTS_FOLDER, "holds no snapshots", _WHAT_IT_IS)
    return names


def _read_snapshot(snapshots: Folder, name: str) -> tuple[dict[str, Any], str | None]:
    """The snapshot's row of the filtered table, and a warning about it where there is one."""
    parsed = parse_snapshot_name(name)
    if parsed is None:
        raise _Rejected("name", "is not eval-<global index>-<agent id>-<12 hex>")
    try:
        snapshot = snapshots.folder(name)
    except Unreadable as unreadable:
        raise _Rejected("folder", f"the snapshot {unreadable}") from unreadable
    with snapshot:
        try:
            data = snapshot.read(METADATA_FILE)
            metadata = _metadata(data)
        except Unreadable as unreadable:
            raise _Rejected("metadata", f"{METADATA_FILE} {unreadable}") from unreadable
        if "eval_ok" not in metadata:
            raise _Rejected("pending", f"{METADATA_FILE} has no eval_ok: the grader had not answered yet")
        commit_hash = _string(metadata, "commit_hash") or parsed.commit_prefix
        attempt = find_attempt(snapshot, commit_hash)
    eval_ok = metadata["eval_ok"] is True
    row = {
        "snapshot": name,
        "global_index": parsed.global_index,
        "agent_id": unicode_text(_string(metadata, "agent_id") or parsed.agent_id),
        "commit_hash": unicode_text(commit_hash),
        "eval_ok": eval_ok,
        "eval_count": _int64(metadata.get("eval_count")),
        "score": attempt.score,
        "status": attempt.status and unicode_text(attempt.status),
        "feedback": attempt.feedback and unicode_text(attempt.feedback),
        "eligible": eval_ok and attempt.score is not None,
        "metadata_sha256": hashlib.sha256(data).hexdigest(),
        "attempt_sha256": attempt.sha256,
    }
    return row, f"{name}: {attempt.problem}" if attempt.problem else None


def _repeated_indices(kept: Iterable[Mapping[str, Any]]) -> list[str]:
    by_index: dict[int, list[str]] = defaultdict(list)
    for row in kept:
        by_index[row["global_index"]].append(row["snapshot"])
    return [
        f"global index {index} is repeated: {', '.join(names)}" for index, names in by_index.items() if len(names) > 1
    ]


def _string(metadata: Mapping[str, Any], key: str) -> str | None:
    value = metadata.get(key)
    return value if isinstance(value, str) else None


def _int64(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if -(2**63) <= value < 2**63 else None
