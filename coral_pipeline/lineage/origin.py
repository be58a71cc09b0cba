"""Steps before the tree: the copied root, its snapshot, and the CORAL run that the Student run came from."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from coral_pipeline import provenance, tables
from coral_pipeline.audit.sources import Source
from coral_pipeline.content import digest_of
from coral_pipeline.errors import BadInput
from coral_pipeline.lineage.steps import Records, Step
from coral_pipeline.storage import SEPARATOR
from coral_pipeline.student_run.attempts import find_attempt
from coral_pipeline.student_run.guarded import Folder, Unreadable
from coral_pipeline.student_run.layout import METADATA_FILE, SNAPSHOTS_FOLDER, TASK_FILE
from coral_pipeline.student_run.reading import read_direction


def origin(key: str, source: Source, records: Records) -> Iterator[Step]:
    """The steps from the root of partition ``key`` back to the CORAL run."""
    run, _, root = key.partition(SEPARATOR)
    snapshot = _row(tables.FILTERED_SNAPSHOTS, source.fetch("filtered_snapshots", run), "snapshot", root)
    yield _copied_root(key, source, records)
    yield _stage(run, root, source, records)
    yield _snapshot(run, snapshot, source, records)
    yield _coral_run(run, snapshot, source)


def _copied_root(key: str, source: Source, records: Records) -> Step:
    run, _, root = key.partition(SEPARATOR)
    record = records.of("selected_roots", run)
    row = _row(tables.SELECTED_ROOTS, source.fetch("selected_roots", run), "root", root)
    facts = {name: row[name] for name in ("stage", "selection_reason", "score", "commit_hash")}
    version = record.made.folders.get(root) if record.made else None
    lines = (f"score {row['score']:.10g}: that of the snapshot's attempt",)
    return Step(f"copied root {root}", facts, lines, version, (record,), records.problems_of_root(key))


def _stage(run: str, root: str, source: Source, records: Records) -> Step:
    row = _row(tables.STAGE_LABELS, source.fetch("stage_labels", run), "snapshot", root)
    names = ("stage", "staged_by", "gain", "smooth_score", "score_for_stage", "eligible")
    facts = {name: row[name] for name in names}
    return Step(f"stage of {root}", facts, (), digest_of(row), (records.of("stage_labels", run),))


def _snapshot(run: str, row: dict[str, Any], source: Source, records: Records) -> Step:
    folder = source.student_run(run) / SNAPSHOTS_FOLDER / row["snapshot"]
    names = ("agent_id", "global_index", "commit_hash", "eval_ok", "eval_count", "score", "status")
    hashes = ("metadata_sha256", "attempt_sha256")
    facts = {"folder": f"{run}/{SNAPSHOTS_FOLDER}/{row['snapshot']}"} | {name: row[name] for name in (*names, *hashes)}
    record = records.of("filtered_snapshots", run)
    return Step(f"snapshot {row['snapshot']}", facts, (), digest_of(row), (record,), tuple(_changes(folder, row)))


def _changes(folder: Path, row: dict[str, Any]) -> Iterator[str]:
    """What the snapshot's metadata and attempt record are no longer."""
    try:
        with Folder.of_run(folder) as snapshot:
            metadata = hashlib.sha256(snapshot.read(METADATA_FILE)).hexdigest()
            attempt = find_attempt(snapshot, row["commit_hash"]).sha256
    except Unreadable as unreadable:
        yield f"{folder}: {unreadable}"
        return
    if metadata != row["metadata_sha256"]:
        recorded = row["metadata_sha256"]
        yield f"{folder / METADATA_FILE}: has changed (SHA-256 {metadata[:12]}…; recorded: {recorded[:12]}…)"
    if attempt != row["attempt_sha256"]:
        yield f"{folder}: its attempt record has changed or is another"


def _coral_run(run: str, snapshot: dict[str, Any], source: Source) -> Step:
    folder = source.student_run(run)
    task = folder / TASK_FILE
    try:
        facts: dict[str, Any] = {
            "direction": read_direction(folder),
            "task.yaml": provenance.checksum(task).sha256,
        }
        problems: tuple[str, ...] = ()
    except (BadInput, OSError) as error:
        facts, problems = {}, (f"{task}: {error}",)
    report = folder / tables.IMPORT_REPORT.file_name
    lines: tuple[str, ...] = ("the agents' own snapshots: this Student run was not imported",)
    if report.is_file():
        rows = [row for row in tables.IMPORT_REPORT.rows(folder) if row["snapshot"] == snapshot["snapshot"]]
        lines = tuple(
            f"import-run: attempt {row['attempt']}: {row['outcome']}" + (f" ({row['detail']})" if row["detail"] else "")
            for row in rows
        )
    return Step(f"CORAL run {run}", facts, lines, problems=problems)


def _row(table: tables.Table, folder: Path, column: str, value: str) -> dict[str, Any]:
    for row in table.rows(folder):
        if row[column] == value:
            return row
    raise BadInput(folder / table.file_name, f"has no {column} {value}", "the root is no longer selected")
