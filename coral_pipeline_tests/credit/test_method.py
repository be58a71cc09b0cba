"""Rewards, values and advantages by the method (C1–C5): by hand, and against a literal second implementation."""

from __future__ import annotations

import dataclasses
import math
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coral_pipeline.credit import Batch, Constant, DirectBranchTd, Estimator, Grpo, RewardConfig, prepare
from coral_pipeline.credit.rewards import edge_rewards, node_ranks
from coral_pipeline_tests.credit.literal import Literal
from coral_pipeline_tests.random_trees import random_nodes
from coral_pipeline_tests.trees import N, explored

SOFT_ONLY = RewardConfig(gain_weight=0, soft_weight=1)
"""An edge's reward is its soft score: what a test writes is what it gets."""


def values(batch: Batch) -> dict[int, tuple[Any, Any, Any]]:
    """(prior, target, refined) by node id."""
    return {row["node_id"]: (row["prior"], row["target"], row["refined"]) for row in batch.critic_table().to_pylist()}


def advantages(batch: Batch) -> list[float | None]:
    """By the id of the child, as ``write_tree`` numbers the edges."""
    return list(batch.advantage_by_edge().values())


def test_rewards_worked_by_hand() -> None:
    # Scores 2, 4, none, 2, 8: ranks 1/4 for the tied pair, (2 + .5) / 4 for 4, (3 + .5) / 4 for 8.
    nodes = [N(score=2.0), N(0, 4.0), N(0, None), N(2, 2.0), N(2, 8.0, soft=0.9)]
    tree = explored(nodes)
    assert node_ranks(tree).tolist() == [0.25, 0.625, 0.25, 0.25, 0.875], "node 2 takes its parent's"
    assert edge_rewards(tree, RewardConfig())[1:].tolist() == [0.375, 0.0, 0.0, 0.625]
    weighed = edge_rewards(tree, RewardConfig(gain_weight=2, soft_weight=0.5))
    assert weighed[1:].tolist() == pytest.approx([2 * 0.375 + 0.25, 0.25, 0.25, 2 * 0.625 + 0.45], abs=1e-15)


def test_a_missing_score_takes_the_rank_of_the_nearest_ancestor_that_has_one() -> None:
    nodes = [N(score=1.0), N(0, 3.0), N(1, None), N(2, None), N(3, 1.0)]
    assert node_ranks(explored(nodes)).tolist() == [1 / 3, 2.5 / 3, 2.5 / 3, 2.5 / 3, 1 / 3]
    assert edge_rewards(explored(nodes), RewardConfig())[1:].tolist() == [0.5, 0.0, 0.0, 1 / 3 - 2.5 / 3]


def test_minimising_rewards_lower_scores() -> None:
    assert edge_rewards(explored([N(score=2.0), N(0, 1.0)], direction="minimize"), RewardConfig())[1] == 0.5


def test_the_seeds_example() -> None:
    """kappa = 1, a prediction of 0.8 and two continuations returning 0 and 1: target 0.5, refined value 0.6."""
    batch = prepare(
        explored([N(score=0.0), N(0, 1.0, soft=0), N(0, 1.0, soft=1)]), DirectBranchTd(), SOFT_ONLY, Constant(0.8)
    )
    prior, target, refined = values(batch)[0]
    assert (prior, target) == (0.8, 0.5)
    assert refined == pytest.approx(0.6, abs=1e-15)
    assert advantages(batch) == pytest.approx([-0.6, 0.4], abs=1e-15)


