"""Folders of a state as a whole: copied, removed, flushed to disk."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import stat
from pathlib import Path

from coral_pipeline.tree_copy import FICLONE, copy_file

_GIT_OBJECT = re.compile(r"/\.git/objects/(?:[0-9a-f]{2}/[0-9a-f]{38,62}|pack/pack-[0-9a-f]+\.(?:pack|idx|rev))$")
"""Files that git names by what they hold, and never changes in place."""
_LARGE = 1 << 20
_MOST_LINKS = 64
"""Git objects smaller than so many bytes are copied, and so are those beyond that number."""


def copy_state(source: Path, target: Path, link_git_objects: bool = False) -> tuple[Path, ...]:
    """Copy a state as it is, links included, sharing blocks where the file system can; sockets are left out.

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
                    folders.append(inside / entry.name)
                elif entry.is_symlink():
                    copy.symlink_to(origin.readlink())
                    shutil.copystat(origin, copy, follow_symlinks=False)
                elif not entry.is_file(follow_symlinks=False):
                    continue
                elif link_git_objects and len(linked) < _MOST_LINKS and _is_large_object(entry):
                    copy.hardlink_to(origin)
                    linked.append(inside / entry.name)
                else:
                    copy_file(origin, copy)
    for inside in reversed(folders):
        shutil.copystat(source / inside, target / inside)
    return tuple(linked)


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


def remove_tree(folder: Path) -> None:
    """Remove a folder and all in it, folders without permissions included; nothing where it is not there."""
    if not folder.exists():
        return
    try:
        shutil.rmtree(folder)
    except PermissionError:
        for parent, names, _ in os.walk(folder):
            for name in names:
                if not (Path(parent) / name).is_symlink():
                    (Path(parent) / name).chmod(0o700)
        shutil.rmtree(folder)


def flush(folder: Path) -> None:
    """Return when every file and folder under ``folder`` is on disk."""
    for parent, _, names in os.walk(folder):
        for path in (Path(parent), *(Path(parent) / name for name in names)):
            if not stat.S_ISREG(path.lstat().st_mode) and path != Path(parent):
                continue
            with contextlib.suppress(PermissionError):  # an agent took the permission away
                descriptor = os.open(path, os.O_RDONLY)
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
