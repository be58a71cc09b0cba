"""A git tree written out as a folder, whatever its entries are called.

The tree comes from a repository that agents wrote to, so no name in it is trusted. What cannot or must not
be written is left out, and said; nothing is ever written outside the folder. Links are made last, so that no
file is written through one.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from coral_pipeline.student_run.git_objects import GitObjects, TooLarge, TreeEntry

TREE, LINK, SUBMODULE, EXECUTABLE = 0o040000, 0o120000, 0o160000, 0o100755
LONGEST_NAME = 255
LONGEST_PATH = 1024
LONGEST_LINK = 1024
"""Bytes of a name, of a path in the tree, and of a link's target; what is longer is left out."""
MOST_ENTRIES = 200_000
"""Entries of one tree; a tree of trees can name more than any disk holds in a few hundred bytes."""
LINKS_FOLLOWED = 40
"""Links on one path after which the kernel gives up, too."""

Skip = Callable[[PurePosixPath, bool], bool]
"""Whether to leave out a path, given whether it is a folder; what it leaves out is not reported."""


@dataclass
class Checkout:
    """What is to be written: paths relative to the folder, by kind, parents before children."""

    folders: list[PurePosixPath] = field(default_factory=list)
    files: list[tuple[PurePosixPath, TreeEntry]] = field(default_factory=list)
    links: dict[PurePosixPath, str] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    """One line on each entry that cannot be written as it is."""


def plan_checkout(objects: GitObjects, tree: str, skip: Skip = lambda path, is_folder: False) -> Checkout:
    """Read the tree and everything below it and decide what will be written.

    Raises ``UnusableObject`` where a tree is missing or damaged, or holds too many entries.
    """
    plan = Checkout()
    links: dict[PurePosixPath, str] = {}
    pending: deque[tuple[PurePosixPath, str]] = deque([(PurePosixPath(), tree)])
    seen = 0
    while pending:
        folder, hash = pending.popleft()
        entries = objects.entries(hash)
        seen += len(entries)
        if seen > MOST_ENTRIES:
            raise TooLarge(f"tree {tree} is too large, more than {MOST_ENTRIES} entries")
        for path, entry in _writable(folder, entries, plan):
            if skip(path, entry.mode == TREE):
                continue
            if entry.mode == TREE:
                plan.folders.append(path)
                pending.append((path, entry.hash))
            elif entry.mode == SUBMODULE:
                plan.folders.append(path)
                plan.left_out.append(f"{path}: submodule at {entry.hash}, left empty")
            elif entry.mode == LINK:
                try:
                    links[path] = os.fsdecode(objects.read_blob(entry.hash, LONGEST_LINK))
                except TooLarge:
                    plan.left_out.append(f"{path}: link with a target of more than {LONGEST_LINK} bytes")
            else:
                plan.files.append((path, entry))
    for path, target in links.items():
        if not target or "\0" in target or link_escapes(path, links):
            plan.left_out.append(f"{path}: link to {target!a}, out of the folder or in circles")
        else:
            plan.links[path] = target
    return plan


def write_checkout(objects: GitObjects, plan: Checkout, folder: Path) -> None:
    """Write the plan into ``folder``, which is made here. Modes follow the umask, as git's do.

    Raises ``UnusableObject`` where a blob is missing or damaged, ``OSError`` where the disk refuses.
    """
    folder.mkdir()
    for path in plan.folders:
        (folder / path).mkdir()
    for path, entry in plan.files:
        with (folder / path).open("xb") as file:
            objects.copy_blob(entry.hash, file)
        if entry.mode == EXECUTABLE:
            _make_executable(folder / path)
    for path, target in plan.links.items():
        (folder / path).symlink_to(target)


def _make_executable(path: Path) -> None:
    """Let all who may read the file run it."""
    mode = path.stat().st_mode
    path.chmod(mode | (mode & 0o444) >> 2)


def _writable(
    folder: PurePosixPath, entries: list[TreeEntry], plan: Checkout
) -> Iterator[tuple[PurePosixPath, TreeEntry]]:
    """The entries of one folder whose names can be written, each name once; the others are noted in the plan."""
    names = set()
    for entry in entries:
        path = folder / os.fsdecode(entry.name)
        problem = _problem(entry.name, path)
        if problem is None and entry.name in names:
            problem = "a name the folder already has"
        names.add(entry.name)
        if problem is None:
            yield path, entry
        else:
            within = f"{folder}/" if folder.parts else ""
            plan.left_out.append(f"{within}{os.fsdecode(entry.name[:LONGEST_NAME])}: {problem}")


def _problem(name: bytes, path: PurePosixPath) -> str | None:
    if name in (b"", b".", b"..") or b"/" in name or b"\\" in name:
        return "no name for a file"
    if name.lower() in (b".git", b"git~1"):
        return "a name git keeps for itself"
    if len(name) > LONGEST_NAME or len(os.fsencode(path)) > LONGEST_PATH:
        return "too long a path"
    return None


def link_escapes(path: PurePosixPath, links: Mapping[PurePosixPath, str]) -> bool:
    """Whether following the link at ``path``, and those on its way, leaves the folder at any step or never ends."""
    here: list[str] = list(path.parent.parts)
    ahead = deque([links[path]])
    followed = 0
    while ahead:
        target = ahead.popleft()
        if target.startswith("/"):
            return True
        step, _, rest = target.partition("/")
        if rest:
            ahead.appendleft(rest.lstrip("/"))
        if step in ("", "."):
            continue
        if step == "..":
            if not here:
                return True
            here.pop()
            continue
        next_link = links.get(PurePosixPath(*here, step))
        if next_link is None:
            here.append(step)
        elif followed == LINKS_FOLLOWED:
            return True
        else:
            followed += 1
            ahead.appendleft(next_link)
    return False


def printable(text: str) -> str:
    """Text that may hold any file name, as one line that any file and terminal takes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