def test_values_worked_by_hand_children_before_parents() -> None:
    #   root ── 1 (open, d = 2)
    #      └─── 2 (d = 1) ── 3 (good, d = 3)
    nodes = [N(score=0.0), N(0, 0.0, "open", 2, soft=0.5), N(0, 0.0, steps=1, soft=1.0), N(2, 0.0, steps=3, soft=0.25)]
    batch = prepare(
        explored(nodes), DirectBranchTd(), RewardConfig(gain_weight=0, soft_weight=1, gamma=0.5), Constant(0.4)
    )
    # Node 3: terminal, 0. Node 2: target .25 + .5^3 * 0, refined (.4 + .25) / 2. Node 1: open, the prior.
    # Root: returns .5 + .25 * .4 = .6 and 1 + .5 * .325 = 1.1625, target .88125, refined (.4 + 2 * .88125) / 3.
    found = values(batch)
    assert found[3] == (0.0, None, 0.0)
    assert found[1] == (0.4, None, 0.4)
    assert found[2] == (0.4, 0.25, pytest.approx(0.325, abs=1e-15))
    assert found[0] == (0.4, pytest.approx(0.88125, abs=1e-15), pytest.approx(2.1625 / 3, abs=1e-15))
    root = 2.1625 / 3
    assert advantages(batch) == pytest.approx([0.6 - root, 1.1625 - root, 0.25 - 0.325], abs=1e-15)
    assert [row["direct_branches"] for row in batch.critic_table().to_pylist()] == [2, 0, 1, 0]


def test_kappa_zero_trusts_the_branches_and_leaves_the_prior_to_open_leaves() -> None:
    nodes = [N(score=0.0), N(0, 0.0, soft=0.25), N(0, 0.0, soft=0.75, leaf="open")]
    batch = prepare(
        explored(nodes), DirectBranchTd(), SOFT_ONLY.model_copy(update={"value_prior_strength": 0.0}), Constant(2.0)
    )
    assert values(batch) == {0: (2.0, 1.5, 1.5), 1: (0.0, None, 0.0), 2: (2.0, None, 2.0)}


def test_gamma_zero_sees_only_the_reward_but_for_branches_of_no_length() -> None:
    nodes = [N(score=0.0), N(0, 0.0, "open", 1, soft=0.25), N(0, 0.0, "open", 0, soft=0.25)]
    batch = prepare(
        explored(nodes), DirectBranchTd(), RewardConfig(gain_weight=0, soft_weight=1, gamma=0), Constant(1.0)
    )
    assert [row["value_after"] for row in map(dict, batch.edge_table()["diagnostics"].to_pylist())] == [0.25, 1.25]


def test_grpo_worked_by_hand() -> None:
    # Ranks of 1, 2, 0, 3: .375, .625, .125, .875. Good leaves 2 and 3 return -.25 and .25 + .25: mean .125, std .375.
    nodes = [N(score=1.0), N(0, 2.0), N(0, 0.0), N(1, 3.0)]
    a = 0.375 / (0.375 + 1e-6)
    batch = prepare(explored(nodes), Grpo())
    assert advantages(batch) == pytest.approx([a, -a, a], abs=1e-15)
    diagnostics = list(map(dict, batch.edge_table()["diagnostics"].to_pylist()))
    assert diagnostics[0] == {"mean_return": 0.5, "good_leaves": 1.0}


def test_grpo_discounts_from_the_root_on() -> None:
    # The reward of the edge to 3 comes after the 2 steps to 1, so it counts a quarter; its own 7 steps do not matter.
    nodes = [N(score=1.0), N(0, 2.0, steps=2), N(0, 0.0, steps=9), N(1, 3.0, steps=7)]
    batch = prepare(explored(nodes), Grpo(), RewardConfig(gamma=0.5))
    returns = [0.25 + 0.25 * 0.25, -0.25]
    mean, half = sum(returns) / 2, (returns[0] - returns[1]) / 2
    assert advantages(batch)[0] == pytest.approx((returns[0] - mean) / (half + 1e-6), abs=1e-15)


def test_grpo_leaves_edges_without_a_good_leaf_below_unassigned() -> None:
    nodes = [N(score=1.0), N(0, 2.0), N(0, 0.0), N(1, 3.0, leaf="open"), N(2, 3.0)]
    batch = prepare(explored(nodes), Grpo())
    assert advantages(batch) == [None, 0.0, None, 0.0]
    assert advantages(prepare(explored([N(score=1.0), N(0, 2.0, leaf="open")]), Grpo())) == [None]


