"""Reading commits, trees and blobs out of git repositories that must be neither touched nor trusted.

``git cat-file --batch`` runs in an empty repository of its own that only borrows the packs and loose objects of
the others. So git never opens their configuration, hooks, refs or indexes, nor what their alternates and links
lead to: nothing of theirs is executed, nothing outside them is read, it does not matter who owns them, and there
is nothing git would write to. Every object is checked against its hash. (dulwich, a reader in pure Python, took
as long on a real run and is one more dependency.)
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NoReturn

from coral_pipeline.errors import BadInput

HASH = re.compile("[0-9a-f]{40}")
"""An object's full name, as git writes it."""
LARGEST_TREE = 1 << 26
"""Bytes of the largest commit or tree that is read; a tree of this size names about a million files."""
CHUNK = 1 << 20
"""Bytes of a blob held in memory at once."""
SMALL_BLOB = 1 << 14
SMALL_BLOBS = 1 << 12
"""Blobs of up to so many bytes are kept, so many of them: one snapshot's shared state is most of the next one's."""
_PART = re.compile("pack|[0-9a-f]{2}")
"""Names of the folders in ``.git/objects`` that hold objects."""
_ALTERNATES = Path("info", "alternates")
"""The file in ``.git/objects`` that names further object folders, anywhere."""
_STOPPED = frozenset({-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT})
"""Exit statuses that say nothing about the object being read."""


class UnusableObject(Exception):
    """An object that is not there, is damaged, or is not of the type asked for; the message says which."""


class TooLarge(UnusableObject):
    """An object with more bytes than its reader takes."""


@dataclass(frozen=True)
class TreeEntry:
    """One entry of a git tree: its mode as git writes it, its name as raw bytes, the hash of its object."""

    mode: int
    name: bytes
    hash: str


class GitObjects:
    """Objects by full hash, from any of several object folders; made by ``open_objects``."""

    def __init__(self, git: str, repository: Path, left_out: Sequence[Path]) -> None:
        """Read from ``repository``, a git directory that is safe to open."""
        self.left_out = left_out
        """What of the object folders is not read, since it may lead elsewhere."""
        self._command = [git, "cat-file", "--batch"]
        self._repository = repository
        self._process = self._start()
        self._small: dict[str, bytes] = {}

    def close(self) -> None:
        """End the git process."""
        self._process.kill()
        self._process.communicate()

    def tree_of(self, commit: str) -> str:
        """Hash of a commit's tree."""
        first_line, _, _ = self._read(commit, b"commit", LARGEST_TREE).partition(b"\n")
        return first_line.removeprefix(b"tree ").decode("ascii", "replace")

    def entries(self, tree: str) -> list[TreeEntry]:
        """The entries of a tree, in git's order."""
        return list(_parse_tree(tree, self._read(tree, b"tree", LARGEST_TREE)))

    def read_blob(self, blob: str, limit: int) -> bytes:
        """A blob's bytes; ``TooLarge`` where it has more than ``limit``."""
        return self._read(blob, b"blob", limit)

    def copy_blob(self, blob: str, target: BinaryIO) -> None:
        """Copy a blob's bytes as they are stored (no line-ending or LFS filters) into an open file."""
        if blob in self._small:
            target.write(self._small[blob])
            return
        size = self._ask(blob, b"blob")
        digest = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
        piece = b""
        for piece in self._take(blob, size):
            digest.update(piece)
            target.write(piece)
        _check(blob, digest.hexdigest())
        if size <= SMALL_BLOB:  # one piece
            if len(self._small) == SMALL_BLOBS:
                del self._small[next(iter(self._small))]
            self._small[blob] = piece

    def _read(self, name: str, kind: bytes, limit: int) -> bytes:
        size = self._ask(name, kind)
        if size > limit:
            for _ in self._take(name, size):
                pass
            raise TooLarge(f"{kind.decode()} {name} is too large, {size} bytes")
        content = b"".join(self._take(name, size))
        _check(name, hashlib.sha1(b"%s %d\0" % (kind, size) + content, usedforsecurity=False).hexdigest())
        return content

    def _ask(self, name: str, kind: bytes) -> int:
        """Request an object; returns its size, with its bytes next to be taken."""
        if not HASH.fullmatch(name):
            raise UnusableObject(f"{name!r} is not a full git hash")
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(name.encode() + b"\n")
        self._process.stdin.flush()
        header = self._process.stdout.readline()
        if not header:
            self._ended_on(name)
        fields = header.split()
        if len(fields) != 3:
            raise UnusableObject(f"{kind.decode()} {name} is missing or damaged")
        size = int(fields[2])
        if fields[1] != kind:
            for _ in self._take(name, size):
                pass
            raise UnusableObject(f"{name} is a {fields[1].decode()}, not a {kind.decode()}")
        return size

    def _take(self, name: str, size: int) -> Iterator[bytes]:
        """The answer's bytes in pieces, and its closing newline."""
        assert self._process.stdout is not None
        left = size
        while left:
            piece = self._process.stdout.read(min(left, CHUNK))
            if not piece:
                self._ended_on(name)
            left -= len(piece)
            yield piece
        if not self._process.stdout.read(1):
            self._ended_on(name)

    def _ended_on(self, name: str) -> NoReturn:
        """Git ends on some kinds of damage; start it again for the objects that are whole."""
        status = self._process.wait()
        if status in _STOPPED:
            raise BadInput("git cat-file", f"was ended by signal {-status}", "see what ended it, and run again")
        self.close()
        self._process = self._start()
        raise UnusableObject(f"object {name} is damaged")

    def _start(self) -> subprocess.Popen[bytes]:
        environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "GIT_DIR": str(self._repository),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_NO_REPLACE_OBJECTS": "1",
            "LC_ALL": "C",
        }
        return subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # what is wrong with an object also shows in the answer
            cwd=self._repository,
            env=environment,
        )


