"""Folders that agents have written to: however deep and however closed, they can be measured, kept and removed."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from coral_pipeline.disk_use import disk_bytes
from coral_pipeline.teacher import file_trees
from coral_pipeline.teacher.file_trees import copy_state, flush
from coral_pipeline.tree_copy import remove_tree

BEYOND_RECURSION, BEYOND_PATHS = ["a"] * 1_200, ["a" * 200] * 30
"""Folders in folders: more than Python calls deep, more than a path can name."""


def deepen(folder: Path, names: list[str]) -> None:
    """Folders in folders, a file in the last one."""
    below = os.open(folder, os.O_DIRECTORY)
    for name in names:
        os.mkdir(name, dir_fd=below)
        above, below = below, os.open(name, os.O_DIRECTORY, dir_fd=below)
        os.close(above)
    with os.fdopen(os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=below), "wb") as file:
        file.write(bytes(10_000))
    os.close(below)


@pytest.fixture
def deep(tmp_path: Path) -> Iterator[Path]:
    """An empty folder, gone in the end: pytest could not remove what this puts there."""
    folder = tmp_path / "deep"
    folder.mkdir()
    yield folder
    subprocess.run(["rm", "-rf", str(folder)], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("names", [BEYOND_RECURSION, BEYOND_PATHS], ids=["recursion", "paths"])
def test_folders_may_be_as_deep_as_they_like(deep: Path, names: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[Path | str] = []
    monkeypatch.setattr(file_trees, "sync", flushed.append)
    deep /= "state"
    deep.mkdir()
    (deep / "file").write_bytes(bytes(10_000))
    deepen(deep, names)
    assert disk_bytes(deep) >= (20_000 if names == BEYOND_RECURSION else 10_000)
    flush(deep)
    assert len(flushed) >= (len(names) + 3 if names == BEYOND_RECURSION else 2)
    copy = deep.with_name("copy")
    copy_state(deep, copy)
    assert (copy / "file").read_bytes() == bytes(10_000)
    for folder in (deep, copy):
        remove_tree(folder)
    assert list(deep.parent.iterdir()) == []


def test_what_an_agent_closed_is_open_to_whoever_copies_the_kept_state(tmp_path: Path) -> None:
    closed = tmp_path / "state" / "closed"
    closed.mkdir(parents=True)
    (closed / "file").write_text("secret")
    (closed / "file").chmod(0o020)
    closed.chmod(0o000)
    flush(tmp_path / "state")
    assert stat.S_IMODE(closed.stat().st_mode) == 0o500
    assert stat.S_IMODE((closed / "file").stat().st_mode) == 0o420
    remove_tree(tmp_path / "state")


def test_removing_goes_through_no_link_and_not_past_what_is_not_there(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "link").symlink_to(kept, target_is_directory=True)
    remove_tree(tmp_path / "folder")
    remove_tree(tmp_path / "folder")
    (tmp_path / "link").symlink_to(kept, target_is_directory=True)
    with pytest.raises(NotADirectoryError):
        remove_tree(tmp_path / "link")
    assert (kept / "file").exists()


def test_where_there_are_no_hard_links_git_objects_are_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = Path(".git/objects/pack") / f"pack-{'a' * 40}.pack"
    (tmp_path / "state" / inside).parent.mkdir(parents=True)
    (tmp_path / "state" / inside).write_bytes(bytes(2 << 20))
    assert copy_state(tmp_path / "state", tmp_path / "linked", link_git_objects=True) == (inside,)

    def refused(self: Path, target: Path) -> None:
        raise PermissionError

    monkeypatch.setattr(Path, "hardlink_to", refused)
    assert copy_state(tmp_path / "state", tmp_path / "copied", link_git_objects=True) == ()
    assert (tmp_path / "copied" / inside).read_bytes() == bytes(2 << 20)
