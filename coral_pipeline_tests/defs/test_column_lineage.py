"""Every column of every table says which columns it is made from, and nothing flows backwards."""

from __future__ import annotations

from graphlib import TopologicalSorter

import dagster as dg
import pytest

from coral_pipeline.defs.column_lineage import LINEAGE, Source, column_lineage, column_schema, upstream
from coral_pipeline.tables import TABLES

COLUMNS: set[Source] = {
    (asset, table.name, column.name) for asset, tables in TABLES.items() for table in tables for column in table.columns
}
ORDER = list(TABLES)
"""Assets in the order in which they are made."""
MAY_READ = {
    "filtered_snapshots": set(),
    "stage_labels": {"filtered_snapshots"},
    "selected_roots": {"filtered_snapshots", "stage_labels"},
    "explored_trees": {"selected_roots"},
    "ranked_paths": {"explored_trees"},
    "advantage_batches": {"explored_trees", "ranked_paths"},
    "sft_dataset": {"selected_roots", "explored_trees", "ranked_paths", "advantage_batches"},
}
"""Assets whose files each asset reads."""
DECLARED = {
    (asset, table, column): sources
    for asset, tables in LINEAGE.items()
    for table, columns in tables.items()
    for column, sources in columns.items()
}


def test_every_column_of_every_table_has_an_entry_and_no_other_has() -> None:
    assert DECLARED.keys() == COLUMNS


def test_every_source_is_a_column_of_a_table() -> None:
    unknown = {source for sources in DECLARED.values() for source in sources} - COLUMNS
    assert unknown == set()


def test_nothing_is_made_from_what_the_asset_does_not_read() -> None:
    for (asset, table, column), sources in DECLARED.items():
        assert {source[0] for source in sources} <= {asset} | MAY_READ[asset], (asset, table, column)


def test_nothing_flows_backwards() -> None:
    TopologicalSorter(DECLARED).prepare()  # raises CycleError
    for (asset, _, _), sources in DECLARED.items():
        assert all(ORDER.index(before) <= ORDER.index(asset) for before, _, _ in sources)


def test_what_lies_between_two_columns_of_an_asset_is_followed_to_the_asset_before() -> None:
    # PathScore is a sum of four columns of its own table. Two of them are ranks of means and maxima of node scores
    # among the candidates, which are told from leaf_kind and score; the others are means over edges.
    trees = "explored_trees"
    assert set(upstream("ranked_paths", "ranked_paths", "PathScore")) == {
        (trees, "nodes", "score"),
        (trees, "nodes", "leaf_kind"),
        (trees, "edges", "cleanliness"),
        (trees, "edges", "knowledge"),
    }


@pytest.mark.parametrize("asset", TABLES)
def test_dagster_finds_each_source_among_the_columns_it_knows(asset: str) -> None:
    def names(of: str) -> set[str]:
        return {column.name for column in column_schema(of).columns}

    lineage = column_lineage(asset)
    assert lineage.deps_by_column.keys() == names(asset)
    for deps in lineage.deps_by_column.values():
        for dep in deps:
            assert dep.asset_key != dg.AssetKey(asset)
            assert dep.column_name in names(dep.asset_key.to_user_string())


def test_a_column_s_description_says_what_it_is_made_from() -> None:
    described = {column.name: column.description or "" for column in column_schema("explored_trees").columns}
    assert described["nodes.score"].endswith("← `selected_roots.score`, `edges.best_score`")
    assert described["edges.tool_error_rate"].endswith("← `failed_tool_calls`, `tool_calls`")
    assert "←" not in described["turns.score"], "the grader gives it"
