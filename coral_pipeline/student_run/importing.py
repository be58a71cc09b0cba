"""A Student run out of a stock CORAL run: one snapshot per attempt, rebuilt from CORAL's own git history.

The Student run is a function of the CORAL run: importing again adds what is new, completes what an interrupted
import left undone, and changes nothing else. Each snapshot is made in a scratch folder and appears under its
name whole or not at all.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from coral_pipeline import tables
from coral_pipeline.errors import BadInput
from coral_pipeline.student_run.checkout import Checkout, plan_checkout, printable, write_checkout
from coral_pipeline.student_run.coral_run import CoralRun, Record, is_machine_file, read_coral_run
from coral_pipeline.student_run.destination import IMPORTER, Destination, open_destination
from coral_pipeline.student_run.git_objects import GitObjects, UnusableObject, open_objects
from coral_pipeline.student_run.layout import (
    ATTEMPTS_FOLDER,
    CODE_FOLDER,
    GRADER_FOLDER,
    METADATA_FILE,
    PRIVATE_FOLDER,
    SHARED_FOLDER,
    TASK_FILE,
)
from coral_pipeline.student_run.task_config import private_names, student_task

MOST_LEFT_OUT_LINES = 20
"""Lines on what was left out of a snapshot that its metadata keeps."""


@dataclass(frozen=True)
class Place:
    """An attempt and its place in the run."""

    record: Record
    snapshot: str
    """Folder name of its snapshot."""
    eval_count: int
    """Evals of the run up to and including this one; also the snapshot's global index."""


@dataclass(frozen=True)
class ImportOutcome:
    """What an import found and did."""

    report: list[dict[str, Any]]
    """Rows of ``tables.IMPORT_REPORT``."""
    written: int
    """Snapshots written by this import; the others were there already."""
    notes: tuple[str, ...]
    """One line each: parts of the run's repositories that were not read."""

    @property
    def rejected(self) -> list[dict[str, Any]]:
        """The rows of the attempts that have no snapshot."""
        return [row for row in self.report if row["outcome"] == "rejected"]


def import_run(
    coral_run: Path,
    student_run: Path,
    track: Callable[[Sequence[Place]], Iterable[Place]] = iter,
) -> ImportOutcome:
    """Import the CORAL run into the folder ``student_run``, made if need be; ``track`` may watch the progress.

    Attempts that cannot be imported are rows of the report, which is also written into the Student run.
    Raises ``BadInput`` where the CORAL run cannot be read, ``student_run`` is something else, or attempts
    have come in whose times put them before snapshots that are there already.
    """
    run = read_coral_run(coral_run)
    try:
        task = student_task(run.config)
    except ValueError as error:
        raise BadInput(run.path / ".coral" / "config.yaml", f"cannot be used: {error}", "mend the file") from error
    places = [Place(r, r.snapshot(index), index) for index, r in enumerate(run.records, start=1)]
    if student_run.resolve().is_relative_to(run.path):
        raise BadInput(student_run, "lies inside the CORAL run, which is only read", "import into another folder")
    try:
        with (
            open_destination(student_run) as destination,
            open_objects(run.object_folders, destination.scratch / "git") as objects,
        ):
            destination.check_snapshots({place.snapshot: place.record.commit_hash for place in places})
            destination.put_text(TASK_FILE, task)
            _copy_grader(run, destination, task)
            importer = _Importer(objects, destination)
            report = [importer.row(place) for place in track(places)]
            report += [_row(name, None, None, "record", problem) for name, problem in run.unusable]
            destination.put_table(tables.IMPORT_REPORT, report)
    except OSError as error:
        raise BadInput(
            error.filename or student_run,
            f"cannot be used ({error.strerror})",
            "see to its permissions and the room on its disk, then import again: it goes on where it stopped",
        ) from error
    notes = tuple(
        f"{path}: is not read, since it may lead out of the run; `git repack -ad` there brings in what is missing"
        for path in objects.left_out
    )
    return ImportOutcome(report, importer.written, notes)


