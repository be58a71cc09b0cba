"""Whether a Student run's folder has been copied to its end, told from outside while others write to it.

Nothing in a Student run says that it is complete: ``cp``, ``rsync`` and ``coral-pipeline import-run`` all put
task.yaml and snapshot after snapshot in their place. So it is looked at more than once, and is complete when
everything it needs is there, nothing unfinished lies at its top or among its snapshots, and nothing has changed
for a while. Changes are told by ``ctime``, which a copy cannot set back as it does ``mtime``.

A glance costs a few ``stat`` calls whatever the size of the run; only a run that is new, or whose glance has
changed, is looked at closely. A change deep inside a snapshot that has been there before shows in neither.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from coral_pipeline.student_run.layout import (
    GRADER_FOLDER,
    PRIVATE_FOLDER,
    SNAPSHOTS_FOLDER,
    TASK_FILE,
    parse_snapshot_name,
)

_SCRATCH = frozenset({".partial", ".~tmp~"})
"""Folders of ``import-run`` and of ``rsync --delay-updates``."""
_ON_ITS_WAY = re.compile(r"\.(.+)\.[A-Za-z0-9]{6}")
"""What rsync calls a file until it is whole: ``.task.yaml.Xa81bQ``."""
_DIGITS = 32
_GRADING = (GRADER_FOLDER, PRIVATE_FOLDER)
_TOP = (TASK_FILE, SNAPSHOTS_FOLDER, *_GRADING)


class Incomplete(Exception):
    """The folder is no Student run, or not yet; the message says why and what to do."""


def glance(student_run: Path) -> str:
    """What changes when something is added to, removed from or replaced at the top of the run. Raises ``OSError``."""
    looked_at = (student_run, *(student_run / name for name in _TOP))
    return _digest(_mark(path.stat()) if path.exists() else "none" for path in looked_at)


def close_look(student_run: Path) -> str:
    """What changes while the run is being copied: every name in it, and all of the snapshot changed last.

    Copies fill one snapshot after the other, so whatever is still written lies in the one changed last.
    The same whenever it is looked at; another when something was put back as it had been, too.
    Raises ``Incomplete`` where something it needs is missing, and ``OSError``.
    """
    top = sorted(entry.name for entry in _entries(student_run))
    snapshots = {entry.name: entry.stat(follow_symlinks=False) for entry in _entries(student_run / SNAPSHOTS_FOLDER)}
    _require(top, snapshots)
    latest = max(snapshots, key=lambda name: (snapshots[name].st_ctime_ns, name))
    return _digest(
        [
            *(f"{name} {_mark(os.lstat(student_run / name))}" for name in top),
            *(f"{name} {_mark(status)}" for name, status in sorted(snapshots.items())),
            *(f"{path} {_mark(os.lstat(path))}" for path in _below(student_run / SNAPSHOTS_FOLDER / latest)),
            *(f"{path} {_mark(os.lstat(path))}" for folder in _GRADING for path in _below(student_run / folder)),
        ]
    )


def _require(top: Iterable[str], snapshots: Iterable[str]) -> None:
    for name in (*top, *snapshots):
        if _is_unfinished(name):
            raise Incomplete(f"is still being written ({name}); where nothing writes to it any more, remove that")
    if TASK_FILE not in top:
        raise Incomplete(f"has no {TASK_FILE}; copy the task's there")
    if not any(map(parse_snapshot_name, snapshots)):
        raise Incomplete(f"has no snapshots in {SNAPSHOTS_FOLDER}/; copy them, or make them with import-run")


def _is_unfinished(name: str) -> bool:
    if found := _ON_ITS_WAY.fullmatch(name):
        return found[1] == TASK_FILE or parse_snapshot_name(found[1]) is not None
    return name in _SCRATCH


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            yield from entries
    except FileNotFoundError:
        raise Incomplete(f"has no {folder.name}/; copy it there") from None
    except NotADirectoryError:
        raise Incomplete(f"has a file where the folder {folder.name}/ belongs; put the folder there") from None


def _below(folder: Path) -> Iterator[str]:
    for parent, folders, files in os.walk(folder):
        folders.sort()
        yield from (os.path.join(parent, name) for name in sorted((*folders, *files)))  # noqa: PTH118 (many)


def _mark(status: os.stat_result) -> str:
    return f"{status.st_ino} {status.st_size} {status.st_ctime_ns}"


def _digest(parts: Iterable[str]) -> str:
    joined = "\n".join(parts)
    return hashlib.sha256(joined.encode("utf-8", "surrogateescape")).hexdigest()[:_DIGITS]