def test_grpo_of_equal_returns_is_exactly_zero_though_their_sums_round_differently() -> None:
    # Every path ends in the same score, so every return is rank(8) - rank(0) but for rounding.
    nodes = [N(score=0.0), N(0, 1.0), N(0, 2.0), N(0, 8.0), N(1, 8.0), N(2, 5.0), N(5, 8.0)]
    tree = explored(nodes)
    rewards = edge_rewards(tree, RewardConfig())
    literal = Literal(nodes, RewardConfig(), 0.0)
    assert len({literal.path_return(leaf) for leaf in literal.good_leaves(0)}) > 1, "else this tests nothing"
    assert advantages(prepare(tree, Grpo())) == [0.0] * 6
    assert len(rewards) == 7
    # And the mean of three equal numbers need not be that number: (.1 + .1 + .1) / 3 > .1.
    assert math.fsum([0.1] * 3) / 3 != 0.1
    star = [N(score=0.0)] + [N(0, 0.0, soft=0.1)] * 3
    assert advantages(prepare(explored(star), Grpo(), SOFT_ONLY)) == [0.0] * 3


def test_grpo_tells_returns_apart_that_differ_by_less_than_its_offset() -> None:
    nodes = [N(score=0.0), N(0, 1.0), N(0, 2.0), N(0, 3.0)]
    tiny = RewardConfig(gain_weight=1e-12)
    literal = Literal(nodes, tiny, 0.0)
    found = advantages(prepare(explored(nodes), Grpo(), tiny))
    assert found == pytest.approx([literal.grpo(k) for k in (1, 2, 3)], rel=1e-6)
    assert 0.0 not in (found[0], found[2])


def test_a_root_alone_has_values_and_no_edges() -> None:
    for estimator in (DirectBranchTd(), Grpo()):
        batch = prepare(explored([N(score=1.0, leaf="open")]), estimator, value_model=Constant(0.25))
        assert values(batch) == {0: (0.25, None, 0.25)}
        assert batch.edge_table().num_rows == 0


CONFIGS = st.builds(
    RewardConfig,
    value_prior_strength=st.sampled_from([0.0, 0.5, 1.0, 3.0]),
    gamma=st.sampled_from([1.0, 0.99, 0.5, 0.0]),
    gain_weight=st.sampled_from([1.0, 0.5]),
    soft_weight=st.sampled_from([0.0, 0.3]),
)


@settings(max_examples=80, deadline=None)
@given(random_nodes(), CONFIGS, st.floats(-2, 2), st.sampled_from(["maximize", "minimize"]))
def test_all_numbers_are_those_of_a_literal_recursion(
    nodes: list[N], config: RewardConfig, prior: float, direction: Any
) -> None:
    tree = explored(nodes, direction=direction)
    td, grpo = (prepare(tree, estimator, config, Constant(prior)) for estimator in (DirectBranchTd(), Grpo()))
    literal = Literal(nodes, config, prior, sign=1.0 if direction == "maximize" else -1.0)
    edges = range(1, len(nodes))
    rows = td.edge_table().to_pylist()
    assert [row["reward"] for row in rows] == pytest.approx([literal.reward(k) for k in edges], abs=1e-12)
    assert [row["duration"] for row in rows] == [nodes[k].steps for k in edges]
    for node, (found_prior, target, refined) in values(td).items():
        assert found_prior == literal.prior(node)
        assert refined == pytest.approx(literal.refined(node), abs=1e-12)
        expected = literal.backup(node)
        assert target is expected is None or target == pytest.approx(expected, abs=1e-12)
    assert advantages(td) == pytest.approx([literal.direct_branch_td(k) for k in edges], abs=1e-12)
    for found, wanted in zip(advantages(grpo), [literal.grpo(k) for k in edges], strict=True):
        # Where the returns are all equal the literal recursion divides rounding errors by 1e-6; ours are 0.
        assert found is wanted is None or found == pytest.approx(wanted, abs=1e-9)


