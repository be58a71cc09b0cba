"""Whatever lies under all_snapshots becomes a row with a reason; nothing outside the Student run is read."""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import resource
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from coral_pipeline.errors import BadInput
from coral_pipeline.student_run import guarded
from coral_pipeline.student_run.guarded import JSON_LIMIT
from coral_pipeline.student_run.reading import StudentRunTables, read_student_run
from coral_pipeline_tests.student_runs import commit, snapshot_name, write_snapshot, write_student_run

BAD = snapshot_name(2)
"""The hostile entry; snapshots 1 and 3 are sound."""
OUTSIDE = "is a link that leads outside the Student run"
METADATA = {"commit_hash": commit(2), "agent_id": "agent-1", "eval_count": 2, "eval_ok": True}
RECORD = {"commit_hash": commit(2), "score": 2.0, "status": "improved", "feedback": "fine"}


@pytest.fixture
def snapshots(tmp_path: Path) -> Path:
    return write_student_run(tmp_path / "run", [1.0, 2.0, 3.0]) / "all_snapshots"


def read(snapshots: Path) -> StudentRunTables:
    run = read_student_run(snapshots.parent)
    assert run.filtered.num_rows + run.rejected.num_rows == len(list(snapshots.iterdir()))
    kept = run.filtered["snapshot"].to_pylist()
    assert snapshot_name(1) in kept and snapshot_name(3) in kept
    return run


def the_rejected(snapshots: Path) -> dict[str, Any]:
    (row,) = read(snapshots).rejected.to_pylist()
    assert "\n" not in row["detail"]
    return dict(row)


def the_bad_row(snapshots: Path) -> dict[str, Any]:
    (row,) = [row for row in read(snapshots).filtered.to_pylist() if row["snapshot"] == BAD]
    return dict(row)


def sparse(path: Path, size: int) -> None:
    with path.open("wb") as file:
        file.truncate(size)


def listen(path: Path) -> None:
    # Unix sockets have short names: bind it from within its folder.
    with contextlib.chdir(path.parent), socket.socket(socket.AF_UNIX) as server:
        server.bind(path.name)


@pytest.mark.parametrize(
    "name",
    [".DS_Store", "notes.txt", "evil\nname", "eval-000004-agent-1", f"eval-4-a\nb-{'a' * 12}", f"eval-x-a-{'a' * 12}"],
)
@pytest.mark.parametrize("make", [Path.touch, Path.mkdir, os.mkfifo], ids=["file", "folder", "pipe"])
def test_names_that_are_no_snapshots(snapshots: Path, name: str, make: Callable[[Path], None]) -> None:
    make(snapshots / name)
    row = the_rejected(snapshots)
    assert (row["snapshot"], row["reason"]) == (name, "name")


def test_a_name_that_is_not_unicode(snapshots: Path) -> None:
    try:
        (snapshots / os.fsdecode(b"eval-4-caf\xe9-" + b"a" * 12)).mkdir()
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    row = the_rejected(snapshots)
    assert (row["snapshot"], row["reason"]) == (f"eval-4-caf\\udce9-{'a' * 12}", "name")


def test_a_name_of_any_alphabet_is_a_name(snapshots: Path) -> None:
    write_snapshot(snapshots / f"eval-4-агент-😀-{'a' * 12}", {"eval_ok": True})
    assert read(snapshots).filtered["agent_id"].to_pylist()[-1] == "агент-😀"


@pytest.mark.parametrize(
    ("make", "detail"),
    [
        (Path.touch, "the snapshot is not a folder"),
        (os.mkfifo, "the snapshot is not a folder"),
        (lambda path: path.symlink_to(path.name), "the snapshot is not a folder"),
        (lambda path: path.symlink_to("nowhere"), "the snapshot is missing"),
        (lambda path: path.symlink_to(path.parents[2] / "outside"), f"the snapshot {OUTSIDE}"),
        (lambda path: path.symlink_to("../../outside"), f"the snapshot {OUTSIDE}"),
        (lambda path: path.symlink_to("/"), f"the snapshot {OUTSIDE}"),
    ],
)
def test_something_else_where_a_folder_should_be(snapshots: Path, make: Callable[[Path], None], detail: str) -> None:
    write_snapshot(snapshots.parents[1] / "outside", METADATA, [RECORD])
    (snapshots / BAD).rename(snapshots.parents[1] / "was")
    make(snapshots / BAD)
    assert the_rejected(snapshots) == {"snapshot": BAD, "reason": "folder", "detail": detail}


def test_a_link_that_stays_inside_the_run_is_followed(snapshots: Path) -> None:
    (snapshots.parent / "stored").mkdir()
    (snapshots / BAD).rename(snapshots.parent / "stored" / "second")
    (snapshots / BAD).symlink_to("../stored/second")
    assert the_bad_row(snapshots)["score"] == 2.0


