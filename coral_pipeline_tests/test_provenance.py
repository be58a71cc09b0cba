"""The record beside the files of a partition: complete, tamper-evident, readable by others."""

from __future__ import annotations

import datetime as dt
import os
import subprocess
from pathlib import Path

import pytest

from coral_pipeline import provenance
from coral_pipeline.errors import BadInput
from coral_pipeline.provenance import PROVENANCE_FILE, Input, Provenance

NAMES = ("solve.py", "two  spaces", "back\\slash", "new\nline", "back\\nslash n", os.fsdecode(b"no-\xff-utf8"))


def made(**fields: object) -> Provenance:
    values = {
        "asset": "ranked_paths",
        "partition": "run|root",
        "code": 1,
        "settings": {"paths": {"top_k": 6, "weight": 0.1}},
        "inputs": (Input(asset="explored_trees", partition="run|root", version="abc"),),
        "made_at": dt.datetime(2026, 1, 2, tzinfo=dt.UTC),
        "software": provenance.software(),
    }
    return Provenance.model_validate(values | fields)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in NAMES:
        file = tmp_path / "root" / "code" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(os.fsencode(f"content of {name}"))
    (tmp_path / "root" / "link").symlink_to("code")
    return tmp_path / "root"


def test_it_comes_back_as_it_was_written(tmp_path: Path) -> None:
    provenance.write(made(), tmp_path)
    assert provenance.read(tmp_path) == made().sealed()


def test_where_there_is_none_there_is_none(tmp_path: Path) -> None:
    assert provenance.read(tmp_path) is None


def test_no_byte_of_it_can_change_unnoticed(tmp_path: Path) -> None:
    file = provenance.write(made(), tmp_path)
    data = file.read_bytes()
    for place in range(len(data)):
        file.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        with pytest.raises(BadInput, match=PROVENANCE_FILE):
            provenance.read(tmp_path)


def test_every_file_that_changed_or_is_gone_is_named(tree: Path) -> None:
    record = made(files=provenance.checksums(tree, provenance.files_below(tree)))
    assert list(provenance.changes(record, tree)) == []
    (tree / "code" / "solve.py").write_bytes(b"content of solve.pz")
    (tree / "code" / "new\nline").unlink()
    assert [line.split(":")[0] for line in provenance.changes(record, tree)] == ["code/new\nline", "code/solve.py"]


def test_every_file_of_a_copied_folder_that_is_not_as_it_was_is_named(tree: Path) -> None:
    target = tree.parent / "root.sha256"
    provenance.write_checksums(tree, target)
    assert list(provenance.copy_changes(tree, target)) == []
    (tree / "code" / "solve.py").write_bytes(b"another")
    (tree / "code" / "new\nline").unlink()
    for later in ("code/more", "mark"):
        (tree / later).write_bytes(b"")
    found = [(name, problem.split(" (")[0]) for name, problem in provenance.copy_changes(tree, target, {"mark"})]
    assert found == [
        ("code/more", "should not be there: it was not copied with the others"),
        ("code/new\nline", "is missing"),
        ("code/solve.py", "has changed"),
    ]


@pytest.mark.parametrize("name", ["/etc/passwd", "../x", "a/../../x", "a//x", "", ".", "a/", "run|..", "run|/x"])
def test_a_record_that_leads_out_of_its_folder_is_refused(tmp_path: Path, name: str) -> None:
    file = tmp_path / PROVENANCE_FILE
    checksum = provenance.Checksum(bytes=1, sha256="0")
    leads_out = Input.model_construct(asset="selected_roots", partition=name, version="1")
    for fields in ({"files": {name: checksum}}, {"folders": {name: "1"}}, {"inputs": (leads_out,)}):
        file.write_text(made().model_copy(update=fields).sealed().text())
        with pytest.raises(BadInput, match=f"{PROVENANCE_FILE}: is damaged .*inside a folder"):
            provenance.read(tmp_path)


def test_checksums_are_those_of_sha256sum_whatever_the_names(tree: Path) -> None:
    target = tree.parent / "checksums" / "root.sha256"
    provenance.write_checksums(tree, target)
    subprocess.run(["sha256sum", "--check", "--strict", "--quiet", target], cwd=tree, check=True)
    assert provenance.read_checksums(target) == {
        f"code/{name}": provenance.checksum(tree / "code" / name).sha256 for name in NAMES
    }


def test_a_damaged_line_of_checksums_is_named(tree: Path) -> None:
    target = tree.parent / "root.sha256"
    provenance.write_checksums(tree, target)
    target.write_bytes(b"abc\n" + target.read_bytes())
    with pytest.raises(BadInput, match="line 1"):
        provenance.read_checksums(target)