@settings(max_examples=40, deadline=None)
@given(random_nodes(), CONFIGS, st.randoms(use_true_random=False))
def test_the_order_of_the_rows_changes_nothing(nodes: list[N], config: RewardConfig, shuffle: random.Random) -> None:
    for estimator in (DirectBranchTd(), Grpo()):
        forth, back = (prepare(explored(nodes, shuffle=s), estimator, config, Constant(0.1)) for s in (None, shuffle))
        assert forth.edge_table().equals(back.edge_table())
        assert forth.critic_table().equals(back.critic_table())


@settings(max_examples=40, deadline=None)
@given(random_nodes(), CONFIGS)
def test_minimising_is_maximising_the_negated_scores(nodes: list[N], config: RewardConfig) -> None:
    negated = [dataclasses.replace(n, score=None if n.score is None else -n.score) for n in nodes]
    for estimator in (DirectBranchTd(), Grpo()):
        forth = prepare(explored(nodes), estimator, config)
        back = prepare(explored(negated, direction="minimize"), estimator, config)
        assert forth.edge_table().equals(back.edge_table())
        assert forth.critic_table().equals(back.critic_table())


@settings(max_examples=40, deadline=None)
@given(random_nodes(), CONFIGS)
def test_critic_targets_do_not_depend_on_the_estimator(nodes: list[N], config: RewardConfig) -> None:
    class Nothing(Estimator):
        def advantages(self, edges: Any, values: Any) -> list[None]:
            return [None] * len(edges)

    tree = explored(nodes)
    tables = [prepare(tree, e, config, Constant(0.3)).critic_table() for e in (DirectBranchTd(), Grpo(), Nothing())]
    assert tables[0].equals(tables[1])
    assert tables[0].equals(tables[2])


@settings(max_examples=40, deadline=None)
@given(random_nodes(), CONFIGS)
def test_without_prior_strength_siblings_advantages_cancel(nodes: list[N], config: RewardConfig) -> None:
    config = config.model_copy(update={"value_prior_strength": 0.0})
    rows = prepare(explored(nodes), DirectBranchTd(), config, Constant(0.7)).edge_table().to_pylist()
    for parent in {row["parent_id"] for row in rows}:
        siblings = [row["advantage"] for row in rows if row["parent_id"] == parent]
        assert math.fsum(siblings) == pytest.approx(0.0, abs=1e-12)


@settings(max_examples=40, deadline=None)
@given(random_nodes(), CONFIGS)
def test_grpo_is_centred_over_the_good_leaves(nodes: list[N], config: RewardConfig) -> None:
    """The root's edges, weighed by the good leaves below them, cancel."""
    rows = prepare(explored(nodes), Grpo(), config).edge_table().to_pylist()
    assigned = [row for row in rows if row["parent_id"] == 0 and row["advantage"] is not None]
    total = math.fsum(row["advantage"] * dict(row["diagnostics"])["good_leaves"] for row in assigned)
    assert total == pytest.approx(0.0, abs=1e-8)


def test_a_chain_of_twenty_thousand_edges() -> None:
    nodes = [N(score=0.0)] + [N(k, float(k % 7), soft=0.5) for k in range(20_000)]
    tree = explored(nodes)
    td, grpo = (prepare(tree, e, RewardConfig(gamma=0.9)) for e in (DirectBranchTd(), Grpo()))
    assert np.isfinite(td.advantages.values).all()
    assert set(advantages(grpo)) == {0.0}, "one leaf, nothing to compare it with"


def test_a_star_of_twenty_thousand_leaves() -> None:
    nodes = [N(score=0.0)] + [N(0, float(k)) for k in range(20_000)]
    batch = prepare(explored(nodes), Grpo())
    assert float(batch.advantages.values.mean()) == pytest.approx(0.0, abs=1e-9)
    assert values(batch)[0][1] == pytest.approx(float(batch.edges.reward.mean()), abs=1e-12)
