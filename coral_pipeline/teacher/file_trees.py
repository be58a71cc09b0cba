"""Folders of a state as a whole: copied, removed, flushed to disk."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import stat
import zlib
from pathlib import Path

from coral_pipeline.tree_copy import FICLONE, copy_file

_GIT_OBJECT = re.compile(r"/\.git/objects/(?:[0-9a-f]{2}/[0-9a-f]{38,62}|pack/pack-[0-9a-f]+\.(?:pack|idx|rev))$")
"""Files that git names by what they hold, and never changes in place."""
_HASHES = (("sha1", 20), ("sha256", 32))
"""The hashes that git repositories use, and their lengths in bytes."""


def copy_state(source: Path, target: Path, link_git_objects: bool = False) -> dict[Path, tuple[int, int]]:
    """Copy a state as it is, links included, sharing blocks where the file system can; sockets are left out.

    Returns the source's files that became hard links, each with what would tell that it was changed.
    Raises ``OSError``.
    """
    linked: dict[Path, tuple[int, int]] = {}
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
                elif link_git_objects and _GIT_OBJECT.search(str(origin)):
                    copy.hardlink_to(origin)
                    linked[origin] = mark(origin)
                else:
                    copy_file(origin, copy)
    for inside in reversed(folders):
        shutil.copystat(source / inside, target / inside)
    return linked


def can_share_blocks(source: Path, target: Path) -> bool:
    """Whether ``target``, a new file, can be made to share its blocks with ``source`` (a reflink)."""
    with source.open("rb") as original, target.open("wb") as copy:
        try:
            fcntl.ioctl(copy, FICLONE, original.fileno())
        except OSError:
            return False
    return True


def mark(path: Path) -> tuple[int, int]:
    """Size and modification time (ns) of a file: different after any write; (-1, -1) where it is gone."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return (-1, -1)
    return (status.st_size, status.st_mtime_ns)


def is_intact(git_object: Path, before: tuple[int, int]) -> bool:
    """Whether a file of a git object store holds what it held when ``mark`` gave ``before``.

    Git itself renews the modification time of objects it needs again; then the content is checked
    against the hash that it carries: a loose object its name, a pack and its index their last bytes.
    """
    now = mark(git_object)
    if now == before:
        return True
    if now[0] != before[0]:
        return False
    content = git_object.read_bytes()
    if git_object.suffix in {".pack", ".idx", ".rev"}:
        return any(hashlib.new(name, content[:-size]).digest() == content[-size:] for name, size in _HASHES)
    name = git_object.parent.name + git_object.name
    try:
        plain = zlib.decompress(content)
    except zlib.error:
        return False
    return any(hashlib.new(algorithm, plain).hexdigest() == name for algorithm, _ in _HASHES)


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
