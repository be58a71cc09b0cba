"""A finished tree as the later stages read it: checked, in columns."""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coral_pipeline import tables
from coral_pipeline.errors import BadInput
from coral_pipeline.explored import ExploredTree
from coral_pipeline_tests.random_trees import random_nodes
from coral_pipeline_tests.trees import Failed, N, explored, write_tree

NODES = [N(score=1.0), N(0, 2.0), N(0, None, leaf="open", steps=5), N(1, 2.5, soft=0.25)]


def test_a_tree_read_back(tmp_path: Path) -> None:
    tree = ExploredTree.read(write_tree(tmp_path, NODES, failed=[Failed(1)], edge_ids={1: 4, 2: 2, 3: 0}))
    assert (tree.folder, tree.name, tree.direction) == (tmp_path, "eval-000003-agent-1-0123456789ab", "maximize")
    assert tree.node_id.tolist() == [0, 1, 2, 3]
    assert tree.parent.tolist() == [-1, 0, 0, 1]
    assert tree.children.tolist() == [2, 1, 0, 0]
    assert tree.edge_id.tolist() == [-1, 4, 2, 0]
    assert tree.edge_order.tolist() == [3, 2, 1]
    assert tree.duration.tolist() == [0, 1, 5, 1]
    assert tree.soft[3] == 0.25
    assert np.isnan(tree.score[2])
    assert tree.good_leaf.tolist() == [False, False, False, True]
    assert [tree.node_id[level].tolist() for level in tree.levels] == [[0], [1, 2], [3]]
    assert tree.slot.tolist() == [-1, 0, 0, 0]
    assert list(tree.path(3)) == [3, 1, 0]


def test_scores_that_are_not_finite_are_none(tmp_path: Path) -> None:
    tree = explored([N(score=1.0), N(0, float("nan")), N(0, float("inf"))])
    assert np.isnan(tree.score).tolist() == [False, True, True]


def test_minimising_turns_the_scores() -> None:
    assert explored(NODES, direction="minimize").oriented_score.tolist()[:2] == [-1.0, -2.0]


@settings(max_examples=40, deadline=None)
@given(random_nodes(), st.randoms(use_true_random=False))
def test_the_order_of_the_rows_changes_nothing(nodes: list[N], shuffle: random.Random) -> None:
    ids = dict(zip(range(1, len(nodes)), shuffle.sample(range(3 * len(nodes)), len(nodes) - 1), strict=True))
    sorted_rows, shuffled = explored(nodes, edge_ids=ids), explored(nodes, edge_ids=ids, shuffle=shuffle)
    for column in ("node_id", "parent", "depth", "edge_id", "duration", "slot", "edge_order"):
        assert getattr(shuffled, column).tolist() == getattr(sorted_rows, column).tolist(), column
    assert shuffled.leaf_kind == sorted_rows.leaf_kind


@pytest.mark.parametrize("ids", [[0, 1, 2], [7, 3, 5], [-4, 900, 12]])
def test_positions_of_node_ids(ids: list[int]) -> None:
    tree = dataclasses.replace(explored([N(score=1.0), N(0, 1.0), N(0, 1.0)]), node_id=np.array(ids))
    assert tree.positions(np.array(ids[::-1])).tolist() == [2, 1, 0]
    for unknown in (-1, 4, 10_000):
        with pytest.raises(KeyError, match=str(unknown)):
            tree.positions(np.array([ids[0], unknown]))


Change = Callable[[list[dict[str, Any]]], None]


def node(index: int, **values: Any) -> tuple[tables.Table, Change]:
    return tables.NODES, lambda rows: rows[index].update(values)


def edge(index: int, **values: Any) -> tuple[tables.Table, Change]:
    return tables.EDGES, lambda rows: rows[index].update(values)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (node(1, parent_id=None), "2 nodes without a parent, expected one"),
        (node(0, parent_id=1), "0 nodes without a parent, expected one"),
        (node(3, parent_id=9), "parent_id 9 is not a node of the tree"),
        (node(3, node_id=2), "node_id 2 appears more than once"),
        (node(3, depth=1), "node 3: depth 1, expected 2"),
        (node(1, parent_id=3), "node 1: depth 1, expected 3"),  # a circle
        (node(2, leaf_kind=None), "node 2: leaf_kind None on a node without children"),
        (node(1, leaf_kind="open"), "node 1: leaf_kind 'open' on a node with children"),
        (node(3, leaf_kind="good"), "node 3: leaf_kind 'good' on a node without children"),
        (edge(2, child_id=1), "child_id 1 appears more than once"),
        (edge(2, child_id=9), "child_id 9 is not a node of the tree"),
        (edge(2, child_id=None), "no edge leads to node 3"),
        (edge(2, child_id=0), "an edge leads to node 0"),
        (edge(2, edge_id=1), "edge_id 1 appears more than once"),
        (edge(2, parent_id=2), "the edge to node 3 does not come from its parent"),
        (edge(1, soft=None), "edge 1: made a node but has no soft"),
        (edge(1, cleanliness=float("nan")), "edge 1: made a node but has no cleanliness"),
    ],
)
def test_tables_that_are_no_tree_are_refused(tmp_path: Path, broken: tuple[tables.Table, Change], message: str) -> None:
    write_tree(tmp_path, NODES)
    table, change = broken
    rows = table.rows(tmp_path)
    change(rows)
    table.write(rows, tmp_path)
    with pytest.raises(BadInput, match=message) as refused:
        ExploredTree.read(tmp_path)
    assert str(tmp_path / table.file_name) in str(refused.value)
    assert "explore the root again" in str(refused.value)


def test_no_nodes_at_all(tmp_path: Path) -> None:
    write_tree(tmp_path, NODES)
    tables.NODES.write([], tmp_path)
    with pytest.raises(BadInput, match="0 nodes without a parent"):
        ExploredTree.read(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "no such file, so this is not a finished tree"),
        ("{", "Invalid JSON: EOF"),
        ("[" * 5000, "Invalid JSON: recursion limit"),
        ("[]", "Input should be an object"),
        (json.dumps({"root": 3, "direction": "maximize"}), "root: Input should be a valid string"),
        (json.dumps({"root": "r", "direction": "up"}), "direction: Input should be 'maximize' or 'minimize'"),
        (json.dumps({"root": "r"}), "direction: Field required"),
        (json.dumps({"root": "r", "direction": "maximize", "counts": []}), "counts: Input should be an object"),
        (json.dumps({"root": "r", "direction": "maximize", "tools": ["x"]}), "tools.0: Input should be an object"),
        (
            json.dumps({"root": "r", "direction": "maximize", "tools": [{"name": "x", "function": 3}]}),
            "tools.0: Input should be an object",
        ),
    ],
)
def test_a_tree_that_is_not_finished_or_not_described(tmp_path: Path, text: str | None, message: str) -> None:
    file = write_tree(tmp_path, NODES) / "tree.json"
    if text is None:
        file.unlink()
    else:
        file.write_text(text)
    with pytest.raises(BadInput, match=f"tree.json: {message}"):
        ExploredTree.read(tmp_path)
