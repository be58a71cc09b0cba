"""The method's rules, asserted on tables alone: every tree keeps them, and a cell that breaks them is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coral_pipeline import tables
from coral_pipeline.audit.findings import Review
from coral_pipeline.audit.replay import AnotherSearch, read_answers, replay
from coral_pipeline.audit.round_rules import verify_rounds
from coral_pipeline.audit.tree_rules import verify_edges_and_nodes
from coral_pipeline.search.output import edge_rows, node_rows, round_rows
from coral_pipeline.search.tree import Tree
from coral_pipeline.settings import Direction, SearchSettings
from coral_pipeline.tables import Table
from coral_pipeline_tests.audit.damage import changed_cell
from coral_pipeline_tests.search.growing import ROOT, Grown, grow, turn
from coral_pipeline_tests.search.test_properties import Dice, dice, search

TREE_TABLES = (tables.NODES, tables.EDGES, tables.ROUNDS)
FOR_THE_REPLAY = {"session_id", "commit_hash"}
"""Columns of nodes that no rule of the method fixes; the root's commit is its folder's."""


def write(folder: Path, tree: Grown, chosen: dict[str, Any], direction: Direction) -> Path:
    folder.mkdir(exist_ok=True)
    rows: list[list[dict[str, Any]]] = [tree.nodes, tree.edges, tree.turns, tree.rounds, []]
    for table, contents in zip(tables.TABLES["explored_trees"], rows, strict=True):
        table.write(contents, folder)
    info = {
        "root": ROOT.key,
        "direction": direction,
        "stop_reason": tree.stop_reason,
        "configuration": {"search": SearchSettings(**chosen).model_dump(mode="json")},
    }
    (folder / "tree.json").write_text(json.dumps(info))
    return folder


def broken_rules(folder: Path) -> list[str]:
    review = Review("explored_trees", "run|root")
    verify_edges_and_nodes(review, folder)
    verify_rounds(review, folder)
    return list(review.lines())


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(dice, search, st.sampled_from(["maximize", "minimize"]))
def test_every_tree_keeps_the_rules_and_grows_again_from_its_turns(
    tmp_path: Path, answer: Dice, chosen: dict[str, Any], direction: Direction
) -> None:
    grown = grow(answer, **chosen, direction=direction)
    folder = write(tmp_path / "tree", grown, chosen, direction)
    assert broken_rules(folder) == []
    again = Tree(ROOT, direction, SearchSettings(**chosen))
    replay(again, read_answers(folder))
    assert list(node_rows(again)) == [row | {"session_id": None} for row in grown.nodes]
    assert (list(edge_rows(again)), list(round_rows(again))) == (grown.edges, grown.rounds)
    assert again.stop_reason == grown.stop_reason


CHOSEN: dict[str, Any] = {"max_depth": 3, "max_logical_edges": 12, "parallel_width": 3}
ANSWERS = Dice(seed=11, no_score=0.15, tool_errors=0.1, levels=40, growth=9_000)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("rules") / "tree", grow(ANSWERS, **CHOSEN), CHOSEN, "maximize")


@pytest.mark.parametrize(
    ("table", "column"),
    [
        pytest.param(table, column.name, id=f"{table.name}-{column.name}")
        for table in TREE_TABLES
        for column in table.columns
        if column.name not in FOR_THE_REPLAY
    ],
)
def test_a_cell_that_breaks_a_rule_is_named(tree: Path, table: Table, column: str) -> None:
    rows = table.read(tree).num_rows
    with changed_cell(table, tree, column, rows - 1) as was:
        assert any(table.file_name in line for line in broken_rules(tree)), was


def drop_last_turn(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return rows[:-1]


def repeat_last_turn(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [*rows, rows[-1] | {"edge_id": rows[-1]["edge_id"] + 1, "turn": 1}]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (drop_last_turn, r"edge \d+ \(fork \d+ of node \d+\): has 1 turns, expected 2"),
        (repeat_last_turn, r"edge \d+: the search had stopped \(\w+\) after edge \d+"),
    ],
)
def test_turns_too_few_or_too_many_do_not_fit_the_search(
    tree: Path, tmp_path: Path, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]], problem: str
) -> None:
    rows = tables.TURNS.rows(tree)
    tables.TURNS.write(change(rows), tmp_path)
    again = Tree(ROOT, "maximize", SearchSettings(**CHOSEN))
    with pytest.raises(AnotherSearch, match=problem):
        replay(again, read_answers(tmp_path))


def test_a_search_that_should_have_stopped_earlier_is_told(tmp_path: Path) -> None:
    """Grown with a budget of nine edges, it says it had one of six, which round 2 had used up."""
    grown = grow(default=turn(), max_logical_edges=9, parallel_width=3)
    folder = write(tmp_path / "tree", grown, {"max_logical_edges": 6, "parallel_width": 3}, "maximize")
    found = broken_rules(folder)
    assert any(
        "rounds.parquet, round 3: the search should have stopped before it: edge_budget" in line for line in found
    )
    assert any("edges.parquet: 9 valid edges, 6 allowed" in line for line in found)
