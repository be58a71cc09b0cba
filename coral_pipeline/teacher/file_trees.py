"""Folders of a state as a whole: copied, flushed to disk."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import stat
from pathlib import Path

from coral_pipeline.disk_use import entries_below
from coral_pipeline.durable import sync
from coral_pipeline.tree_copy import FICLONE, LONG_PATH, copy_file

_GIT_OBJECT = re.compile(r"/\.git/objects/(?:[0-9a-f]{2}/[0-9a-f]{38,62}|pack/pack-[0-9a-f]+\.(?:pack|idx|rev))$")
"""Files that git names by what they hold, and never changes in place."""
_LARGE = 1 << 20
_MOST_LINKS = 64
"""Git objects smaller than so many bytes are copied, and so are those beyond that number."""


def copy_state(source: Path, target: Path, link_git_objects: bool = False) -> tuple[Path, ...]:
    """Copy a state as it is, links included, sharing blocks where the file system can.

    Sockets are left out, and folders too deep for a path.

    With ``link_git_objects`` large git objects become hard links; these are returned, as paths inside. Whoever
    writes to one in place writes to the source. Raises ``OSError``.
    """
    linked: list[Path] = []
    folders = [Path()]
    for inside in folders:  # grows as folders are met
        (target / inside).mkdir()
        with os.scandir(source / inside) as entries:
            for entry in entries:
                origin, copy = source / inside / entry.name, target / inside / entry.name
                if entry.is_dir(follow_symlinks=False):
                    if len(os.fsencode(copy)) < LONG_PATH:
                        folders.append(inside / entry.name)
                elif entry.is_symlink():
                    copy.symlink_to(origin.readlink())
                    shutil.copystat(origin, copy, follow_symlinks=False)
                elif not entry.is_file(follow_symlinks=False):
                    continue
                elif link_git_objects and len(linked) < _MOST_LINKS and _is_large_object(entry):
                    if _linked(origin, copy):
                        linked.append(inside / entry.name)
                else:
                    copy_file(origin, copy)
    for inside in reversed(folders):
        shutil.copystat(source / inside, target / inside)
    return tuple(linked)


def _linked(origin: Path, copy: Path) -> bool:
    """Make ``copy`` a hard link; a copy after all, and False, where the file system knows none or no more of them."""
    try:
        copy.hardlink_to(origin)
    except OSError:
        copy_file(origin, copy)
        return False
    return True


def _is_large_object(entry: os.DirEntry[str]) -> bool:
    return _GIT_OBJECT.search(entry.path) is not None and entry.stat(follow_symlinks=False).st_size >= _LARGE


def can_share_blocks(source: Path, target: Path) -> bool:
    """Whether ``target``, a new file, can be made to share its blocks with ``source`` (a reflink)."""
    with source.open("rb") as original, target.open("wb") as copy:
        try:
            fcntl.ioctl(copy, FICLONE, original.fileno())
        except OSError:
            return False
    return True


def flush(folder: Path) -> None:
    """Return when all that lies under ``folder`` is on disk, and open to its owner whatever an agent did to it.

    What is too deep for a path is passed over. Raises ``OSError``.
    """
    sync(folder)
    for entry in entries_below(folder):
        is_folder = entry.is_dir(follow_symlinks=False)
        if is_folder or entry.is_file(follow_symlinks=False):
            mode, least = entry.stat(follow_symlinks=False).st_mode, 0o500 if is_folder else 0o400
            if mode & least != least:
                Path(entry).chmod(stat.S_IMODE(mode) | least)
            sync(entry.path)
