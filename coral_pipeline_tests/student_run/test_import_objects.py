"""Objects are read by hash out of repositories in any state; damage is said and stops nothing else."""

from __future__ import annotations

import io
import signal
from pathlib import Path
from threading import Timer

import pytest

from coral_pipeline.errors import BadInput
from coral_pipeline.student_run import git_objects
from coral_pipeline.student_run.git_objects import TooLarge, UnusableObject
from coral_pipeline_tests.coral_runs import git, objects_of, write_object, write_raw_tree


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    path = tmp_path / 'with "quotes" and : \\ in\nits name'
    path.mkdir()
    git(path, "init", "-q")
    return path


def object_file(repository: Path, hash: str) -> Path:
    """The file of a loose object, made writable."""
    path = repository / ".git" / "objects" / hash[:2] / hash[2:]
    path.chmod(0o644)
    return path


def test_objects_of_several_folders_are_read_together(repository: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "-q")
    one, two = write_object(repository, "blob", b"one"), write_object(other, "blob", b"")
    with objects_of(repository, other) as objects:
        assert (objects.read_blob(one, 3), objects.read_blob(two, 0)) == (b"one", b"")


def test_a_large_blob_is_copied_whole(repository: Path) -> None:
    content = bytes(range(256)) * 20_000  # 5 MB, several pieces
    blob = write_object(repository, "blob", content)
    with objects_of(repository) as objects:
        copy = io.BytesIO()
        objects.copy_blob(blob, copy)
        assert copy.getvalue() == content
        with pytest.raises(TooLarge):
            objects.read_blob(blob, len(content) - 1)
        assert objects.read_blob(blob, len(content)) == content


def test_small_blobs_are_the_same_each_time_they_are_copied(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(git_objects, "SMALL_BLOBS", 2)  # of three: each is kept, forgotten, and read again
    contents = [b"", b"one", b"two"]
    blobs = [write_object(repository, "blob", content) for content in contents]
    with objects_of(repository) as objects:
        for _ in range(3):
            for blob, content in zip(blobs, contents, strict=True):
                copies = io.BytesIO()
                objects.copy_blob(blob, copies)
                objects.copy_blob(blob, copies)
                assert copies.getvalue() == 2 * content


def test_what_is_missing_or_of_another_type_is_said_and_the_next_is_read(repository: Path) -> None:
    blob = write_object(repository, "blob", b"x")
    tree = write_raw_tree(repository, [("100644", b"x", blob)])
    with objects_of(repository) as objects:
        for ask, problem in (
            (lambda: objects.tree_of("0" * 40), "commit 0{40} is missing"),
            (lambda: objects.tree_of(blob), "is a blob, not a commit"),
            (lambda: objects.entries(blob), "is a blob, not a tree"),
            (lambda: objects.read_blob(tree, 100), "is a tree, not a blob"),
            (lambda: objects.tree_of("HEAD"), "'HEAD' is not a full git hash"),
            (lambda: objects.tree_of(f"{blob}\n{blob}"), "is not a full git hash"),
        ):
            with pytest.raises(UnusableObject, match=problem):
                ask()
            assert objects.read_blob(blob, 1) == b"x"


@pytest.mark.parametrize("content", [b"100644 x", b"100644 x\0short", b"x\0" + b"h" * 20, b"9 x\0" + b"h" * 20, b"\0"])
def test_a_malformed_tree_is_said(repository: Path, content: bytes) -> None:
    tree = write_object(repository, "tree", content)
    with objects_of(repository) as objects, pytest.raises(UnusableObject, match="malformed"):
        objects.entries(tree)


def test_bytes_that_do_not_match_their_hash_are_refused(repository: Path) -> None:
    one, two = write_object(repository, "blob", b"one"), write_object(repository, "blob", b"two")
    object_file(repository, one).write_bytes(object_file(repository, two).read_bytes())
    with objects_of(repository) as objects:
        for read in (lambda: objects.read_blob(one, 9), lambda: objects.copy_blob(one, io.BytesIO())):
            with pytest.raises(UnusableObject, match="do not match its hash"):
                read()
        assert objects.read_blob(two, 3) == b"two"


@pytest.mark.parametrize("packed", [False, True])
def test_no_damage_stops_the_reading_of_what_is_whole(repository: Path, packed: bool) -> None:
    # Every byte of an object's file (or of the pack, after its header) in turn: each read gives the
    # right bytes or an UnusableObject, whether git goes on or ends over it.
    whole = write_object(repository, "blob", b"whole")
    victim = write_object(repository, "blob", b"victim " * 3)
    damaged = object_file(repository, victim)
    if packed:
        pack = git(repository, "pack-objects", "-q", ".git/objects/pack/pack", input=victim.encode() + b"\n")
        damaged.unlink()
        damaged = repository / ".git" / "objects" / "pack" / f"pack-{pack}.pack"
        damaged.chmod(0o644)
    original = damaged.read_bytes()
    outcomes = set()
    for position in range(len(original)):
        damaged.write_bytes(original[:position] + bytes([original[position] ^ 0xFF]) + original[position + 1 :])
        with objects_of(repository) as objects:
            try:
                copy = io.BytesIO()
                objects.copy_blob(victim, copy)
                outcomes.add("whole" if copy.getvalue() == b"victim " * 3 else "wrong")
            except UnusableObject:
                outcomes.add("refused")
            assert objects.read_blob(whole, 5) == b"whole"
    assert "refused" in outcomes and "wrong" not in outcomes


def test_a_git_that_was_killed_is_no_damage(repository: Path) -> None:
    blob = write_object(repository, "blob", b"x")
    with objects_of(repository) as objects:
        objects.read_blob(blob, 1)
        objects._process.send_signal(signal.SIGSTOP)  # so that it takes the request and does not answer
        Timer(0.1, objects._process.kill).start()
        with pytest.raises(BadInput, match="was ended by signal 9"):
            objects.read_blob(blob, 1)


def test_without_git_the_mend_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BadInput, match="git: is not installed"), objects_of():
        pass
