"""Copying a folder so that writing to the copy never changes the original, and nothing outside it is taken along."""

# Plain strings within: trees are large, and pathlib costs as much as the copying.
# ruff: noqa: PTH101, PTH102, PTH104, PTH106, PTH108, PTH110, PTH114, PTH115, PTH116, PTH117, PTH118, PTH123, PTH211
from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import stat
import tempfile
from pathlib import Path

FICLONE = 0x40049409
"""Linux ioctl: let one file share another's blocks until either is written to (btrfs, XFS, bcachefs …)."""
LONG_PATH = 3800
"""Bytes of a path below which names still fit in: the system takes 4095."""
_NO_REFLINK = (errno.EOPNOTSUPP, errno.ENOTTY, errno.EXDEV, errno.EINVAL, errno.ENOSYS)


def copy_tree(source: Path, target: Path) -> list[str]:
    """Copy the folder ``source`` to ``target``, which must not exist; returns what was left out, and why.

    Contents are shared block by block where the file system can (reflink), copied otherwise. Hard links are
    never made: both names would be one file, and an agent that writes into its copy would change the
    original. Links are kept where they stay inside the folder; links that lead out of it, pipes, sockets and
    devices are left out. Permissions and modification times are kept, but the owner may always enter and
    write folders. Raises ``OSError``.
    """
    left_out: list[str] = []
    folders = [""]
    for inside in folders:  # grows as folders are met
        os.mkdir(f"{target}{inside}")
        with os.scandir(f"{source}{inside}") as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(f"{inside}/{entry.name}")
                elif problem := _copy_entry(entry, str(source), inside, f"{target}{inside}/{entry.name}"):
                    left_out.append(f"{inside}/{entry.name}: {problem}".removeprefix("/"))
    for inside in reversed(folders):
        status = os.stat(f"{source}{inside}")
        os.chmod(f"{target}{inside}", status.st_mode & 0o777 | stat.S_IRWXU)
        os.utime(f"{target}{inside}", ns=(status.st_atime_ns, status.st_mtime_ns))
    return sorted(left_out)


def remove_tree(folder: Path) -> None:
    """Remove a folder and all in it, however deep, folders without permissions included; nothing where it is not there.

    Python 3.11's ``shutil.rmtree`` recurses. Raises ``OSError``; a link is refused, or what it leads to would be
    emptied.
    """
    if os.path.islink(folder):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
    folders = [str(folder)] if os.path.exists(folder) else []
    for inside in folders:  # grows as folders are met
        with contextlib.suppress(PermissionError):  # another's, of which no more than reading may be needed
            os.chmod(inside, stat.S_IRWXU)
        with os.scandir(inside) as entries:
            for entry in entries:
                if not entry.is_dir(follow_symlinks=False):
                    os.unlink(entry.path)
                elif len(os.fsencode(entry.path)) < LONG_PATH:
                    folders.append(entry.path)
                else:
                    folders.append(_moved_up(entry.path, str(folder)))
    for inside in reversed(folders):
        os.rmdir(inside)


def _moved_up(path: str, folder: str) -> str:
    """Move a folder, whose path is about to grow longer than the system takes, to just below ``folder``."""
    os.chmod(path, stat.S_IRWXU)
    place = tempfile.mkdtemp(dir=folder)
    os.rename(path, place)  # an empty folder can be renamed over
    return place


def _copy_entry(entry: os.DirEntry[str], source: str, inside: str, target: str) -> str | None:
    """Copy one file or link of the folder ``inside`` the source; returns why it was left out, None where it was not."""
    if entry.is_file(follow_symlinks=False):
        copy_file(entry.path, target)
        return None
    if not entry.is_symlink():
        return "is neither a file, a folder nor a link"
    link = os.readlink(entry.path)
    if not stays_inside(entry.path, source, inside, link):
        return f"is a link that leads outside ({link})"
    os.symlink(link, target)
    return None


def stays_inside(path: str, source: str, inside: str, link: str) -> bool:
    """The link works the same in a copy: it is relative, and leads inside both as written and through other links."""
    as_written = os.path.normpath(os.path.join(inside.removeprefix("/"), link))
    if os.path.isabs(link) or as_written.split("/")[0] == os.pardir:
        return False
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(source))


def copy_file(source: str | Path, target: str | Path) -> None:
    """Copy one regular file with its permissions and modification time, sharing blocks where possible."""
    reading = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(reading, "rb") as original, open(target, "xb") as copy:
        if not _reflink(original.fileno(), copy.fileno()):
            shutil.copyfileobj(original, copy, length=2**20)
            copy.flush()
        status = os.fstat(original.fileno())
        os.fchmod(copy.fileno(), status.st_mode & 0o777)
        os.utime(copy.fileno(), ns=(status.st_atime_ns, status.st_mtime_ns))


def _reflink(source: int, target: int) -> bool:
    try:
        fcntl.ioctl(target, FICLONE, source)
    except OSError as error:
        if error.errno in _NO_REFLINK:
            return False
        raise
    return True
