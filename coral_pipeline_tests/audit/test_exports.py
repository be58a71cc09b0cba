"""Exports of several roots are made again root by root, and what differs is named."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from coral_pipeline.audit import exports
from coral_pipeline.audit.exports import verify_exports
from coral_pipeline.audit.findings import Review
from coral_pipeline.credit.tokens import write_tokens
from coral_pipeline.export.dataset import DatasetSummary, Format, write_dataset
from coral_pipeline.export.layout import RootFolders
from coral_pipeline.tables import BRANCHES, SFT_SAMPLES, Table
from coral_pipeline_tests.audit.damage import put_back
from coral_pipeline_tests.transcripts import ADVANTAGES, write_ranked, write_talking_tree

ROOTS = ("eval-1", "eval-2", "eval-3")


@pytest.fixture(scope="module")
def roots(tmp_path_factory: pytest.TempPathFactory) -> list[RootFolders]:
    made = []
    for root in ROOTS:
        top = tmp_path_factory.mktemp(root)
        tree = write_talking_tree(top / "tree", root=root)
        write_tokens(tree, ADVANTAGES, top / "credit")
        made.append(RootFolders(tree, write_ranked(tree, top / "ranked"), top / "credit"))
    return made


@pytest.fixture(scope="module")
def dataset(roots: list[RootFolders], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dataset")
    write_dataset(roots, folder)
    return folder


def found(dataset: Path, roots: Sequence[RootFolders]) -> list[str]:
    review = Review("sft_dataset", "run")
    verify_exports(review, dataset, roots)
    return [f"{one.where}: {one.problem}" for one in review.findings]


def test_what_was_made_is_clean_and_one_root_at_a_time_is_made_again(
    dataset: Path, roots: list[RootFolders], monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once: list[int] = []

    def write(some: Sequence[RootFolders], out: Path, formats: Sequence[Format]) -> DatasetSummary:
        at_once.append(len(some))
        return write_dataset(some, out, formats)

    monkeypatch.setattr(exports, "write_dataset", write)
    assert found(dataset, roots) == []
    assert at_once == [1, 1, 1]


def test_a_dataset_of_no_roots_is_clean(tmp_path: Path) -> None:
    write_dataset([], tmp_path)
    assert found(tmp_path, []) == []
    (tmp_path / "llama_factory" / "dataset_info.json").write_text("{}")
    assert found(tmp_path, [])[0].startswith("llama_factory/dataset_info.json, line 1:")


def without_second(rows: pa.Table) -> pa.Table:
    return rows.filter([number != 2 for number in range(rows.num_rows)])


def without_second_root(rows: pa.Table) -> pa.Table:
    return rows.filter([root != ROOTS[1] for root in rows["root"].to_pylist()])


def reversed_rows(rows: pa.Table) -> pa.Table:
    return rows.take(list(reversed(range(rows.num_rows))))


def of_another_root(rows: pa.Table) -> pa.Table:
    column = rows["root"].to_pylist()
    kind = rows.schema.field("root")
    return rows.set_column(rows.column_names.index("root"), kind, pa.array([*column[:-1], "eval-9"], pa.string()))


@pytest.mark.parametrize("table", [SFT_SAMPLES, BRANCHES], ids=lambda table: table.name)
@pytest.mark.parametrize(
    ("change", "problems"),
    [
        (without_second, ["has 1 rows, expected 2", "root eval-2, leaf_id 4: is missing"]),
        (without_second_root, ["root eval-2, leaf_id 4: is missing", "root eval-2, leaf_id 3: is missing"]),
        (reversed_rows, ["its roots stand in the order ['eval-3', 'eval-2', 'eval-1']"]),
        (of_another_root, ["root eval-3, leaf_id 3: is missing", "root eval-9: should not be there"]),
    ],
)
def test_rows_that_are_missing_too_many_or_in_disorder_are_named(
    dataset: Path,
    roots: list[RootFolders],
    table: Table,
    change: Callable[[pa.Table], pa.Table],
    problems: list[str],
) -> None:
    with put_back(dataset / table.file_name):
        table.write(change(table.read(dataset)), dataset)
        lines = found(dataset, roots)
    assert all(line.startswith(table.file_name) for line in lines)
    for problem in problems:
        assert any(problem in line for line in lines), lines


@pytest.mark.parametrize("file", ["sft.jsonl", "llama_factory/sft.jsonl", "traces.jsonl"])
def test_lines_that_differ_are_named_by_their_number_in_the_whole_file(
    dataset: Path, roots: list[RootFolders], file: str
) -> None:
    with put_back(dataset / file):
        *lines, last = (dataset / file).read_text().splitlines()
        changed = json.dumps(json.loads(last) | {"more": 1})
        (dataset / file).write_text("\n".join([*lines, changed, changed]) + "\n")
        differing = [line for line in found(dataset, roots) if line.startswith(f"{file}, line")]
    assert [line.split(":")[0] for line in differing] == [f"{file}, line {len(lines) + n}" for n in (1, 2)]
    assert "differs from byte" in differing[0] and "should not be there" in differing[1]


@pytest.mark.parametrize("file", ["sft.jsonl", "sft.parquet", "branches.parquet", "traces.jsonl"])
def test_a_file_that_cannot_be_read_is_told_once_and_the_others_are_verified(
    dataset: Path, roots: list[RootFolders], file: str
) -> None:
    other = "llama_factory/sft.jsonl"
    with put_back(dataset / file), put_back(dataset / other):
        (dataset / file).unlink()
        (dataset / other).write_text("")
        lines = found(dataset, roots)
    assert any(line.startswith(f"{other}, line 1: is missing") for line in lines)
    assert any(file in line for line in lines)
