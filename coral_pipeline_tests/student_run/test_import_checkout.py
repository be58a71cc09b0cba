"""A tree of any content is written inside its folder, or left out and said."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coral_pipeline.student_run import checkout
from coral_pipeline.student_run.checkout import plan_checkout, printable, write_checkout
from coral_pipeline.student_run.git_objects import TooLarge
from coral_pipeline_tests.coral_runs import contents, git, objects_of, write_object, write_raw_tree


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    path = tmp_path / "repository"
    path.mkdir()
    git(path, "init", "-q")
    return path


def checked_out(repository: Path, tree: str, folder: Path) -> tuple[dict[str, bytes | str], list[str]]:
    """Write the tree into ``folder``: what is there then, and what was left out."""
    with objects_of(repository) as objects:
        plan = plan_checkout(objects, tree)
        write_checkout(objects, plan, folder)
    return contents(folder), plan.left_out


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        (b"..", "no name for a file"),
        (b".", "no name for a file"),
        (b"", "no name for a file"),
        (b"/etc/cron.d/evil", "no name for a file"),
        (b"../outside", "no name for a file"),
        (b"a/b", "no name for a file"),
        (b"..\\outside", "no name for a file"),
        (b".git", "a name git keeps for itself"),
        (b".GIT", "a name git keeps for itself"),
        (b"git~1", "a name git keeps for itself"),
        (b"x" * 256, "too long a path"),
        (b"good", "a name the folder already has"),
    ],
)
@pytest.mark.parametrize("kind", ["file", "folder", "link"])
def test_a_name_that_is_none_is_left_out(
    repository: Path, tmp_path: Path, name: bytes, problem: str, kind: str
) -> None:
    blob = write_object(repository, "blob", b"good")
    mode, hash = {
        "file": ("100644", blob),
        "link": ("120000", blob),
        "folder": ("40000", write_raw_tree(repository, [("100644", b"inner", blob)])),
    }[kind]
    inner = write_raw_tree(repository, [("100644", b"good", blob), (mode, name, hash)])
    tree = write_raw_tree(repository, [("100644", b"good", blob), (mode, name, hash), ("40000", b"sub", inner)])
    outside = tmp_path / "outside"
    outside.mkdir()
    found, left_out = checked_out(repository, tree, outside / "code")
    assert found == {"good": b"good", "sub": "folder", "sub/good": b"good"}
    shown = name[:255].decode()
    assert left_out == [f"{shown}: {problem}", f"sub/{shown}: {problem}"]
    assert list(contents(outside)) == ["code", "code/good", "code/sub", "code/sub/good"]


def test_names_in_any_bytes_and_of_differing_case_are_written(repository: Path, tmp_path: Path) -> None:
    blob = write_object(repository, "blob", b"x")
    names = [b"A", b"a", b"caf\xe9", b"new\nline", b"x" * 255, "ünï".encode()]
    tree = write_raw_tree(repository, [("100644", name, blob) for name in names])
    found, left_out = checked_out(repository, tree, tmp_path / "code")
    assert {os.fsencode(name) for name in found} == set(names)
    assert left_out == []


def test_files_of_any_other_mode_are_plain_files(repository: Path, tmp_path: Path) -> None:
    blob = write_object(repository, "blob", b"x")
    modes = ["100644", "100664", "100600", "104755", "20000", "0"]
    tree = write_raw_tree(repository, [(mode, f"m{mode}".encode(), blob) for mode in modes])
    found, _ = checked_out(repository, tree, tmp_path / "code")
    assert found == {f"m{mode}": b"x" for mode in modes}


def test_a_path_deeper_than_a_disk_takes_is_left_out(repository: Path, tmp_path: Path) -> None:
    tree = write_raw_tree(repository, [("100644", b"file", write_object(repository, "blob", b"x"))])
    for _ in range(20):
        tree = write_raw_tree(repository, [("40000", b"d" * 100, tree)])
    found, left_out = checked_out(repository, tree, tmp_path / "code")
    assert len(found) == 10  # folders of 100 + 1 characters up to 1024
    assert len(left_out) == 1 and left_out[0].endswith(": too long a path")


def test_a_tree_of_more_entries_than_any_disk_holds_is_refused(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkout, "MOST_ENTRIES", 1000)
    tree = write_raw_tree(repository, [("100644", b"file", write_object(repository, "blob", b"x"))])
    for _ in range(30):  # 10 to the power of 30 files in 31 objects
        tree = write_raw_tree(repository, [("40000", f"{i}".encode(), tree) for i in range(10)])
    with objects_of(repository) as objects, pytest.raises(TooLarge, match="more than 1000 entries"):
        plan_checkout(objects, tree)


def links(repository: Path, targets: dict[str, str]) -> str:
    """A tree with a file, folders p/q/, and these links, by path of at most two folders."""
    blob = write_object(repository, "blob", b"x")
    by_folder: dict[str, list[tuple[str, bytes, str]]] = {"": [], "p": [], "p/q": []}
    for path, target in targets.items():
        folder, _, name = path.rpartition("/")
        by_folder[folder].append(("120000", name.encode(), write_object(repository, "blob", target.encode())))
    q = write_raw_tree(repository, [*by_folder["p/q"], ("100644", b"file", blob)])
    p = write_raw_tree(repository, [*by_folder["p"], ("40000", b"q", q)])
    return write_raw_tree(repository, [*by_folder[""], ("40000", b"p", p)])


@pytest.mark.parametrize(
    ("targets", "kept"),
    [
        ({"l": "p/q/file"}, ["l"]),
        ({"p/q/l": "../../p"}, ["p/q/l"]),
        ({"l": "nowhere/../yet"}, ["l"]),
        ({"l": "."}, ["l"]),
        ({"l": "l"}, []),
        ({"a": "a/../.."}, []),
        ({"l": ".."}, []),
        ({"l": "../code/p"}, []),  # back in by the name the folder happens to have
        ({"p/q/l": "../../../x"}, []),
        ({"l": "/etc/passwd"}, []),
        ({"l": ""}, []),
        ({"l": "x" * 2000}, []),
        ({"l": "p//./q/../q/file"}, ["l"]),
        # As text p/q/x is inside, but p/q/s is the top, and above the top is outside:
        ({"p/q/s": "../..", "l": "p/q/s/../x"}, ["p/q/s"]),
        ({"a": "b", "b": "../out"}, []),
        ({"a": "b/x", "b": "p"}, ["a", "b"]),
    ],
)
def test_links_are_kept_where_they_stay_inside(
    repository: Path, tmp_path: Path, targets: dict[str, str], kept: list[str]
) -> None:
    found, left_out = checked_out(repository, links(repository, targets), tmp_path / "code")
    assert sorted(name for name, what in found.items() if str(what).startswith("->")) == sorted(kept)
    assert len(left_out) == len(targets) - len(kept)


_NAMES = st.sampled_from(["a", "b", "c", "p", "q", "file"])
_TARGETS = st.lists(st.sampled_from(["a", "b", "c", "p", "q", "..", "..", ".", ""]), min_size=1, max_size=6)


@settings(max_examples=100, deadline=None)
@given(
    st.dictionaries(
        st.tuples(st.sampled_from(["", "p/", "p/q/"]), st.sampled_from(["a", "b", "c"])).map("".join),
        _TARGETS.map("/".join),
        max_size=6,
    )
)
def test_no_link_that_is_kept_leads_outside_on_disk(targets: dict[str, str]) -> None:
    by_path = {PurePosixPath(path): target for path, target in targets.items()}
    with tempfile.TemporaryDirectory() as scratch:
        top = Path(scratch).resolve() / "code"
        (top / "p" / "q").mkdir(parents=True)
        for path, target in by_path.items():
            if target and not checkout.link_escapes(path, by_path):
                (top / path).symlink_to(target)
        for path in by_path:
            if (top / path).is_symlink():
                assert Path(os.path.realpath(top / path)).is_relative_to(top)


def test_printable_text_is_one_line_that_encodes() -> None:
    assert printable("café\n\x1b[31m\udcff") == "café\\n\\x1b[31m\\udcff"
