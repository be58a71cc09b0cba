"""Copying a folder so that writing to the copy never changes the original, and nothing outside it is taken along."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
from pathlib import Path

FICLONE = 0x40049409
"""Linux ioctl: let one file share another's blocks until either is written to (btrfs, XFS, bcachefs …)."""
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
    folders = [Path()]
    for inside in folders:  # grows as folders are met
        (target / inside).mkdir()
        with os.scandir(source / inside) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(inside / entry.name)
                elif problem := _copy_entry(source, inside / entry.name, target):
                    left_out.append(f"{inside / entry.name}: {problem}")
    for inside in reversed(folders):
        status = (source / inside).stat()
        (target / inside).chmod(stat.S_IMODE(status.st_mode) & 0o777 | stat.S_IRWXU)
        os.utime(target / inside, ns=(status.st_atime_ns, status.st_mtime_ns))
    return sorted(left_out)


def _copy_entry(source: Path, inside: Path, target: Path) -> str | None:
    """Copy one file or link; returns why it was left out, None where it was not."""
    kind = (source / inside).lstat().st_mode
    if stat.S_ISREG(kind):
        copy_file(source / inside, target / inside)
        return None
    if not stat.S_ISLNK(kind):
        return "is neither a file, a folder nor a link"
    link = (source / inside).readlink()
    if not _stays_inside(source, inside, link):
        return f"is a link that leads outside ({link})"
    (target / inside).symlink_to(link)
    return None


def _stays_inside(source: Path, inside: Path, link: Path) -> bool:
    """The link works the same in a copy: it is relative, and leads inside both as written and through other links."""
    if link.is_absolute() or Path(os.path.normpath(inside.parent / link)).parts[:1] == (os.pardir,):
        return False
    return Path(os.path.realpath(source / inside)).is_relative_to(os.path.realpath(source))


def copy_file(source: Path, target: Path) -> None:
    """Copy one regular file with its permissions and modification time, sharing blocks where possible."""
    reading = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(reading, "rb") as original, target.open("xb") as copy:
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
