"""One cell of one table is changed: the checks that compute it anew see it, whatever the checksums say."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from coral_pipeline.audit.checks import CHECKS
from coral_pipeline.audit.exports import verify_exports
from coral_pipeline.audit.findings import Review
from coral_pipeline.audit.sources import Source
from coral_pipeline.credit.message_graph import TRACES_FILE
from coral_pipeline.export.dataset import Format
from coral_pipeline.tables import MESSAGES, PER_ROOT, TABLES, Table
from coral_pipeline_tests.audit.damage import changed_cell, put_back
from coral_pipeline_tests.defs.world import RUN, World

pytestmark = pytest.mark.slow

COLUMNS = [
    pytest.param(asset, table, column.name, id=f"{asset}-{table.name}-{column.name}")
    for asset, tables in TABLES.items()
    for table in tables
    for column in table.columns
]
JOURNAL = "told_as_journaled"
TOLD_BY_THE_TEACHER = {
    "nodes": {"session_id"},
    "turns": {
        "score",
        "status",
        "commit_hash",
        "feedback",
        "code_diff",
        "knowledge_read",
        "knowledge_write",
        "context_tokens",
    },
    "messages": {
        "content",
        "sampled",
        "input_tokens",
        "output_tokens",
        "sampled_token_ids",
        "sampled_logprobs",
        "created_ms",
        "completed_ms",
    },
}
"""Columns of which not every change shows in what is computed from them: the journal and the checksums cover these."""


OTHER_FILES = {
    "files_as_written",
    "version_of_contents",
    "trace_equals_tables",
    "trace_is_readable",
    "samples_equal_tables",
}
"""Checks that look at checksums, or at files that are no tables."""


def partition(finished: World, asset: str) -> str:
    return str(finished.keys[0]) if asset in PER_ROOT else RUN


def findings(source: Source, asset: str, key: str) -> Iterator[str]:
    """What the checks of an asset find that compute its tables anew."""
    for check in CHECKS:
        if check.asset == asset and check.name not in {*OTHER_FILES, JOURNAL}:
            yield from check.review(source, key).lines()


def of_journal(source: Source, asset: str, key: str) -> Iterator[str]:
    """What the journal of the search knows otherwise."""
    for check in CHECKS:
        if check.asset == asset and check.name == JOURNAL:
            yield from check.review(source, key).lines()


@pytest.mark.parametrize("asset", TABLES)
def test_untouched_tables_are_clean(finished: World, source: Source, asset: str) -> None:
    key = partition(finished, asset)
    assert [*findings(source, asset, key), *of_journal(source, asset, key)] == []


@pytest.mark.parametrize(
    ("asset", "table", "column"), [column for column in COLUMNS if column.values[0] != "sft_dataset"]
)
def test_a_changed_cell_is_found_and_named(
    finished: World, source: Source, asset: str, table: Table, column: str
) -> None:
    key = partition(finished, asset)
    folder = finished.folders.asset(asset, key)
    row = table.read(folder).num_rows - 1
    with changed_cell(table, folder, column, row) as was:
        if column in TOLD_BY_THE_TEACHER.get(table.name, ()):
            found = list(of_journal(source, asset, key))
        else:
            found = list(findings(source, asset, key))
    # What was answered in a turn is the ground for all else: where it is changed, all else disagrees.
    files = ["edges.parquet"] if table.name == "turns" else []
    assert any(file in line for line in found for file in (table.file_name, *files)), f"{was!r}: {found}"


@pytest.mark.parametrize("nodes", [[{"message": {"role": "nobody", "content": "x"}}], [{"sampled": True}], 3])
def test_a_trace_that_verifiers_cannot_read_is_found(finished: World, source: Source, nodes: object) -> None:
    key = str(finished.keys[0])
    (check,) = [check for check in CHECKS if check.name == "trace_is_readable"]
    assert check.review(source, key).looked_at["episodes"] == 1 and not check.review(source, key).findings
    path = finished.folders.asset("advantage_batches", key) / TRACES_FILE
    with put_back(path):
        record = json.loads(path.read_text())
        record["traces"][0]["nodes"] = nodes
        path.write_text(json.dumps(record))
        (line,) = check.review(source, key).lines()
    assert TRACES_FILE in line


def test_a_clock_that_was_set_back_while_a_message_was_written_is_no_fault(finished: World, source: Source) -> None:
    key = str(finished.keys[0])
    folder = finished.folders.asset("explored_trees", key)
    row = next(row for row, begun in enumerate(MESSAGES.read(folder)["created_ms"].to_pylist()) if begun)
    with changed_cell(MESSAGES, folder, "completed_ms", row, lambda completed: 0):
        assert list(findings(source, "explored_trees", key)) == []


@pytest.mark.parametrize(
    ("asset", "table", "column"), [column for column in COLUMNS if column.values[0] == "sft_dataset"]
)
def test_a_changed_cell_of_an_export_is_found_and_named(
    finished: World, source: Source, asset: str, table: Table, column: str
) -> None:
    folder = finished.folders.asset(asset, RUN)
    format: Format = "sft" if table.name == "sft" else "tokens"
    with changed_cell(table, folder, column, table.read(folder).num_rows - 1):
        review = Review(asset, RUN)
        verify_exports(review, folder, source.roots_of_dataset(RUN), [format])
    assert any(table.file_name in line and column in line for line in review.lines()), list(review.lines())
