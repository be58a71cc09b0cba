"""Copies of the chosen snapshots: complete, independent of the original, and nobody else's folders touched (S12)."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import shutil
import socket
import stat
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from coral_pipeline import tree_copy
from coral_pipeline.errors import BadInput
from coral_pipeline.student_run.copying import copy_roots
from coral_pipeline.tables import SELECTED_ROOTS
from coral_pipeline_tests.student_runs import commit, snapshot_name, write_student_run


def fingerprint(folder: Path) -> dict[str, tuple[Any, ...]]:
    """Everything about a folder that writing to it could change: kinds, permissions, times, contents."""
    found = {}
    for path in [folder, *folder.rglob("*")]:
        status = path.lstat()
        content = hashlib.sha256(path.read_bytes()).hexdigest() if stat.S_ISREG(status.st_mode) else None
        link = path.readlink() if path.is_symlink() else None
        found[str(path.relative_to(folder))] = (status.st_mode, status.st_mtime_ns, status.st_nlink, content, link)
    return found


def roots_table(*indices: int) -> pa.Table:
    return SELECTED_ROOTS.build(
        {
            "root": snapshot_name(index),
            "student_run": "run",
            "global_index": index,
            "agent_id": "agent-1",
            "commit_hash": commit(index),
            "score": index / 2,
            "stage": "middle",
            "selection_reason": "quota",
        }
        for index in indices
    )


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_student_run(tmp_path / "run", [0.5, 1.0, 1.5])


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out" / "selected_roots"


def source(run: Path, index: int) -> Path:
    return run / "all_snapshots" / snapshot_name(index)


def select(run: Path, out: Path, *indices: int) -> list[str]:
    """Copy and then write the table, as the command and the asset do."""
    left_out = copy_roots(run, roots_table(*indices), out)
    SELECTED_ROOTS.write(roots_table(*indices), out)
    return left_out


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_copy_is_the_snapshot_with_its_metadata_extended(run: Path, out: Path) -> None:
    before = fingerprint(run)
    metadata = source(run, 2) / "metadata.json"
    metadata.write_text(
        '{"zeta": [1, {"b": null}], "eval_ok": true, "loss": NaN, "é": "ü\\ud83d", "score": "old", "n": 1}'
    )
    tool = source(run, 2) / "code" / "tool"
    tool.write_bytes(os.urandom(3000))
    tool.chmod(0o751)
    os.utime(tool, ns=(1_000_000_000, 1_234_567_890_123_456_789))
    before = fingerprint(run)

    assert select(run, out, 2) == []

    assert fingerprint(run) == before, "the Student run is never modified"
    copied = json.loads((out / snapshot_name(2) / "metadata.json").read_text())
    assert list(copied) == ["zeta", "eval_ok", "loss", "é", "score", "n", "stage", "selection_reason"]
    assert copied["loss"] != copied["loss"]
    assert (copied["zeta"], copied["é"], copied["n"]) == ([1, {"b": None}], "ü\ud83d", 1)
    assert (copied["score"], copied["stage"], copied["selection_reason"]) == (1.0, "middle", "quota")
    original, copy = fingerprint(source(run, 2)), fingerprint(out / snapshot_name(2))
    for fingerprints in (original, copy):
        del fingerprints["."], fingerprints["metadata.json"]
    assert copy == original, "kinds, permissions, times and contents"
    assert names(out) == {snapshot_name(2), "selected_roots.parquet"}
    assert names(out.parent) == {"selected_roots", "task"}


def test_writing_to_a_copy_leaves_the_original_alone(run: Path, out: Path) -> None:
    before = fingerprint(run)
    select(run, out, 1, 2, 3)
    for path in out.rglob("*"):
        if path.is_file():
            with path.open("r+b") as file:  # in place: a hard link would share this
                file.write(b"written by an agent")
    (out.parent / "task" / "task.yaml").write_text("changed")
    assert fingerprint(run) == before


def test_blocks_are_shared_where_the_file_system_can(run: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def reflink(target: int, request: int, argument: int) -> int:
        assert request == tree_copy.FICLONE
        asked.append(target)
        os.write(target, os.pread(argument, 1 << 20, 0))  # what the kernel does, without the sharing
        return 0

    def no_copy(*_: object, **__: object) -> None:
        raise AssertionError("a shared file needs no copy")

    monkeypatch.setattr(fcntl, "ioctl", reflink)
    monkeypatch.setattr(shutil, "copyfileobj", no_copy)
    select(run, out, 1)
    assert len(asked) == 4, "solve.py, ideas.md, the attempt, metadata.json"
    assert (out / snapshot_name(1) / "code" / "solve.py").read_text() == "print(1)\n"


def test_a_full_disk_is_one_line_and_leaves_no_half_copy(run: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    select(run, out, 1)
    before = fingerprint(out)

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(shutil, "copyfileobj", full)
    with pytest.raises(BadInput, match=f"{snapshot_name(1)}: cannot be copied or replaced .No space left on device."):
        select(run, out, 1, 2)
    del before["."]
    after = fingerprint(out)
    del after["."]
    assert after == before, "the earlier selection is still there, whole"


def test_a_second_selection_replaces_the_first(run: Path, out: Path) -> None:
    select(run, out, 1, 2)
    (out / snapshot_name(2) / "left by an agent").touch()
    select(run, out, 2, 3)
    assert names(out) == {snapshot_name(2), snapshot_name(3), "selected_roots.parquet"}
    assert "left by an agent" not in names(out / snapshot_name(2))


def test_the_same_selection_twice_gives_the_same_bytes(run: Path, out: Path) -> None:
    select(run, out, 1, 3)
    first = {name: value[3:] for name, value in fingerprint(out.parent).items()}
    select(run, out, 1, 3)
    assert {name: value[3:] for name, value in fingerprint(out.parent).items()} == first


def test_folders_that_no_selection_made_stay(run: Path, out: Path) -> None:
    select(run, out, 1)
    mine = out / snapshot_name(3)
    mine.mkdir()
    (out / "notes.txt").write_text("mine")
    (out / "elsewhere").symlink_to(run)
    select(run, out, 2)
    assert names(out) == {snapshot_name(2), snapshot_name(3), "notes.txt", "elsewhere", "selected_roots.parquet"}
    with pytest.raises(BadInput, match="lies where a copied root belongs, but is none"):
        select(run, out, 3)


@pytest.mark.parametrize("place", [snapshot_name(1), "../task/grader", ".copying", "../task/.copying"])
def test_what_a_link_leads_to_is_never_emptied(run: Path, out: Path, tmp_path: Path, place: str) -> None:
    """Someone moved a copy to a larger disk, say, and left a link."""
    (run / "grader").mkdir()
    select(run, out, 1)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "file").touch()
    (out / snapshot_name(1)).rename(elsewhere / "moved")
    (out / "../task/grader").rename(elsewhere / "moved grader")
    (out / place).symlink_to(elsewhere)
    with pytest.raises(BadInput):
        select(run, out, 1)
    assert names(elsewhere) == {"file", "moved", "moved grader"}


def test_a_table_cannot_have_other_folders_removed(run: Path, out: Path) -> None:
    precious = out.parent / "precious"
    precious.mkdir(parents=True)
    evil = roots_table(1).to_pylist()[0]
    SELECTED_ROOTS.write([evil | {"root": "../precious"}, evil | {"root": str(precious)}, evil | {"root": ""}], out)
    select(run, out, 1)
    assert precious.is_dir()


def test_a_copy_whose_table_was_never_written_is_replaced(run: Path, out: Path) -> None:
    """A selection that was interrupted before it wrote its table."""
    copy_roots(run, roots_table(1), out)
    (out / ".copying" / "code").mkdir(parents=True)
    select(run, out, 1)
    assert names(out) == {snapshot_name(1), "selected_roots.parquet"}


def test_a_table_that_cannot_be_read_is_named(run: Path, out: Path) -> None:
    out.mkdir(parents=True)
    (out / "selected_roots.parquet").write_text("not Parquet")
    with pytest.raises(BadInput, match="does not tell which folders beside it are an earlier selection's"):
        select(run, out, 1)


def test_what_would_lead_out_of_a_copy_is_left_out_and_said(run: Path, out: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    snapshot = source(run, 1)
    code = snapshot / "code"
    (code / "notes").symlink_to("../shared/notes")
    (code / "broken").symlink_to("no-such-file")
    (code / "chain").symlink_to("notes/ideas.md")
    (code / "outside").symlink_to("../../../../secret")
    (code / "absolute").symlink_to(secret)
    (code / "own").symlink_to(snapshot / "shared")
    (code / "neighbour").symlink_to(f"../../{snapshot_name(2)}")
    (code / "by_name").symlink_to(f"../../{snapshot_name(1)}/shared")
    (snapshot / "up").symlink_to("..")
    (code / "round").symlink_to("../up/..")
    os.mkfifo(code / "pipe")
    with contextlib.chdir(code), socket.socket(socket.AF_UNIX) as server:  # their names must be short
        server.bind("socket")

    left_out = select(run, out, 1)

    name = snapshot_name(1)
    said = {line.split(": ")[0].removeprefix(f"{name}/") for line in left_out}
    outside = {"code/outside", "code/absolute", "code/own", "code/neighbour", "code/by_name", "up", "code/round"}
    assert said == outside | {"code/pipe", "code/socket"}
    copy = out / name / "code"
    assert names(copy) == {"solve.py", "notes", "broken", "chain"}
    assert (copy / "notes").readlink() == Path("../shared/notes")
    assert (copy / "chain").read_text() == "none yet\n"


def test_a_linked_snapshot_is_copied_as_a_folder(run: Path, out: Path) -> None:
    (run / "stored").mkdir()
    source(run, 1).rename(run / "stored" / "first")
    source(run, 1).symlink_to("../stored/first")
    select(run, out, 1)
    assert not (out / snapshot_name(1)).is_symlink()
    assert (out / snapshot_name(1) / "code" / "solve.py").is_file()


def test_linked_metadata_is_written_afresh(run: Path, out: Path) -> None:
    metadata = source(run, 1) / "metadata.json"
    metadata.rename(run / "first.json")
    metadata.symlink_to("../../first.json")
    before = (run / "first.json").read_bytes()
    select(run, out, 1)
    copied = out / snapshot_name(1) / "metadata.json"
    assert not copied.is_symlink() and json.loads(copied.read_text())["stage"] == "middle"
    assert (run / "first.json").read_bytes() == before


def test_read_only_folders_are_copied_and_removed(run: Path, out: Path) -> None:
    locked = source(run, 1) / "shared" / "locked"
    locked.mkdir()
    (locked / "file").write_text("x")
    (locked / "file").chmod(0o444)
    locked.chmod(0o555)
    select(run, out, 1)
    copied = out / snapshot_name(1) / "shared" / "locked"
    assert stat.S_IMODE(copied.stat().st_mode) == 0o755
    assert stat.S_IMODE((copied / "file").stat().st_mode) == 0o444
    locked.chmod(0o755)
    select(run, out, 2)
    assert names(out) == {snapshot_name(2), "selected_roots.parquet"}


def test_folders_deeper_than_python_recurses_are_copied_and_removed(run: Path, out: Path) -> None:
    deep = source(run, 1) / "code" / "/".join("d" * 1200)
    with contextlib.chdir(source(run, 1) / "code"):
        for _ in range(1200):
            Path("d").mkdir()
            os.chdir("d")
    (deep / "bottom").touch()
    try:
        select(run, out, 1)
        assert (out / snapshot_name(1) / "code" / deep.relative_to(source(run, 1) / "code") / "bottom").is_file()
        select(run, out, 2)
        assert names(out) == {snapshot_name(2), "selected_roots.parquet"}
    finally:
        tree_copy.remove_tree(source(run, 1))


@pytest.mark.parametrize("place", ["", "all_snapshots", "all_snapshots/out", "out", "../run/out"])
def test_output_in_the_student_run_is_refused(run: Path, place: str) -> None:
    before = fingerprint(run)
    with pytest.raises(BadInput, match="overlaps the Student run"):
        copy_roots(run, roots_table(1), run / place)
    assert fingerprint(run) == before


def test_output_over_the_student_run_is_refused(run: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(BadInput, match="overlaps the Student run"):
        copy_roots(run, roots_table(1), tmp_path / "link")
    with pytest.raises(BadInput, match="overlaps the Student run"):
        copy_roots(run, roots_table(1), tmp_path / "out", task_folder=run)


def test_a_snapshot_that_is_gone_is_named(run: Path, out: Path) -> None:
    shutil.rmtree(source(run, 2))
    with pytest.raises(BadInput) as error:
        select(run, out, 1, 2)
    assert str(error.value).startswith(f"{source(run, 2)}: cannot be copied: it is missing")


def test_metadata_too_deep_to_write_is_named(run: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def too_deep(*_: object, **__: object) -> str:
        raise RecursionError

    monkeypatch.setattr(json, "dumps", too_deep)
    with pytest.raises(BadInput, match="nested too deeply to write"):
        select(run, out, 1)
    assert names(out) == set()


def test_the_task_its_grader_and_private_data_come_along(run: Path, out: Path) -> None:
    (run / "grader").mkdir()
    (run / "grader" / "grader.py").write_text("class Grader: ...\n")
    (run / "grader" / "answers").symlink_to("/etc")
    (run / "private").mkdir()
    (run / "private" / "cases.json").write_text("[1]")
    assert select(run, out, 1) == ["grader/answers: is a link that leads outside (/etc)"]
    task = out.parent / "task"
    assert names(task) == {"task.yaml", "grader", "private"}
    assert (task / "private" / "cases.json").read_text() == "[1]"
    assert (task / "task.yaml").read_bytes() == (run / "task.yaml").read_bytes()
    assert (task / "grader" / "grader.py").read_text() == "class Grader: ...\n"


def test_the_task_can_go_elsewhere(run: Path, out: Path, tmp_path: Path) -> None:
    copy_roots(run, roots_table(1), out, task_folder=tmp_path / "tasks" / "run")
    assert names(tmp_path / "tasks" / "run") == {"task.yaml"}
    assert names(out.parent) == {"selected_roots"}


def test_another_tasks_grader_is_neither_kept_nor_removed(run: Path, out: Path) -> None:
    select(run, out, 1)
    grader = out.parent / "task" / "grader"
    grader.mkdir()
    select(run, out, 1)
    assert grader.is_dir(), "the same task: a grader put there by hand stays"
    (run / "task.yaml").write_text("grader: {direction: minimize}\n")
    with pytest.raises(BadInput, match="is another task's"):
        select(run, out, 1)
    assert grader.is_dir()


def test_progress_sees_every_root(run: Path, out: Path) -> None:
    seen: list[Any] = []

    def progress(rows: Any) -> Any:
        for row in rows:
            seen.append(row["root"])
            yield row

    copy_roots(run, roots_table(1, 3), out, progress=progress)
    assert seen == [snapshot_name(1), snapshot_name(3)]
