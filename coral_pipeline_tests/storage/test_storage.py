"""What holds wherever the files lie: partitions are replaced as a whole, and nothing of others is touched."""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from coral_pipeline import provenance
from coral_pipeline.errors import BadInput
from coral_pipeline.storage import Storage, archive, open_storage
from coral_pipeline_tests.storage.writing import ASSET, PARTITION, described, put, read, write


def test_what_is_written_is_read_again(storage: Storage) -> None:
    write(storage, {"a": "1", "sub/b": "2"})
    assert read(storage) == {"a": "1", "sub/b": "2"}
    made = storage.provenance(ASSET, PARTITION)
    assert made is not None and set(made.files) == {"a", "sub/b"}
    folder = storage.fetch(ASSET, PARTITION)
    assert provenance.read(folder) == made and not list(provenance.changes(made, folder))


def test_a_new_version_replaces_the_earlier_one_with_all_its_files(storage: Storage) -> None:
    write(storage, {"a": "1", "sub/b": "2"})
    write(storage, {"a": "3"})
    assert read(storage) == {"a": "3"}


BEFORE = {"a": "1", "old": "1", "task/task.yaml": "1", "task/grader/grader.py": "1"}


@pytest.mark.parametrize("damage", ["{", "not sealed"])
def test_what_only_the_earlier_version_had_goes_though_its_provenance_is_damaged(tmp_path: Path, damage: str) -> None:
    storage = open_storage(tmp_path / "output")
    write(storage, {name: text for name, text in BEFORE.items() if name != "old"})
    place = storage.place(ASSET, PARTITION)
    put(place, {"of others": "1", "dropped root/x": "1"})
    file = place / provenance.PROVENANCE_FILE
    file.write_text("{" if damage == "{" else file.read_text().replace('"code": 1', '"code": 2'))
    write(storage, {"a": "2", "task/task.yaml": "2"})
    assert read(storage) == {"a": "2", "task/task.yaml": "2", "of others": "1", "dropped root/x": "1"}
    assert not (place / "task" / "grader").exists()


def test_what_a_killed_writer_left_half_replaced_goes_with_the_next_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for move in itertools.count(1):
        storage = open_storage(tmp_path / f"killed at move {move}")
        write(storage, BEFORE)
        put(storage.place(ASSET, PARTITION), {"of others": "1"})
        killed = 0
        for content in ({"a": "2", "new": "2", "task/new": "2", "copied/x": "2"}, {"a": "3", "newer": "3"}):
            with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
                stop_at_move(patch, move)
                killed += 1
                write(storage, content)
                killed -= 1
        write(storage, {"a": "4", "copied/x": "4"})
        assert read(storage) == {"a": "4", "copied/x": "4", "of others": "1"}
        if not killed:
            break
    assert move > 8


def stop_at_move(patch: pytest.MonkeyPatch, number: int) -> None:
    """As if the process were killed when it moves or removes a file or folder for the ``number``th time."""
    steps = itertools.count(1)

    def stopping(step: Callable[..., object]) -> Callable[..., object]:
        def stopped(*arguments: object, **options: object) -> object:
            if next(steps) == number:
                raise KeyboardInterrupt
            return step(*arguments, **options)

        return stopped

    for name in ("replace", "rename", "unlink"):
        patch.setattr(Path, name, stopping(getattr(Path, name)))


IN_THE_WAY: dict[str, tuple[str, Callable[[Path], object]]] = {
    "a file in a copied folder's place": ("copied", lambda path: path.write_text("")),
    "a link in a copied folder's place": ("copied", lambda path: path.symlink_to("nowhere")),
    "a folder in a file's place": ("new", lambda path: path.mkdir()),
    "a file in a folder's place": ("folder", lambda path: path.write_text("")),
}


@pytest.mark.parametrize("what", IN_THE_WAY)
def test_what_lies_in_the_way_of_a_new_version_is_told_and_the_earlier_one_stays(tmp_path: Path, what: str) -> None:
    storage = open_storage(tmp_path / "output")
    write(storage, {"a": "1"})
    before = storage.provenance(ASSET, PARTITION)
    name, obstruct = IN_THE_WAY[what]
    obstruct(storage.place(ASSET, PARTITION) / name)
    with pytest.raises(BadInput, match=f"run/root/{name}: .*; move it away"):
        write(storage, {"a": "2", "new": "2", "folder/new": "2", "copied/x": "2"})
    assert before is not None and storage.provenance(ASSET, PARTITION) == before
    assert read(storage)["a"] == "1"


def test_a_disk_that_is_full_leaves_the_earlier_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = open_storage(tmp_path / "output")
    write(storage, {"a": "1"})
    for flush in itertools.count(1):
        flushes = itertools.count(1)

        def full(_: int, flush: int = flush, flushes: Iterator[int] = flushes) -> None:
            if next(flushes) == flush:
                raise OSError(errno.ENOSPC, "No space left on device")

        before = storage.provenance(ASSET, PARTITION)
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            try:
                write(storage, {"a": "2"})
                break
            except OSError:
                assert before is not None and storage.provenance(ASSET, PARTITION) == before
                assert read(storage) == {"a": "1"}
    assert flush > 2 and read(storage) == {"a": "2"}