@contextmanager
def open_objects(object_folders: Sequence[Path], scratch: Path) -> Iterator[GitObjects]:
    """The objects of all these ``.git/objects`` folders together, for the length of the block.

    ``scratch``: an empty folder to work in. Raises ``BadInput`` where git is not installed.
    """
    git = shutil.which("git")
    if git is None:
        raise BadInput("git", "is not installed", "install it and run again")
    (scratch / "objects" / "info").mkdir(parents=True)
    (scratch / "refs").mkdir()
    (scratch / "HEAD").write_text("ref: refs/heads/none\n")
    # A multi-pack-index names packs, wherever they are.
    (scratch / "config").write_text("[core]\n\tmultiPackIndex = false\n")
    borrowed = [scratch / f"borrowed-{number}" for number in range(len(object_folders))]
    (scratch / "objects" / _ALTERNATES).write_text("".join(f"../{place.name}\n" for place in borrowed))
    left_out = [path for folder, place in zip(object_folders, borrowed, strict=True) for path in _borrow(folder, place)]
    objects = GitObjects(git, scratch, left_out)
    try:
        yield objects
    finally:
        objects.close()


def _borrow(objects: Path, place: Path) -> Iterator[Path]:
    """Link what lies in an object folder into the new folder ``place``; yields what may lead elsewhere instead."""
    place.mkdir()
    for part in sorted(objects.glob("*")):
        if _PART.fullmatch(part.name):
            if _holds_its_own(part):
                (place / part.name).symlink_to(part.resolve())
            else:
                yield part
    if os.path.lexists(objects / _ALTERNATES):
        yield objects / _ALTERNATES


def _holds_its_own(part: Path) -> bool:
    """Whether this is a folder, and no link, with no link in it."""
    try:
        with os.scandir(part) as entries:
            return not (part.is_symlink() or any(entry.is_symlink() for entry in entries))
    except OSError:  # no folder, or one that does not tell
        return False


def _check(name: str, digest: str) -> None:
    if digest != name:
        raise UnusableObject(f"object {name} is damaged: its bytes do not match its hash")


def _parse_tree(tree: str, content: bytes) -> Iterator[TreeEntry]:
    """Entries of ``<octal mode> <name>\\0<20 bytes of hash>``."""
    position = 0
    while position < len(content):
        space = content.find(b" ", position)
        end = content.find(b"\0", space)
        mode = content[position:space]
        if not (position < space < end <= len(content) - 21 and set(mode) <= set(b"01234567")):
            raise UnusableObject(f"tree {tree} is malformed")
        yield TreeEntry(int(mode, 8), content[space + 1 : end], content[end + 1 : end + 21].hex())
        position = end + 21