class _Importer:
    """Makes the snapshots, in run order: where a checkpoint is missing the last earlier one stands in."""

    def __init__(self, objects: GitObjects, destination: Destination) -> None:
        self._objects = objects
        self._destination = destination
        self._last_with_checkpoint: Record | None = None
        self.written = 0

    def row(self, place: Place) -> dict[str, Any]:
        """Make the snapshot, unless it is there; its row of the report."""
        metadata = self._metadata(place)
        there = self._destination.metadata(place.snapshot)
        if there is not None and self._is_same(place, metadata, there):
            return _imported(place, there)
        try:
            self._write(place, metadata)
        except UnusableObject as error:
            return _row(place.record.file_name, place.record.commit_hash, None, "objects", str(error))
        except FileExistsError as error:
            problem = f"{Path(error.filename).name}: this disk takes two names of the attempt for one"
            return _row(place.record.file_name, place.record.commit_hash, None, "names", problem)
        self.written += 1
        return _imported(place, metadata)

    def _metadata(self, place: Place) -> dict[str, Any]:
        """What the snapshot's ``metadata.json`` says, except for what had to be left out of the snapshot."""
        record = place.record
        if self._has_checkpoint(record):
            self._last_with_checkpoint = record
        source = self._last_with_checkpoint
        metadata: dict[str, Any] = {
            "commit_hash": record.commit_hash,
            "eval_count": place.eval_count,
            "agent_id": record.agent_id,
            "eval_ok": record.eval_ok,
            "timestamp": record.timestamp,
            "title": record.title,
            "parent_hash": record.parent_hash,
            "shared_state_hash": source.shared_state_hash if source else None,
            "shared_state_from": source.commit_hash if source else None,
            "importer": IMPORTER,
        }
        if record.eval_ok is None:
            del metadata["eval_ok"]  # its absence says pending (method S2)
        if source is record:
            del metadata["shared_state_from"]
        return metadata

    def _has_checkpoint(self, record: Record) -> bool:
        if record.shared_state_hash is None:
            return False
        try:
            self._objects.tree_of(record.shared_state_hash)
        except UnusableObject:
            return False
        return True

    def _is_same(self, place: Place, metadata: dict[str, Any], there: dict[str, Any]) -> bool:
        """What is there was made of the same record and the same commits, by this format of the importer."""
        without_notes = {name: value for name, value in there.items() if name != "left_out"}
        own = PurePosixPath(SHARED_FOLDER, ATTEMPTS_FOLDER, place.record.file_name)
        return without_notes == metadata and self._destination.holds(place.snapshot, own, place.record.content)

    def _write(self, place: Place, metadata: dict[str, Any]) -> None:
        """Write the snapshot; adds ``left_out`` to its metadata where something had to be."""
        record = place.record
        code = plan_checkout(self._objects, self._objects.tree_of(record.commit_hash))
        checkpoint = metadata["shared_state_hash"]
        shared = Checkout()
        if checkpoint is not None:
            shared = plan_checkout(self._objects, self._objects.tree_of(checkpoint), _left_behind(record))
        left_out = [f"{CODE_FOLDER}/{line}" for line in code.left_out]
        left_out += [f"{SHARED_FOLDER}/{line}" for line in shared.left_out]
        if len(left_out) > MOST_LEFT_OUT_LINES:
            left_out[MOST_LEFT_OUT_LINES:] = [f"and {len(left_out) - MOST_LEFT_OUT_LINES} more"]
        if left_out:
            metadata["left_out"] = left_out
        with self._destination.new_snapshot(place.snapshot) as folder:
            write_checkout(self._objects, code, folder / CODE_FOLDER)
            write_checkout(self._objects, shared, folder / SHARED_FOLDER)
            attempts = folder / SHARED_FOLDER / ATTEMPTS_FOLDER
            attempts.mkdir(exist_ok=True)
            (attempts / record.file_name).write_bytes(record.content)
            (folder / METADATA_FILE).write_text(json.dumps(metadata, indent=2) + "\n")


def _left_behind(record: Record) -> Callable[[PurePosixPath, bool], bool]:
    """What of a checkpoint does not go into the snapshot: machine files, and what is in the place of its record."""
    own = PurePosixPath(ATTEMPTS_FOLDER, record.file_name)

    def skip(path: PurePosixPath, is_folder: bool) -> bool:
        no_folder_of_attempts = path == own.parent and not is_folder
        return path == own or no_folder_of_attempts or is_machine_file(path, is_folder)

    return skip


def _copy_grader(run: CoralRun, destination: Destination, task: str) -> None:
    """Copy what CORAL keeps from the agents: the grader, where it is no package, and ``grader.private``."""
    grader = run.private / "eval"
    if grader.is_dir() and grader.resolve() == grader:
        destination.put_folder(GRADER_FOLDER, grader)
    private = [run.private / name for name in private_names(task)]
    if there := [path for path in private if path.exists() and path.resolve() == path]:
        destination.put_together(PRIVATE_FOLDER, there)


def _imported(place: Place, metadata: dict[str, Any]) -> dict[str, Any]:
    notes = list(_notes(place.record, metadata))
    detail = "; ".join(line for _, line in notes) or None
    return _row(
        place.record.file_name, place.record.commit_hash, place.snapshot, notes[0][0] if notes else None, detail
    )


def _notes(record: Record, metadata: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Reason and line for everything in which the snapshot is not what the agent left."""
    if "shared_state_from" in metadata:
        missing = f"checkpoint {record.shared_state_hash} is missing" if record.shared_state_hash else "no checkpoint"
        source = metadata["shared_state_from"]
        yield "checkpoint", f"{missing}: shared state of {source}" if source else f"{missing}, nor an earlier one"
    for line in metadata.get("left_out", ()):
        yield "left_out", line


def _row(
    attempt: str, commit_hash: str | None, snapshot: str | None, reason: str | None, detail: str | None
) -> dict[str, Any]:
    """A row of ``tables.IMPORT_REPORT``; without a snapshot the attempt was rejected."""
    return {
        "attempt": printable(attempt),
        "snapshot": snapshot,
        "commit_hash": commit_hash,
        "outcome": "imported" if snapshot else "rejected",
        "reason": reason,
        "detail": detail and printable(detail),
    }
