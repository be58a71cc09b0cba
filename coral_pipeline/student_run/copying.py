"""Copies of the selected roots and of the task, from which the search starts (method S12)."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from coral_pipeline.errors import BadInput
from coral_pipeline.student_run.guarded import Folder, Missing, Unreadable
from coral_pipeline.student_run.layout import (
    GRADER_FOLDER,
    METADATA_FILE,
    PRIVATE_FOLDER,
    SNAPSHOTS_FOLDER,
    TASK_FILE,
    parse_snapshot_name,
    unicode_text,
)
from coral_pipeline.student_run.reading import TASK_LIMIT, read_metadata
from coral_pipeline.tables import SELECTED_ROOTS, replaced_when_done
from coral_pipeline.tree_copy import copy_tree, remove_tree

TASK_FOLDER = "task"
"""Beside the folder of the roots: task.yaml and, where the run brings them, grader/ and private/."""
ADDED_BY_SELECTION = ("score", "stage", "selection_reason")
"""Keys of a copied metadata.json that its snapshot's does not have (method S12)."""
_ELSEWHERE = "move it away, or choose another output folder"


def copy_roots(
    student_run: Path,
    roots: pa.Table,
    out: Path,
    *,
    task_folder: Path | None = None,
    progress: Callable[[Iterable[Any]], Iterable[Any]] | None = None,
) -> list[str]:
    """Copy the folders of ``roots`` (``tables.SELECTED_ROOTS``) to ``out/<root>/`` and the task to ``task_folder``.

    The copied metadata.json gains ``ADDED_BY_SELECTION``; all else in it stays. Each
    folder appears whole or not at all. Folders of an earlier selection, named by the table that still lies
    in ``out``, are removed when all copies are made; so write the new table after this.
    ``task_folder`` is ``task`` beside ``out`` unless given. Returns one line per thing left out of a copy, and why.

    Raises ``BadInput`` where something cannot be copied, or something else lies in a copy's place.
    """
    task_folder = task_folder or out.parent / TASK_FOLDER
    refuse_overlap(student_run, out, task_folder)
    earlier = _earlier_roots(out)
    left_out: list[str] = []
    rows = roots.to_pylist()
    with _told_as_bad_input(student_run), Folder.of_run(student_run) as run:
        out.mkdir(parents=True, exist_ok=True)
        with run.folder(SNAPSHOTS_FOLDER) as snapshots:
            for row in progress(rows) if progress else rows:
                left_out += _copy_root(snapshots, row, out, earlier)
        left_out += _copy_task(run, task_folder)
        for name in earlier - {row["root"] for row in rows}:
            if (out / name).is_dir() and not (out / name).is_symlink():
                remove_tree(out / name)
    return [unicode_text(line) for line in left_out]


def refuse_overlap(student_run: Path, *outputs: Path) -> None:
    """Raise ``BadInput`` where writing to an output folder would write into the Student run, or over it."""
    run = student_run.resolve()
    for output in (path.resolve() for path in outputs):
        if output.is_relative_to(run) or run.is_relative_to(output):
            problem = f"overlaps the Student run {run}, which is never written to"
            raise BadInput(output, problem, "choose another output folder")


def _copy_root(snapshots: Folder, row: Mapping[str, Any], out: Path, earlier: frozenset[str]) -> list[str]:
    name = row["root"]
    target = out / name
    if target.exists() and not (name in earlier or _is_copied_root(target)):
        raise BadInput(target, "lies where a copied root belongs, but is none", _ELSEWHERE)
    with _told_as_bad_input(Path(snapshots.path, name)), snapshots.folder(name) as snapshot, _replacing(target) as new:
        left_out = copy_tree(snapshot.real_path(), new)
        metadata = read_metadata(snapshot) | {key: row[key] for key in ADDED_BY_SELECTION}
        (new / METADATA_FILE).unlink(missing_ok=True)
        (new / METADATA_FILE).write_bytes(_json(metadata))
    return [f"{name}/{line}" for line in left_out]


def _copy_task(run: Folder, task_folder: Path) -> list[str]:
    """Copy task.yaml, grader/ and private/, so that a root can be explored without the Student run."""
    task_folder.mkdir(parents=True, exist_ok=True)
    task, task_copy = run.read(TASK_FILE, TASK_LIMIT), task_folder / TASK_FILE
    left_out: list[str] = []
    for name in (GRADER_FOLDER, PRIVATE_FOLDER):
        copy = task_folder / name
        try:
            with run.folder(name) as folder, _replacing(copy) as new:
                left_out += [f"{name}/{line}" for line in copy_tree(folder.real_path(), new)]
        except Missing:
            if copy.exists() and task_copy.exists() and task_copy.read_bytes() != task:
                raise BadInput(copy, f"is another task's, and this Student run has no {name}/", _ELSEWHERE) from None
    with replaced_when_done(task_copy) as partial:
        partial.write_bytes(task)
    return left_out


def _earlier_roots(out: Path) -> frozenset[str]:
    """The roots named by the table of an earlier selection in ``out``; none where there is no such table."""
    table = out / SELECTED_ROOTS.file_name
    if not table.exists():
        return frozenset()
    try:
        names = [row["root"] for row in SELECTED_ROOTS.rows(out)]
    except BadInput as error:
        problem = f"does not tell which folders beside it are an earlier selection's ({error.problem})"
        raise BadInput(table, problem, "remove it and them, or choose another output folder") from error
    return frozenset(name for name in names if parse_snapshot_name(name))


def _is_copied_root(folder: Path) -> bool:
    """A copy made by a selection that was interrupted: a folder whose metadata.json says how it was selected."""
    try:
        with Folder.of_run(folder) as copied:
            return "selection_reason" in read_metadata(copied)
    except Unreadable:
        return False


@contextlib.contextmanager
def _replacing(target: Path) -> Iterator[Path]:
    """A path at which to make a folder; it takes the place of ``target`` when the block ends well."""
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise BadInput(target, "lies where a copied folder belongs, but is none", _ELSEWHERE)
    new, old = target.with_name(".copying"), target.with_name(".replaced")
    _remove(new, old)
    try:
        yield new
        if target.exists():
            target.rename(old)
        new.rename(target)
    finally:
        _remove(new, old)


def _remove(*folders: Path) -> None:
    for folder in folders:
        if folder.exists():
            remove_tree(folder)


def _json(metadata: Mapping[str, Any]) -> bytes:
    try:
        # Half a surrogate pair can only be written as an escape; JSON's is the one that Python falls back on.
        return json.dumps(metadata, indent=2, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"
    except RecursionError as error:  # Python reads deeper JSON than it writes
        raise Unreadable(f"has a {METADATA_FILE} nested too deeply to write") from error


@contextlib.contextmanager
def _told_as_bad_input(thing: Path) -> Iterator[None]:
    """Turn what the file system refuses into one line that names the file."""
    try:
        yield
    except OSError as error:
        problem = f"cannot be copied or replaced ({error.strerror})"
        raise BadInput(
            error.filename or thing, problem, "see to its permissions and to the room on the disk"
        ) from error
    except Unreadable as unreadable:
        raise BadInput(
            thing, f"cannot be copied: it {unreadable}", "leave it as it was when it was read"
        ) from unreadable
