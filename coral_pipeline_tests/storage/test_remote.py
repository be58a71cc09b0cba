"""An object store: what is fetched is what was written, or the difference is told."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest
from botocore.exceptions import EndpointConnectionError, NoCredentialsError

from coral_pipeline import provenance
from coral_pipeline.errors import BadInput, is_outage
from coral_pipeline.provenance import PROVENANCE_FILE, Input
from coral_pipeline.storage import SCRATCH, Storage, output_folder
from coral_pipeline.storage.store import ObjectStore
from coral_pipeline_tests.storage.writing import ASSET, PARTITION, described, put, read, write

DAY = 86_400


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """The folder of the partition on the store."""
    return tmp_path / "store" / ASSET / "run" / "root"


def versions(store: Path) -> list[Path]:
    """Folders that hold objects: on a store there are no others."""
    return sorted(path for path in store.iterdir() if path.name.startswith("v-") and [*provenance.files_below(path)])


def forget(scratch: Path) -> None:
    """As another machine, which has fetched nothing yet."""
    scratch.rename(scratch.with_name(f"scratch-{time.monotonic_ns()}"))


def test_one_version_is_kept_on_the_store(remote: Storage, store: Path) -> None:
    write(remote, {"a": "1"})
    write(remote, {"a": "2"})
    assert len(versions(store)) == 1
    assert [path.name for path in store.iterdir() if path.is_file()] == [PROVENANCE_FILE]


def test_a_changed_object_is_found_and_named(remote: Storage, store: Path, scratch: Path) -> None:
    write(remote, {"a": "1", "b": "1"})
    (versions(store)[0] / "b").write_text("2")
    forget(scratch)
    with pytest.raises(BadInput, match=r"ranked_paths/run/root/v-[0-9a-f]+: b: has changed"):
        remote.fetch(ASSET, PARTITION)
    (versions(store)[0] / "b").unlink()
    with pytest.raises(BadInput, match="b: is missing; make the partition again"):
        remote.fetch(ASSET, PARTITION)


def test_a_changed_file_in_a_copied_folder_is_found_and_named(remote: Storage, store: Path, scratch: Path) -> None:
    write(remote, {"a": "1", "copied/x": "0123456789"})
    (packed,) = (store / "copied").iterdir()
    packed.write_bytes(packed.read_bytes().replace(b"0123456789", b"9876543210"))
    forget(scratch)
    with pytest.raises(BadInput, match=r"tar: x: has changed .*; make the partition again"):
        remote.fetch(ASSET, PARTITION, "copied")
    packed.unlink()
    with pytest.raises(BadInput, match="tar: is missing"):
        remote.fetch(ASSET, PARTITION, "copied")
    with pytest.raises(BadInput, match="root/other: is not there"):
        remote.fetch(ASSET, PARTITION, "other")
    write(remote, {"a": "1", "copied/x": "0123456789"})
    forget(scratch)
    assert read(remote) == {"a": "1", "copied/x": "0123456789"}


def test_copied_folders_are_kept_once_each_and_those_that_have_gone_stay(remote: Storage, store: Path) -> None:
    write(remote, {"a": "1", "copied-1/x": "1", "copied-2/x": "1"})
    (gone,) = (store / "copied-2").iterdir()
    write(remote, {"a": "2", "copied-1/x": "1"})
    write(remote, {"a": "3", "copied-1/x": "1"})
    assert len(list((store / "copied-1").iterdir())) == 1
    assert list((store / "copied-2").iterdir()) == [gone]


def test_a_copied_folder_that_is_replaced_while_it_is_fetched_gives_way_to_the_new_one(
    remote: Storage, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(remote, {"a": "1", "copied/x": "1"})
    forget(scratch)
    download, replaced = ObjectStore.download, []

    def interrupted(store: ObjectStore, name: str, file: Path) -> None:
        if name.endswith(".tar") and not replaced:
            replaced.append(name)
            write(remote, {"a": "2", "copied/x": "2"})
        download(store, name, file)

    monkeypatch.setattr(ObjectStore, "download", interrupted)
    folder = remote.fetch(ASSET, PARTITION, "copied")
    assert replaced and (folder / "a").read_text() == (folder / "copied" / "x").read_text() == "2"


def test_what_was_changed_in_the_cache_is_fetched_again(url: str, remote: Storage) -> None:
    write(remote, {"a": "1", "copied/x": "1"})
    folder = remote.fetch(ASSET, PARTITION, "copied")
    (folder / "a").write_text("2")
    (folder / "copied" / "x").write_text("2")
    assert read(another_process(url, folder)) == {"a": "1", "copied/x": "1"}


def another_process(url: str, folder: Path) -> Storage:
    """The same storage as a process that has just started sees it."""
    from coral_pipeline.storage.remote import RemoteStorage

    scratch = next(above.parent for above in folder.parents if above.name == "fetched")
    return RemoteStorage(ObjectStore(url), scratch)


def test_damaged_provenance_is_told_and_replaced(remote: Storage, store: Path) -> None:
    write(remote, {"a": "1"})
    (store / PROVENANCE_FILE).write_text("{")
    with pytest.raises(BadInput, match=r"root/provenance\.json: is damaged"):
        remote.fetch(ASSET, PARTITION)
    write(remote, {"a": "2"})
    assert read(remote) == {"a": "2"}


def test_nothing_to_fetch_is_told(remote: Storage) -> None:
    with pytest.raises(BadInput, match="store/ranked_paths/run/root: there is nothing yet; make it first"):
        remote.fetch(ASSET, PARTITION)


def test_a_version_that_is_replaced_while_it_is_fetched_gives_way_to_the_new_one(
    remote: Storage, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(remote, {"a": "1", "b": "1"})
    forget(scratch)
    download, replaced = ObjectStore.download, []

    def interrupted(store: ObjectStore, name: str, file: Path) -> None:
        download(store, name, file)
        if not replaced:
            replaced.append(name)
            write(remote, {"a": "2", "b": "2"})

    monkeypatch.setattr(ObjectStore, "download", interrupted)
    folder = remote.fetch(ASSET, PARTITION)
    assert replaced and (folder / "a").read_text() == (folder / "b").read_text() == "2"


def test_one_that_is_replaced_again_and_again_is_given_up(
    remote: Storage, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(remote, {"a": "0", "b": "0"})
    forget(scratch)
    download = ObjectStore.download

    def interrupted(store: ObjectStore, name: str, file: Path) -> None:
        if name.endswith("/b"):
            write(remote, {"a": str(time.monotonic_ns()), "b": "0"})
        download(store, name, file)

    monkeypatch.setattr(ObjectStore, "download", interrupted)
    with pytest.raises(BadInput, match="changed while it was read; run it again"):
        another_process(remote.address("", "").split("//run")[0].rstrip("/"), scratch / "x" / "fetched" / "y").fetch(
            ASSET, PARTITION
        )


def test_what_killed_uploads_left_is_removed_a_day_later(remote: Storage, store: Path) -> None:
    write(remote, {"a": "1", "copied/x": "1"})
    for name, age in (("v-0123456789abcdef", 2 * DAY), ("v-fedcba9876543210", 60)):
        put(store, {f"{name}/a": "half", f"copied/{name}.tar": "half"})
        for left in (store / name / "a", store / "copied" / f"{name}.tar"):
            os.utime(left, (time.time() - age,) * 2)
    write(remote, {"a": "2", "copied/x": "2"})
    for names in ([path.name for path in versions(store)], [path.stem for path in (store / "copied").iterdir()]):
        assert "v-0123456789abcdef" not in names and "v-fedcba9876543210" in names and len(names) == 2
    assert read(remote) == {"a": "2", "copied/x": "2"}


def test_versions_that_nobody_fetches_any_more_leave_the_cache(remote: Storage, scratch: Path) -> None:
    write(remote, {"a": "1"})
    old = remote.fetch(ASSET, PARTITION)
    os.utime(old, (time.time() - 31 * DAY,) * 2)
    write(remote, {"a": "2"})
    recent = remote.fetch(ASSET, PARTITION)
    write(remote, {"a": "3"})
    assert remote.fetch(ASSET, PARTITION).exists() and recent.exists() and not old.exists()


@pytest.mark.parametrize(
    "theirs", [{"settings": {"search": {"max_depth": 3}}}, {}], ids=["of other making", "of the same making"]
)
def test_another_machines_tree_is_moved_aside_not_lost(remote: Storage, theirs: dict[str, object]) -> None:
    place = remote.place(ASSET, PARTITION)
    place.mkdir(parents=True)
    (place / "a").write_text("mine")
    with remote.writing(ASSET, PARTITION, lambda folder: described(folder, **theirs)) as out:
        (out / "a").write_text("theirs")
    remote.seal(ASSET, PARTITION, described, ["a"])
    remote.seal(ASSET, PARTITION, described, ["a"])
    assert read(remote) == {"a": "mine"}
    assert read(remote, "superseded", f"{PARTITION}|1") == {"a": "theirs"}
    assert remote.partitions("superseded") == [f"{PARTITION}|1"], "the same tree, published again, is no other"


@pytest.mark.parametrize("how", ["sealed over", "superseded"])
@pytest.mark.parametrize("lost", ["a", "b"])
def test_a_tree_that_lost_a_file_is_moved_aside_with_what_is_left(
    remote: Storage, store: Path, how: str, lost: str
) -> None:
    with remote.writing(ASSET, PARTITION, lambda folder: described(folder, code=2)) as out:
        put(out, {"a": "theirs", "b": "theirs"})
    (versions(store)[0] / lost).unlink()
    if how == "superseded":
        remote.supersede(ASSET, PARTITION)
        assert remote.provenance(ASSET, PARTITION) is None
    put(remote.place(ASSET, PARTITION), {"a": "mine"})
    remote.seal(ASSET, PARTITION, described, ["a"])
    assert read(remote) == {"a": "mine"}
    aside = store.parents[2] / "superseded" / "run" / "root" / "1"
    (left,) = (path for path in aside.rglob("*") if path.is_file() and path.name != PROVENANCE_FILE)
    assert left.name != lost and left.read_text() == "theirs"


def test_a_store_that_fails_is_named_with_its_object(remote: Storage, store: Path) -> None:
    store.parent.mkdir(parents=True)
    store.write_text("a file where a folder belongs")
    with pytest.raises(OSError) as raised:
        write(remote, {"a": "1"})
    assert "ranked_paths/run/root" in str(raised.value.filename)


@pytest.mark.parametrize(
    ("error", "outage"),
    [
        (PermissionError("Access Denied"), False),  # as s3fs has it, without a number
        (NoCredentialsError(), False),
        (EndpointConnectionError(endpoint_url="http://nowhere"), True),
        (TimeoutError("timed out"), True),
        (OSError(errno.EBUSY, "Please reduce your request rate."), True),
    ],
)
def test_a_store_that_refuses_is_told_from_one_that_is_out(url: str, error: Exception, outage: bool) -> None:
    store = ObjectStore(url)

    def fail(_: str) -> bytes:
        raise error

    store._fs.cat_file = fail
    with pytest.raises(OSError, match="store/a") as raised:
        store.read("a")
    assert is_outage(raised.value) == outage


def test_the_output_of_a_student_run_can_be_read_as_a_folder(remote: Storage, url: str) -> None:
    for asset, partition in (("selected_roots", "run"), ("filtered_snapshots", "run"), ("filtered_snapshots", "other")):
        write(remote, {"a": asset, "copied-1/x": "1"}, asset, partition)
    for root in ("copied-1", "no-longer-selected"):
        write(remote, {"a": root}, partition=f"run|{root}")
    with output_folder(url, "run") as folder:
        for made in ("selected_roots/run/a", "filtered_snapshots/run/a", "ranked_paths/run/copied-1/a"):
            assert (folder / made).is_file()
        assert not (folder / "filtered_snapshots" / "other").exists()
        assert [path.name for path in (folder / "ranked_paths" / "run").iterdir()] == ["copied-1"]
        assert (folder / "selected_roots" / "run" / "copied-1" / "x").read_text() == "1"
    assert not folder.exists()
    with (
        pytest.raises(BadInput, match="holds nothing that was made from the Student run nobody"),
        output_folder(url, "nobody"),
    ):
        pass


def test_roots_that_a_dataset_was_made_from_are_mirrored_though_they_are_no_longer_selected(
    remote: Storage, url: str
) -> None:
    dropped, unused = "copied-2", "copied-3"
    write(remote, {"a": "1", "copied-1/x": "1", f"{dropped}/x": "1", f"{unused}/x": "1"}, "selected_roots", "run")
    write(remote, {"a": "2", "copied-1/x": "2"}, "selected_roots", "run")
    for root in ("copied-1", dropped, unused):
        write(remote, {"a": root}, partition=f"run|{root}")
    for asset in ("selected_roots", "ranked_paths"):
        for root in (dropped, unused):
            remote.note(asset, f"run|{root}", "superseded.json", "{}")
    inputs = (Input(asset="ranked_paths", partition=f"run|{dropped}", version="1"),)
    with remote.writing("sft_dataset", "run", lambda folder: described(folder, inputs=inputs)) as out:
        put(out, {"a": "1"})
    with output_folder(url, "run") as folder:
        assert {path.name for path in (folder / "ranked_paths" / "run").iterdir()} == {"copied-1", dropped}
        assert (folder / "ranked_paths" / "run" / dropped / "a").read_text() == dropped
        assert (folder / "selected_roots" / "run" / "a").read_text() == "2"
        for root, text in (("copied-1", "2"), (dropped, "1")):
            assert (folder / "selected_roots" / "run" / root / "x").read_text() == text
        assert not (folder / "selected_roots" / "run" / unused).exists()
        for asset in ("selected_roots", "ranked_paths"):
            marks = [path.parent.name for path in (folder / asset).rglob("superseded.json")]
            assert marks == [dropped]


@pytest.mark.parametrize("what", ["a", "b", "copied/x", PROVENANCE_FILE])
def test_a_damaged_partition_is_mirrored_as_far_as_it_is_there(
    remote: Storage, url: str, store: Path, what: str
) -> None:
    whole = {"a": "1", "b": "1", "copied/x": "0123456789"}
    write(remote, whole)
    write(remote, {"a": "other"}, partition="run|other")
    place = versions(store)[0]
    damaged, content = {
        "a": (place / "a", b"2"),
        "b": (place / "b", None),
        "copied/x": (store / "copied" / f"{place.name}.tar", None),
        PROVENANCE_FILE: (store / PROVENANCE_FILE, b"{"),
    }[what]
    damaged.unlink() if content is None else damaged.write_bytes(content)
    for fetched in Path(os.environ[SCRATCH]).iterdir():
        forget(fetched)
    with output_folder(url, "run") as folder:
        assert (folder / "ranked_paths" / "run" / "other" / "a").read_text() == "other"
        mirrored = folder / "ranked_paths" / "run" / "root"
        if what == PROVENANCE_FILE:
            assert (mirrored / what).read_bytes() == content
            return
        made = provenance.read(mirrored)
        assert made is not None
        found = {name for name in whole if (mirrored / name).exists()}
        assert found == whole.keys() - ({what} if content is None else set())
        changed = [line.split(":")[0] for line in provenance.changes(made, mirrored)]
        assert changed == ([what] if what in made.files else [])


def test_an_output_that_is_a_folder_is_read_where_it_is(tmp_path: Path) -> None:
    with output_folder(tmp_path, "run") as folder:
        assert folder == tmp_path