def test_files_that_become_a_copied_folder_do_not_take_it_with_them(storage: Storage) -> None:
    write(storage, {"a": "1", "task/x": "1", "task/old": "1"})
    with storage.writing(ASSET, PARTITION, lambda folder: described(folder, folders={"task": "1"})) as out:
        put(out, {"a": "2", "task/x": "2"})
        provenance.write_checksums(out / "task", out / archive.checksums_of("task"))
    assert read(storage) == {"a": "2", "task/x": "2"}


def test_a_making_that_fails_leaves_the_earlier_one(storage: Storage) -> None:
    write(storage, {"a": "1"})
    with pytest.raises(OSError, match="full"), storage.writing(ASSET, PARTITION, described) as out:
        put(out, {"a": "2"})
        raise OSError("full")
    assert read(storage) == {"a": "1"}


def test_copied_folders_are_replaced_as_a_whole_and_others_stay(storage: Storage) -> None:
    write(storage, {"a": "1", "copied-1/x": "1", "copied-1/deep/y": "1", "copied-2/x": "1"})
    write(storage, {"a": "2", "copied-1/x": "2"})
    found = read(storage)
    assert found["copied-1/x"] == "2" and "copied-1/deep/y" not in found
    made = storage.provenance(ASSET, PARTITION)
    assert made is not None and set(made.folders) == {"copied-1"} and "copied-1/x" not in made.files


def test_links_modes_and_odd_names_of_a_copied_folder_come_back(storage: Storage) -> None:
    with storage.writing(ASSET, PARTITION, described) as out:
        put(out, {"a": "1", "copied/bin/run": "#!/bin/sh\n", "copied/line\nbreak": "x", "copied/ümläut": "y"})
        (out / "copied" / "bin" / "run").chmod(0o755)
        (out / "copied" / "link").symlink_to("bin/run")
        put(out, {})
    folder = storage.fetch(ASSET, PARTITION, "copied") / "copied"
    assert (folder / "link").readlink() == Path("bin/run")
    assert (folder / "bin" / "run").stat().st_mode & 0o111
    assert (folder / "line\nbreak").read_text() == "x" and (folder / "ümläut").read_text() == "y"


def test_what_grew_is_sealed_and_stays_where_it_grows(storage: Storage) -> None:
    place = storage.place(ASSET, PARTITION)
    put(place, {"a": "1", "work/journal": "not for others"})
    storage.seal(ASSET, PARTITION, described, ["a"])
    assert read(storage)["a"] == "1"
    made = storage.provenance(ASSET, PARTITION)
    assert made is not None and set(made.files) == {"a"}
    assert (place / "work" / "journal").exists()


def test_what_is_superseded_is_kept_and_no_longer_there(storage: Storage) -> None:
    for content in ("1", "2"):
        put(storage.place(ASSET, PARTITION), {"a": content, "work/journal": content})
        storage.seal(ASSET, PARTITION, described, ["a"])
        where = storage.supersede(ASSET, PARTITION)
        assert where.endswith(f"superseded/run/root/{content}")
        assert storage.provenance(ASSET, PARTITION) is None
        assert not storage.place(ASSET, PARTITION).exists()
    for content in ("1", "2"):
        kept = read(storage, "superseded", f"{PARTITION}|{content}")
        assert kept["a"] == content
        assert (storage.place("superseded", f"{PARTITION}|{content}") / "work" / "journal").read_text() == content


def test_only_one_process_works_in_a_place(storage: Storage) -> None:
    with (
        storage.alone(ASSET, PARTITION),
        pytest.raises(BadInput, match="another run is at work there"),
        storage.alone(ASSET, PARTITION),
    ):
        pass
    with storage.alone(ASSET, PARTITION), storage.alone(ASSET, "run|other"):
        pass


def test_partitions_that_were_made_are_known(storage: Storage) -> None:
    assert storage.partitions(ASSET) == []
    for partition in ("run|b", "run|a", "other"):
        write(storage, {"a": "1"}, partition=partition)
    write(storage, {"a": "1"}, asset="another")
    assert storage.partitions(ASSET) == ["other", "run|a", "run|b"]


def test_notes_lie_beside_what_is_there_and_nowhere_else(storage: Storage) -> None:
    for text in ("{}", None):
        storage.note(ASSET, PARTITION, "note.json", text)
    assert storage.partitions(ASSET) == []
    write(storage, {"a": "1"})
    storage.note(ASSET, PARTITION, "note.json", "{}")
    write(storage, {"a": "2"})
    storage.note(ASSET, PARTITION, "note.json", None)
    storage.note(ASSET, PARTITION, "note.json", None)
    assert read(storage) == {"a": "2"}


def test_a_file_where_a_partition_belongs_has_no_notes(tmp_path: Path) -> None:
    storage = open_storage(tmp_path / "output")
    storage.place(ASSET, PARTITION).parent.mkdir(parents=True)
    storage.place(ASSET, PARTITION).write_text("in the way")
    for text in ("{}", None):
        storage.note(ASSET, PARTITION, "note.json", text)
    assert storage.place(ASSET, PARTITION).read_text() == "in the way"


def test_a_url_that_nothing_here_knows_is_refused_with_what_to_install_or_write() -> None:
    with pytest.raises(BadInput, match=r"nowhere://bucket: .*give a folder or a URL such as s3://"):
        open_storage("nowhere://bucket")