DEEP = b'{"eval_ok": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"


@pytest.mark.parametrize(
    ("content", "detail"),
    [
        (b"", "metadata.json is not JSON"),
        (b"{", "metadata.json is not JSON"),
        (b"{'eval_ok': True}", "metadata.json is not JSON"),
        (b'{"eval_ok": true} trailing', "metadata.json is not JSON"),
        (b'{"eval_ok": "caf\xe9"}', "metadata.json is not UTF-8"),
        (json.dumps(METADATA).encode("utf-16"), "metadata.json is not UTF-8"),
        (b'["eval_ok"]', "metadata.json is not a JSON object"),
        (b'"eval_ok"', "metadata.json is not a JSON object"),
        (b"null", "metadata.json is not a JSON object"),
        (b"NaN", "metadata.json is not a JSON object"),
        (DEEP, "metadata.json is JSON nested too deeply"),
        (b'{"eval_ok": ' + b"1" * 5000 + b"}", "metadata.json is JSON with a number too long to read"),
    ],
)
def test_malformed_metadata(snapshots: Path, content: bytes, detail: str) -> None:
    (snapshots / BAD / "metadata.json").write_bytes(content)
    row = the_rejected(snapshots)
    assert (row["snapshot"], row["reason"]) == (BAD, "metadata")
    assert row["detail"].startswith(detail)


@pytest.mark.parametrize(
    ("make", "detail"),
    [
        (lambda path: None, "metadata.json is missing"),
        (Path.mkdir, "metadata.json is not a regular file"),
        (os.mkfifo, "metadata.json is not a regular file"),
        (listen, "metadata.json cannot be read (No such device or address)"),
        (lambda path: path.symlink_to("/dev/zero"), f"metadata.json {OUTSIDE}"),
        (lambda path: path.symlink_to(path.name), "metadata.json is a link that leads nowhere"),
        (lambda path: path.symlink_to("code"), "metadata.json is not a regular file"),
        (lambda path: sparse(path, JSON_LIMIT + 1), f"metadata.json is larger than {JSON_LIMIT} bytes"),
        (lambda path: sparse(path, 1000), "metadata.json is not JSON"),
    ],
)
def test_something_else_where_metadata_should_be(snapshots: Path, make: Callable[[Path], None], detail: str) -> None:
    (snapshots / BAD / "metadata.json").unlink()
    make(snapshots / BAD / "metadata.json")
    row = the_rejected(snapshots)
    assert (row["snapshot"], row["reason"]) == (BAD, "metadata")
    assert row["detail"].startswith(detail)


@pytest.mark.parametrize(
    "content",
    [
        b"\xef\xbb\xbf" + json.dumps(METADATA).encode(),
        json.dumps(METADATA | {"loss": float("nan"), "gain": float("inf")}).encode(),
        json.dumps(METADATA).replace("{", '{"eval_ok": 3, ', 1).encode(),
        json.dumps(METADATA | {"eval_count": 2**70, "agent_id": "\ud800"}).encode(),
        json.dumps(METADATA | {"more": {"a": [0] * 1000}}).encode(),
    ],
    ids=["byte order mark", "NaN", "key twice", "not for a table", "more"],
)
def test_unusual_metadata_that_can_be_read_is_kept(snapshots: Path, content: bytes) -> None:
    (snapshots / BAD / "metadata.json").write_bytes(content)
    row = the_bad_row(snapshots)
    assert (row["eval_ok"], row["score"]) == (True, 2.0)


@pytest.mark.parametrize("linked", ["metadata.json", "shared", "shared/attempts", f"shared/attempts/{commit(2)}.json"])
@pytest.mark.parametrize("relative", [True, False])
def test_nothing_outside_the_run_is_read(snapshots: Path, linked: str, relative: bool) -> None:
    outside = write_snapshot(snapshots.parents[1] / "outside", METADATA, [RECORD | {"score": 999.0}])
    place = snapshots / BAD / linked
    place.rename(snapshots.parents[1] / "was")
    target = os.path.relpath(outside / linked, place.parent) if relative else outside / linked
    place.symlink_to(target)
    run = read(snapshots)
    if linked == "metadata.json":
        assert run.rejected["snapshot"].to_pylist() == [BAD]
    else:
        assert the_bad_row(snapshots)["score"] is None
        assert run.warnings == (f"{BAD}: its attempt record {OUTSIDE}",)


def test_a_commit_that_is_a_path_leads_nowhere(snapshots: Path) -> None:
    outside = snapshots.parents[1] / "outside.json"
    outside.write_text(json.dumps(RECORD | {"score": 999.0}))
    path = os.path.relpath(outside, snapshots / BAD / "shared" / "attempts").removesuffix(".json")
    for commit_hash in (path, str(outside.with_suffix(""))):
        (snapshots / BAD / "metadata.json").write_text(json.dumps(METADATA | {"commit_hash": commit_hash}))
        assert the_bad_row(snapshots)["score"] is None


