"""Two diffs as one, held against git: what git says of the two ends is what the combined diff does."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coral_pipeline.report.page.diffs import combined

TEXT = st.lists(
    st.sampled_from(["a\n", "b\n", "c\n", "d\r\n", "-x\n", "\n", "@@ -1 +1 @@\n", "diff --git a/f b/f\n"]), max_size=30
)
END = st.sampled_from(["", "no newline"])


def git_diff(folder: Path, before: str, after: str) -> str:
    """git's diff between two texts of the file ``f``; neither is empty."""
    folder.mkdir(exist_ok=True)
    if not (folder / ".git").exists():
        subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True)
    hashes = []
    for text in (before, after):
        (folder / "f").write_bytes(text.encode())
        subprocess.run(["git", "add", "f"], cwd=folder, check=True)
        done = subprocess.run(["git", "write-tree"], cwd=folder, check=True, capture_output=True, text=True)
        hashes.append(done.stdout.strip())
    done = subprocess.run(["git", "diff-tree", "-p", *hashes], cwd=folder, check=True, capture_output=True)
    return done.stdout.decode()


def applied(folder: Path, text: str, diff: str) -> str:
    """The text after git applied the diff to it."""
    (folder / "f").write_bytes(text.encode())
    if diff:
        command = ["git", "apply", "--whitespace=nowarn", "-"]
        done = subprocess.run(command, cwd=folder, input=diff.encode(), capture_output=True)
        assert done.returncode == 0, done.stderr.decode() + diff
    return (folder / "f").read_bytes().decode()


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.tuples(TEXT, TEXT, TEXT), ends=st.tuples(END, END, END))
def test_a_combined_diff_leads_from_the_first_text_to_the_last(tmp_path: Path, texts, ends) -> None:
    first, middle, last = ("top\n" + "".join(lines) + end for lines, end in zip(texts, ends, strict=True))
    both = combined(git_diff(tmp_path, first, middle), git_diff(tmp_path, middle, last))
    assert both is not None
    assert applied(tmp_path, first, both) == last
    assert (both == "") == (first == last)


def test_what_the_second_turn_took_back_is_not_in_it(tmp_path: Path) -> None:
    """Turn 1 changes line 2; turn 2 changes that back, and line 30."""
    lines = [f"line {n}\n" for n in range(40)]
    changed, after = [*lines], [*lines]
    changed[2], after[30] = "turn one\n", "turn two\n"
    first = git_diff(tmp_path, "".join(lines), "".join(changed))
    second = git_diff(tmp_path, "".join(changed), "".join(after))
    both = combined(first, second)
    assert both is not None
    assert [line for line in both.splitlines() if line[0] in "+-" and line[:3] not in ("+++", "---")] == [
        "-line 30",
        "+turn two",
    ]
    assert "@@ -28,7 +28,7 @@" in both


def test_lines_are_counted_on_after_an_earlier_turn_made_the_file_longer(tmp_path: Path) -> None:
    lines = [f"line {n}\n" for n in range(40)]
    longer = ["one\n", "two\n", *lines]
    last = [*longer[:-2], "other\n", longer[-1]]
    both = combined(
        git_diff(tmp_path, "".join(lines), "".join(longer)), git_diff(tmp_path, "".join(longer), "".join(last))
    )
    assert both is not None and "@@ -1,3 +1,5 @@" in both and "@@ -36,5 +38,5 @@" in both


def test_files_that_one_turn_changed_stand_as_they_are() -> None:
    first = "diff --git a/b.py b/b.py\nindex 1..2 100644\n--- a/b.py\n+++ b/b.py\n@@ -1 +1 @@\n-1\n+2\n"
    second = "diff --git a/a.bin b/a.bin\nindex 1..2 100644\nBinary files a/a.bin and b/a.bin differ\n"
    assert combined(first, second) == second + first
    assert combined("", second) == second and combined(first, "") == first


def test_a_new_file_that_the_second_turn_changed_is_new() -> None:
    first = (
        "diff --git a/n b/n\nnew file mode 100644\nindex 0..1\n--- /dev/null\n+++ b/n\n@@ -0,0 +1,2 @@\n+one\n+two\n"
    )
    second = "diff --git a/n b/n\nindex 1..2 100644\n--- a/n\n+++ b/n\n@@ -1,2 +1,2 @@\n one\n-two\n+three\n"
    both = (
        "diff --git a/n b/n\nnew file mode 100644\nindex 0..1\n--- /dev/null\n+++ b/n\n@@ -0,0 +1,2 @@\n+one\n+three\n"
    )
    assert combined(first, second) == both


@pytest.mark.parametrize(
    "second",
    [
        "diff --git a/f b/f\ndeleted file mode 100644\nindex 2..0\n--- a/f\n+++ /dev/null\n@@ -1 +0,0 @@\n-2\n",
        "diff --git a/f b/f\nold mode 100644\nnew mode 100755\n",
        "diff --git a/f b/f\nindex 2..3 100644\nBinary files a/f and b/f differ\n",
        "diff --git a/f b/f\nindex 2..3 100644\n--- a/f\n+++ b/f\n@@ -1,9 +1,9 @@\n-2\n\\ Cut here: …\n",
        "diff --git a/f b/f\nindex 2..3 100644\n--- a/f\n+++ b/f\n@@ -1 +1 @@\n-not what was left\n+3\n",
    ],
    ids=["deleted", "mode", "binary", "cut", "of another text"],
)
def test_what_cannot_be_said_for_sure_is_not_said(second: str) -> None:
    first = "diff --git a/f b/f\nindex 1..2 100644\n--- a/f\n+++ b/f\n@@ -1 +1 @@\n-1\n+2\n"
    assert combined(first, second) is None


CHANGED = "diff --git a/a.py b/a.py\nindex 1..2 100644\n--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-1\n+2\n"
OTHER = CHANGED.replace("a.py", "b.py")
RENAMED = "diff --git a/a.py b/b.py\nsimilarity index 100%\nrename from a.py\nrename to b.py\n"
COPIED = "diff --git a/a.py b/b.py\nsimilarity index 100%\ncopy from a.py\ncopy to b.py\n"
CUT = "\\ Cut here: the diff is longer than 100000 bytes\n"


@pytest.mark.parametrize("special", [RENAMED, COPIED, OTHER + CUT], ids=["renamed", "copied", "cut"])
def test_what_may_tell_of_a_file_that_the_other_tells_of_is_not_combined(special: str) -> None:
    """The edited file is renamed; the renamed one is edited; or something is left out. Alone, each is all there is."""
    assert combined(CHANGED, special) is None and combined(special, CHANGED) is None
    assert combined(OTHER, special) is None and combined(special, OTHER) is None
    assert combined("", special) == special and combined(special, "") == special


def test_lines_that_read_like_a_rename_are_lines() -> None:
    first = CHANGED.replace("+2", "+rename to b.py")
    assert combined(first, OTHER) == first + OTHER
