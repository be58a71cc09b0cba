"""The folder an import writes: claimed, locked, and changed only by putting finished things in their place."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from coral_pipeline.errors import BadInput
from coral_pipeline.student_run.guarded import Folder, Unreadable
from coral_pipeline.student_run.layout import METADATA_FILE, SNAPSHOTS_FOLDER, parse_snapshot_name
from coral_pipeline.tables import Table
from coral_pipeline.tree_copy import copy_file, copy_tree

IMPORTER = "coral-pipeline import-run, format 1"
"""What made a snapshot; the number grows when the same CORAL run would give other bytes."""
MARK_FILE = "import.json"
"""Marks a Student run that an import made and may add to."""
_SCRATCH = ".partial"
_A_NEW_FOLDER = "import into a new folder"


class Destination:
    """A Student run being written; use ``open_destination``."""

    def __init__(self, path: Path) -> None:
        """``path`` holds the scratch folder; nobody else writes to it."""
        self._path = path
        self.scratch = path / _SCRATCH
        """For what is needed until the import ends; an import that is killed leaves it to the next to remove."""
        self._replaced = 0

    def check_snapshots(self, expected: Mapping[str, str]) -> None:
        """Make sure that every snapshot there is one of ``expected`` (commits by snapshot name).

        Raises ``BadInput`` where not: the folder holds another run, or the numbers of the run have shifted.
        """
        now = {commit: name for name, commit in expected.items()}
        for path in sorted((self._path / SNAPSHOTS_FOLDER).iterdir()):
            if path.name in expected:
                continue
            parts = parse_snapshot_name(path.name)
            prefix = parts.commit_prefix if parts else None
            renamed = [name for commit, name in now.items() if prefix and commit.startswith(prefix)]
            if renamed:
                problem = f"would now be {renamed[0]}: the order of the attempts before it has changed since"
                raise BadInput(path, problem, f"{_A_NEW_FOLDER}, where all are numbered in their present order")
            raise BadInput(path, "is no snapshot of this CORAL run", _A_NEW_FOLDER)

    def metadata(self, snapshot: str) -> dict[str, Any] | None:
        """The metadata of a snapshot that is there; None where there is none, or none that can be read."""
        try:
            with (
                Folder.of_run(self._path) as run,
                run.folder(SNAPSHOTS_FOLDER) as snapshots,
                snapshots.folder(snapshot) as folder,
            ):
                value = folder.json(METADATA_FILE)
        except Unreadable:
            return None
        return value if isinstance(value, dict) else None

    def holds(self, snapshot: str, file: PurePosixPath, content: bytes) -> bool:
        """Whether the file is in the snapshot with just these bytes."""
        try:
            return (self._path / SNAPSHOTS_FOLDER / snapshot / file).read_bytes() == content
        except OSError:
            return False

    @contextmanager
    def new_snapshot(self, name: str) -> Iterator[Path]:
        """An empty folder to fill; it becomes (or replaces) the snapshot when the block ends well."""
        folder = self.scratch / "snapshot"
        if folder.exists():
            shutil.rmtree(folder)  # of an attempt that could not be imported
        folder.mkdir()
        yield folder
        self._put(folder, self._path / SNAPSHOTS_FOLDER / name)

    def put_text(self, name: str, text: str) -> None:
        """Write a text file of the Student run."""
        (self.scratch / name).write_text(text, encoding="utf-8")
        (self.scratch / name).replace(self._path / name)

    def put_table(self, table: Table, rows: Iterable[Mapping[str, Any]]) -> None:
        """Write a table of the Student run."""
        table.write(rows, self.scratch).replace(self._path / table.file_name)

    def put_folder(self, name: str, source: Path) -> None:
        """Copy the folder ``source`` to ``name``; Python's caches stay behind."""
        copy = self.scratch / name
        copy_tree(source, copy)
        for cache in list(copy.rglob("__pycache__")):
            shutil.rmtree(cache)
        self._put(copy, self._path / name)

    def put_together(self, name: str, sources: Iterable[Path]) -> None:
        """Copy files and folders into a folder ``name``."""
        copy = self.scratch / name
        copy.mkdir()
        for source in sources:
            (copy_tree if source.is_dir() else copy_file)(source, copy / source.name)
        self._put(copy, self._path / name)

    def _put(self, finished: Path, target: Path) -> None:
        if os.path.lexists(target):
            self._replaced += 1
            target.rename(self.scratch / f"replaced-{self._replaced}")
        finished.rename(target)


@contextmanager
def open_destination(student_run: Path) -> Iterator[Destination]:
    """The folder ``student_run``, made if need be, for one import at a time.

    Raises ``BadInput`` where it is no folder, holds what no import made, or is being written by another import.
    """
    if student_run.exists() and not student_run.is_dir():
        raise BadInput(student_run, "is not a folder", _A_NEW_FOLDER)
    student_run.mkdir(parents=True, exist_ok=True)
    scratch = student_run / _SCRATCH
    with _locked(student_run):
        _check_claim(student_run)
        if scratch.exists():
            shutil.rmtree(scratch)  # of an import that was interrupted
        scratch.mkdir()
        try:
            destination = Destination(student_run)
            destination.put_text(MARK_FILE, json.dumps({"importer": IMPORTER}) + "\n")
            (student_run / SNAPSHOTS_FOLDER).mkdir(exist_ok=True)
            yield destination
        finally:
            shutil.rmtree(scratch)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BadInput(folder, "is being written by another import", "wait for it to end") from error
        yield
    finally:
        os.close(descriptor)


def _check_claim(student_run: Path) -> None:
    """The folder is empty, or an import has made it."""
    names = {path.name for path in student_run.iterdir()} - {_SCRATCH}
    if not names:
        return
    try:
        with Folder.of_run(student_run) as run:
            mark = run.json(MARK_FILE)
    except Unreadable:
        mark = None
    if not isinstance(mark, dict) or not str(mark.get("importer")).startswith(IMPORTER.partition(",")[0]):
        raise BadInput(student_run, "holds something that no import made", _A_NEW_FOLDER)
