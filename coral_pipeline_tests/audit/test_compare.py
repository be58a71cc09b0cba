"""Which cell differs, and how that is told."""

from __future__ import annotations

import errno
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from coral_pipeline import tables
from coral_pipeline.audit.compare import REORDERED, compare_json, compare_lines, compare_tables, equal
from coral_pipeline.audit.findings import MOST_OF_A_KIND, Review
from coral_pipeline.errors import BadInput, Changed
from coral_pipeline_tests.student_runs import filtered_table

TABLE = tables.FILTERED_SNAPSHOTS


def review() -> Review:
    return Review("filtered_snapshots", "run")


def problems(found: pa.Table, expected: pa.Table) -> list[str]:
    into = review()
    compare_tables(into, TABLE, found, expected)
    return [f"{one.where}: {one.problem}" for one in into.findings]


def test_a_cell_is_named_by_file_row_key_and_column() -> None:
    expected = filtered_table([1.0, 2.0])
    found = filtered_table([1.0, 2.5])
    snapshot = expected["snapshot"][1]
    assert problems(found, expected) == [
        f"filtered_snapshots.parquet, row 1 (snapshot {snapshot}), score: is 2.5, expected 2.0"
    ]
    assert problems(expected, expected) == []


def test_rows_are_matched_by_their_keys_where_some_are_missing_or_too_many() -> None:
    expected = filtered_table([1.0, 2.0, 3.0])
    first, second, third = expected["snapshot"].to_pylist()
    assert problems(expected.take([0, 2]), expected) == [
        "filtered_snapshots.parquet: has 2 rows, expected 3",
        f"filtered_snapshots.parquet, snapshot {second}: is missing",
    ]
    assert problems(expected, expected.take([1, 2])) == [
        "filtered_snapshots.parquet: has 3 rows, expected 2",
        f"filtered_snapshots.parquet, snapshot {first}: should not be there",
    ]
    assert third in str(expected)


def test_many_alike_are_counted_not_listed() -> None:
    into, scores = review(), [float(k) for k in range(50)]
    compare_tables(into, TABLE, filtered_table([score + 1 for score in scores]), filtered_table(scores))
    lines = list(into.lines())
    assert (into.total, len(into.findings)) == (50, MOST_OF_A_KIND)
    assert lines[-1] == "filtered_snapshots run: filtered_snapshots.parquet, score: and 40 more like these"


@pytest.mark.parametrize(
    ("found", "expected", "same"),
    [
        (1.0, 1.0 + 1e-12, True),
        (1.0, 1.0 + 1e-6, False),
        (math.nan, 1.0, False),
        (math.inf, 1.0, False),
        (1, True, False),
        (0.0, None, False),
        ([1.0, None], [1.0, None], True),
        ([1.0], [1.0, 2.0], False),
    ],
)
def test_floats_are_equal_within_the_tolerance_and_all_else_exactly(found: Any, expected: Any, same: bool) -> None:
    assert equal(review(), found, expected, REORDERED) is same


def test_the_largest_difference_is_kept_even_where_it_is_none() -> None:
    into = review()
    assert equal(into, 2.0, 2.0 + 2e-10, REORDERED)
    assert into.largest_difference == pytest.approx(2e-10, rel=1e-3)


def test_json_is_compared_key_by_key() -> None:
    into = review()
    compare_json(into, "tree.json", {"a": {"b": 1}, "d": 3}, {"a": {"b": 2}, "c": None})
    assert [f"{one.where}: {one.problem}" for one in into.findings] == [
        "tree.json, a, b: is 1, expected 2",
        "tree.json, c: is missing, expected None",
        "tree.json, d: is 3, expected to be absent",
    ]


def test_lines_are_named_with_the_byte_from_which_they_differ(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one\ntwo\n")
    (tmp_path / "b").write_text("one\ntwe\nthree\n")
    into = review()
    compare_lines(into, "sft.jsonl", tmp_path / "a", tmp_path / "b")
    assert [one.where for one in into.findings] == ["sft.jsonl, line 2", "sft.jsonl, line 3"]
    assert into.findings[0].problem.startswith("differs from byte 2 on")
    assert into.findings[1].problem == "is missing"


def test_what_cannot_be_read_is_a_finding_and_what_is_ours_to_mend_is_raised() -> None:
    into = review()
    for error in (BadInput("edges.parquet", "is gone", "mend it"), ValueError("odd"), KeyError(7), OSError("disk")):
        with into.guarded("the tree"):
            raise error
    assert [one.where for one in into.findings] == ["edges.parquet", "the tree", "the tree", "the tree"]
    with pytest.raises(AttributeError), into.guarded("the tree"):
        raise AttributeError("a bug of ours")


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EIO, "503 Slow Down", "s3://bucket/edges.parquet"),
        OSError(errno.ENOSPC, "No space left on device"),
        ConnectionResetError("reset by peer"),
        TimeoutError("timed out"),
        Changed("explored_trees of run|root", "made anew meanwhile"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_outage_is_no_finding_about_what_could_not_be_read(error: Exception) -> None:
    into = review()
    with pytest.raises(type(error)), into.guarded("the tree"), into.guarded("its edges"):
        raise error
    assert not into.total


def test_a_file_that_is_missing_is_a_finding_and_that_it_may_not_be_read_says_nothing() -> None:
    into = review()
    with pytest.raises(PermissionError):
        for error in (FileNotFoundError(errno.ENOENT, "No such file"), PermissionError(errno.EACCES, "Denied")):
            with into.guarded("the tree"):
                raise error
    assert into.total == 1
