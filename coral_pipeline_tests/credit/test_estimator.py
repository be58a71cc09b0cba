"""Recipes of one's own: what they are given, what they may answer, and how wrong answers are told."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from coral_pipeline.credit import (
    Advantage,
    Constant,
    DirectBranchTd,
    Edge,
    Estimator,
    Grpo,
    MissingValue,
    Node,
    RewardConfig,
    TreeValues,
    ValueModel,
    prepare,
)
from coral_pipeline.errors import BadInput
from coral_pipeline_tests.trees import ROOT, N, explored

#   root ── 1 ── 3 (open)
#      │     └─── 4 (good)
#      └─── 2 (open)
NODES = [
    N(score=1.0),
    N(0, 2.0, steps=5),
    N(0, 3.0, leaf="open", steps=7),
    N(1, None, leaf="open", steps=2),
    N(1, 0.5, steps=3),
]
IDS = {1: 10, 2: 4, 3: 6, 4: 8}
"""Edge ids by child: in order 2, 3, 4, 1."""
TREE = explored(NODES, edge_ids=IDS)


class RewardOnly(Estimator):
    """The recipe of the seed, to the letter."""

    def advantages(self, edges, values):  # type: ignore[no-untyped-def]  # as users write them
        return [edge.reward for edge in edges]


class Answering(Estimator):
    """Answers what it was told to."""

    name = "answering"

    def __init__(self, answer: Callable[[Sequence[Edge], TreeValues], Any], completed: bool = False) -> None:
        self.answer = answer
        self.requires_completed_paths = completed

    def advantages(self, edges: Sequence[Edge], values: TreeValues) -> Any:
        return self.answer(edges, values)


class Silent(ValueModel):
    """Predicts 0.5 but at the nodes it was told to say nothing about."""

    def __init__(self, *silent: int) -> None:
        self.silent = silent

    def predict(self, checkpoints: Sequence[Any]) -> list[float | None]:
        return [None if checkpoint.node.node_id in self.silent else 0.5 for checkpoint in checkpoints]


def rows(estimator: Estimator, **options: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = prepare(TREE, estimator, **options).edge_table().to_pylist()
    return found


def test_the_seeds_reward_only_recipe() -> None:
    table = rows(RewardOnly())
    assert [row["advantage"] for row in table] == [row["reward"] for row in table]
    assert {row["estimator"] for row in table} == {"RewardOnly"}, "a recipe without a name goes by that of its class"


def test_defaults_of_the_interface() -> None:
    assert (Estimator.name, Estimator.requires_completed_paths) == ("", False)
    assert Advantage(1.5) == Advantage(1.5, {})
    assert isinstance(Advantage(1.5).diagnostics, MappingProxyType)
    assert prepare(TREE).estimator == "direct_branch_td", "the default recipe"
    for frozen in (Advantage(1.0), prepare(TREE).edges[0], prepare(TREE).edges[0].node):
        with pytest.raises(dataclasses.FrozenInstanceError):
            frozen.value = 2.0  # type: ignore[union-attr, misc]  # what is refused
    with pytest.raises(TypeError, match="abstract"):
        Estimator()  # type: ignore[abstract]  # what is refused


def test_a_recipe_is_given_every_searched_edge_by_edge_id_and_the_values_of_its_ends() -> None:
    seen: list[Edge] = []

    def look(edges: Sequence[Edge], values: TreeValues) -> list[float]:
        seen.extend(edges)
        assert len(edges) == 4
        assert list(edges[1:3]) == seen[1:3]
        assert edges[-1] == seen[-1]
        for edge in edges:
            assert values.prior[edge.parent] == 0.25
            assert values.backup[edge.parent] == values.backup.get(edge.parent)
            assert values.refined[edge.node] == (
                0.0 if edge.node.completed else pytest.approx(values.refined[edge.node])
            )
        leaf = edges[2].node
        assert (values.prior[leaf], values.refined[leaf]) == (0.0, 0.0)
        assert leaf not in values.backup, "a leaf has no branches to back up from"
        with pytest.raises(MissingValue, match="node 4 has no backup value"):
            values.backup[leaf]
        assert [node.node_id for node in values.backup] == [0, 1]
        assert (len(values.prior), len(values.backup), values.gamma) == (5, 2, 0.5)
        return [0.0] * len(edges)

    prepare(TREE, Answering(look), RewardConfig(gamma=0.5), Constant(0.25))
    assert [(edge.parent.node_id, edge.node.node_id, edge.duration) for edge in seen] == [
        (0, 2, 7),
        (1, 3, 2),
        (1, 4, 3),
        (0, 1, 5),
    ]
    assert seen[1].node == Node(node_id=3, parent_id=1, depth=2, score=None, leaf_kind="open", edge_id=6)
    assert seen[0].parent == Node(node_id=0, parent_id=None, depth=0, score=1.0, leaf_kind=None, edge_id=None)
    assert [edge.node.completed for edge in seen] == [False, False, True, False]


@pytest.mark.parametrize(
    "answer",
    [
        [1.0, None, Advantage(-2.0, {"why": 3}), 0],
        (1.0, None, Advantage(-2.0, {"why": 3}), 0),
        iter([1.0, None, Advantage(-2.0, {"why": 3}), 0]),
        [np.float32(1), None, Advantage(np.float64(-2), {"why": np.float64(3)}), np.int64(0)],
    ],
    ids=["list", "tuple", "iterator", "numpy"],
)
def test_what_a_recipe_may_answer(answer: Any) -> None:
    batch = prepare(TREE, Answering(lambda edges, values: answer))
    table = batch.edge_table().to_pylist()
    assert [row["advantage"] for row in table] == [1.0, None, -2.0, 0.0]
    assert [dict(row["diagnostics"]) for row in table] == [{}, {}, {"why": 3.0}, {}]
    assert batch.advantage_by_edge() == {4: 1.0, 6: None, 8: -2.0, 10: 0.0}
    assert list(batch.advantages) == [Advantage(1.0), None, Advantage(-2.0, {"why": 3.0}), Advantage(0.0)]


def test_an_array_is_an_answer_too() -> None:
    assert [row["advantage"] for row in rows(Answering(lambda edges, values: np.arange(4)))] == [0.0, 1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    ("answer", "edge", "problem"),
    [
        ([1.0, 2.0], 8, "gave 2 advantages for 4 edges"),
        ([1.0] * 5, 10, "gave 5 advantages for 4 edges"),
        ([], 4, "gave 0 advantages for 4 edges"),
        (None, 4, "gave a NoneType for 4 edges"),
        ({4: 1.0}, 4, "gave a dict for 4 edges"),
        ("1234", 4, "gave a str for 4 edges"),
        (1.0, 4, "gave a float for 4 edges"),
        ([0.0, float("nan"), 0.0, 0.0], 6, "gave nan"),
        ([0.0, 0.0, float("-inf"), 0.0], 8, "gave an infinite advantage"),
        ([0.0, 0.0, 0.0, Advantage(float("nan"))], 10, "gave Advantage"),
        ([0.0, "0.5", 0.0, 0.0], 6, "gave '0.5'"),
        ([0.0, True, 0.0, 0.0], 6, "gave True"),
        (np.array([0.0, np.nan, 0.0, 0.0]), 6, "gave np.float64\\(nan\\)"),
        ([Advantage(0.0, {"why": float("inf")}), 0.0, 0.0, 0.0], 4, "gave the diagnostic 'why' = inf"),
        ([Advantage(0.0, {"why": "so"}), 0.0, 0.0, 0.0], 4, "gave the diagnostic 'why' = 'so'"),  # type: ignore[dict-item]
    ],
)
def test_a_wrong_answer_is_told_with_estimator_root_and_edge(answer: Any, edge: int, problem: str) -> None:
    with pytest.raises(BadInput, match=f"^estimator answering, root {ROOT}, edge {edge} .*: {problem}"):
        prepare(TREE, Answering(lambda edges, values: answer))


def test_a_tree_without_edges_asks_no_recipe() -> None:
    def never(edges: Sequence[Edge], values: TreeValues) -> list[float]:
        raise AssertionError("asked about nothing")

    assert list(prepare(explored([N(score=1.0, leaf="open")]), Answering(never)).advantages) == []


def test_a_recipe_that_requires_completed_paths_is_asked_only_about_edges_on_them() -> None:
    def child_ids(edges: Sequence[Edge], values: TreeValues) -> list[Advantage]:
        return [Advantage(float(edge.node.node_id), {"asked": 1.0}) for edge in edges]

    table = rows(Answering(child_ids, completed=True))
    assert [(row["child_id"], row["advantage"]) for row in table] == [(2, None), (3, None), (4, 4.0), (1, 1.0)]
    assert [dict(row["diagnostics"]) for row in table] == [{}, {}, {"asked": 1.0}, {"asked": 1.0}]
    open_only = explored([N(score=1.0), N(0, 1.0, leaf="open")])
    assert list(prepare(open_only, Answering(child_ids, completed=True)).advantages) == [None]


def test_errors_of_a_recipe_about_completed_paths_name_the_right_edge() -> None:
    with pytest.raises(BadInput, match=r"edge 10 \(node 0 to node 1\): gave nan"):
        prepare(TREE, Answering(lambda edges, values: [0.0, float("nan")], completed=True))


def test_direct_branch_td_without_a_prior_at_a_parent_names_it() -> None:
    with pytest.raises(BadInput) as refused:
        prepare(TREE, DirectBranchTd(), value_model=Silent(1))
    assert str(refused.value).startswith(
        f"estimator direct_branch_td, root {ROOT}, edge 6 (node 1 to node 3): node 1 has no prior value; "
    )


def test_direct_branch_td_needs_a_prior_at_open_leaves_and_at_parents_even_of_no_weight() -> None:
    with pytest.raises(BadInput, match=r"edge 4 \(node 0 to node 2\): node 2 has no prior"):
        prepare(TREE, DirectBranchTd(), value_model=Silent(2))
    with pytest.raises(BadInput, match=r"edge 4 \(node 0 to node 2\): node 0 has no prior"):
        prepare(TREE, DirectBranchTd(), RewardConfig(value_prior_strength=0), Silent(0))


def test_grpo_does_without_priors_and_targets_stay_where_they_do_not_depend_on_one() -> None:
    batch = prepare(TREE, Grpo(), value_model=Silent(0, 1))
    assert [row["advantage"] for row in batch.edge_table().to_pylist()] == [None, None, 0.0, 0.0]
    critic = {row["node_id"]: (row["prior"], row["target"], row["refined"]) for row in batch.critic_table().to_pylist()}
    assert critic[0] == (None, None, None), "its branch through node 1 has no value"
    assert critic[1] == (None, pytest.approx(critic[1][1]), None), "a target, from branches that have theirs"
    assert critic[1][1] is not None
    assert critic[2] == (0.5, None, 0.5)


def test_a_recipe_that_looks_up_a_missing_value_is_told_with_the_edge() -> None:
    def look(edges: Sequence[Edge], values: TreeValues) -> list[float]:
        return [values.refined[edge.parent] for edge in edges]

    with pytest.raises(BadInput) as refused:
        prepare(TREE, Answering(look), value_model=Silent(1))
    assert "edge 4 (node 0 to node 2): node 0 has no refined value (no prior at node 1); " in str(refused.value)
    with pytest.raises(BadInput, match="node 4 has no backup value; a leaf has no backup"):
        prepare(TREE, Answering(lambda edges, values: [values.backup[edges[2].node]] * 4))


def test_an_error_of_the_recipe_itself_stays_what_it_is() -> None:
    def broken(edges: Sequence[Edge], values: TreeValues) -> list[float]:
        return [dict[str, float]()["no such thing"]]

    with pytest.raises(KeyError, match="no such thing"):
        prepare(TREE, Answering(broken))


@pytest.mark.parametrize("estimator", [DirectBranchTd(), Grpo()])
def test_our_recipes_work_on_any_edges_of_the_tree_in_any_order(estimator: Estimator) -> None:
    batch = prepare(TREE, estimator, RewardConfig(gamma=0.9), Constant(0.3))
    plain = [
        Edge(edge.node, edge.parent, edge.reward, edge.duration)
        for edge in reversed(batch.edges)
        if not estimator.requires_completed_paths or edge.node.node_id in (1, 4)
    ]
    by_child = {edge.node: advantage for edge, advantage in zip(batch.edges, batch.advantages, strict=True)}
    assert list(estimator.advantages(plain, batch.values)) == [by_child[edge.node] for edge in plain]


def test_a_changed_reward_is_the_one_that_counts() -> None:
    batch = prepare(TREE, DirectBranchTd(), value_model=Constant(0.3))
    richer = [dataclasses.replace(edge, reward=edge.reward + 1) for edge in batch.edges]
    found = DirectBranchTd().advantages(richer, batch.values)
    assert [a.value for a in found if a] == pytest.approx([a.value + 1 for a in batch.advantages if a])