def test_a_run_whose_parts_lie_elsewhere_is_refused(tmp_path: Path) -> None:
    sound = write_student_run(tmp_path / "sound", [1.0])
    for part in ("task.yaml", "all_snapshots"):
        run = write_student_run(tmp_path / f"without {part}", [1.0])
        (run / part).rename(tmp_path / f"was {part}")
        (run / part).symlink_to(sound / part)
        with pytest.raises(BadInput, match=OUTSIDE):
            read_student_run(run)


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, lambda path: sparse(path, JSON_LIMIT + 1)])
def test_an_attempt_that_is_no_file_is_a_missing_score_and_a_warning(
    snapshots: Path, make: Callable[[Path], None]
) -> None:
    record = snapshots / BAD / "shared" / "attempts" / f"{commit(2)}.json"
    record.unlink()
    make(record)
    row = the_bad_row(snapshots)
    assert (row["score"], row["eval_ok"], row["eligible"]) == (None, True, False)
    assert len(read(snapshots).warnings) == 1


@pytest.mark.parametrize("folder", ["shared", "shared/attempts"])
def test_a_file_where_the_attempts_should_be(snapshots: Path, folder: str) -> None:
    (snapshots / BAD / folder).rename(snapshots.parents[1] / "was")
    (snapshots / BAD / folder).touch()
    assert the_bad_row(snapshots)["score"] is None
    assert read(snapshots).warnings == (f"{BAD}: its attempt record is not a folder",)


def test_text_that_is_no_unicode_is_escaped(snapshots: Path) -> None:
    record = snapshots / BAD / "shared" / "attempts" / f"{commit(2)}.json"
    record.write_text(json.dumps(RECORD | {"feedback": "half \ud83d of a pair", "status": "\0"}))
    row = the_bad_row(snapshots)
    assert (row["feedback"], row["status"]) == ("half \\ud83d of a pair", "\0")


@contextlib.contextmanager
def powerless() -> Iterator[None]:
    """Without root's power to open everything."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize(
    ("path", "reason"), [(".", "folder"), ("metadata.json", "metadata"), ("shared", None), ("shared/attempts", None)]
)
def test_what_may_not_be_opened(path: str, reason: str | None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        snapshots = write_student_run(Path(folder, "run"), [1.0, 2.0, 3.0]) / "all_snapshots"
        (snapshots / BAD / path).chmod(0)
        with powerless():
            run = read(snapshots)
        (snapshots / BAD / path).chmod(0o755)
    if reason is None:
        assert run.warnings == (f"{BAD}: its attempt record cannot be read (Permission denied)",)
    else:
        assert run.rejected["reason"].to_pylist() == [reason]
        assert "Permission denied" in run.rejected["detail"][0].as_py()


def test_a_folder_of_snapshots_that_may_not_be_listed() -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        run = write_student_run(Path(folder, "run"), [1.0])
        (run / "all_snapshots").chmod(0)
        with powerless(), pytest.raises(BadInput, match="Permission denied"):
            read_student_run(run)
        (run / "all_snapshots").chmod(0o755)


@contextlib.contextmanager
def descriptors_left(count: int) -> Iterator[None]:
    """This process can open so many files more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    spare = os.dup(0)
    os.close(spare)  # the lowest that is free, and so all below it are taken
    resource.setrlimit(resource.RLIMIT_NOFILE, (spare + count, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_machine_out_of_descriptors_says_nothing_about_the_run(snapshots: Path) -> None:
    whole = read(snapshots)
    for count in itertools.count():
        try:
            with descriptors_left(count):
                run = read_student_run(snapshots.parent)
        except OSError as error:
            assert error.errno == errno.EMFILE and str(error.filename).startswith(str(snapshots.parent))
        else:
            break
    assert run == whole and count > 3, "the run, all_snapshots, a snapshot and a file are open at once"


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.ENFILE, errno.ENOMEM, errno.ETIMEDOUT])
@pytest.mark.parametrize("file", ["metadata.json", f"shared/attempts/{commit(2)}.json"])
def test_a_file_that_cannot_be_read_just_now_is_no_bad_file(
    snapshots: Path, file: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = (snapshots / BAD / file).stat().st_ino

    def read(descriptor: int, size: int) -> bytes:
        if os.fstat(descriptor).st_ino == failing:
            raise OSError(number, os.strerror(number))
        return os.pread(descriptor, size, 0)

    monkeypatch.setattr(guarded.os, "read", read)
    with pytest.raises(OSError, match=os.strerror(number)) as raised:
        read_student_run(snapshots.parent)
    assert raised.value.filename == str(snapshots / BAD / file)
