"""Whole trees worked out by hand, one per stop reason."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coral_pipeline_tests.search.growing import ROOT, Grown, grow, turn


def shape(tree: Grown) -> list[tuple[int, int, int | None, int]]:
    """(parent, expansion, child, round) of every edge, in the order of edge ids."""
    return [(e["parent_id"], e["expansion"], e["child_id"], e["round"]) for e in tree.edges]


def selects(tree: Grown, round: int) -> list[tuple[int, float]]:
    return [(r["node_id"], r["select"]) for r in tree.rounds if r["round"] == round]


def near(pairs: list[tuple[int, float]]) -> list[tuple[int, object]]:
    return [(node, pytest.approx(select, abs=1e-9)) for node, select in pairs]


def test_a_tree_that_reaches_its_target_of_good_leaves() -> None:
    script = {
        "0": [turn(2.0, tokens=30_000), turn(2.0, tokens=50_000)],
        "1": [turn(1.0, tokens=60_000), turn(1.0, tokens=100_000)],
        "2": [turn(0.5, tokens=10_000), turn(1.5, tokens=20_000)],
        "2.0": [turn(3.0, tokens=40_000), turn(2.0, tokens=60_000)],
        "0.0": [turn(None, tokens=70_000), turn(None, tokens=90_000)],
        "0.1": [turn(2.5, tokens=80_000), turn(2.5, tokens=100_000)],
        "2.0.0": [turn(None, tokens=70_000)],
    }
    tree = grow(script, target_good_leaf_count=2, parallel_width=2)

    # Round 1 makes nodes 1, 2, 3 with scores 2, 1, 1.5; node 2 has a full context: the first good leaf.
    # soft: 0: improved, clean, no knowledge      0.3 + 0.2 + 0.16 + 0.3  = 0.96
    #       2: improved, first turn under the root 0.3 + 0.2 + 0.16 + 0.15 = 0.81
    # Round 2 ranks nodes 1 and 3. Scores and path bests are both {1, 2, 1, 1.5}: ranks 3.5/4 and 2.5/4.
    #   node 1: 0.7·0.875 + 0.3·0.96 = 0.9005, of 50,000 and 20,000 tokens T = 0.25: 1.0255
    #   node 3: 0.7·0.625 + 0.3·0.81 = 0.6805,                             T = 0.75: 1.0555
    assert selects(tree, 2) == near([(3, 1.0555), (1, 1.0255)])
    # Each gets one: node 4 (score 3) below 3; node 5 below 1 fails twice but depth 2 is exempt: no score.
    # soft: 2.0: improved, second turn under the first 0.81; 0.0: 0.21 + 0.2 + 0.08 + 0 = 0.49
    # Round 3, scores {1, 2, 1, 1.5, 3}, path bests {1, 2, 1, 1.5, 3, 2}, tokens 50, 20, 60, 90 thousand.
    #   node 1: 0.4·3.5/5 + 0.3·4/6   + 0.3·0.96  = 0.768,  T = 2.5/4: 1.0805
    #   node 3: 0.4·2.5/5 + 0.3·2.5/6 + 0.3·0.81  = 0.568,  T = 3.5/4: 1.0055
    #   node 4: 0.4·4.5/5 + 0.3·5.5/6 + 0.3·0.81  = 0.878,  T = 1.5/4: 1.0655
    #   node 5: 0         + 0.3·4/6   + 0.3·0.725 = 0.4175, T = 0.5/4: 0.48
    assert selects(tree, 3) == near([(1, 1.0805), (4, 1.0655), (3, 1.0055), (5, 0.48)])
    # Two slots: node 6 below 1, its context full, the second good leaf; the edge below 4 fails at depth 3.
    assert shape(tree) == [
        (0, 0, 1, 1),
        (0, 1, 2, 1),
        (0, 2, 3, 1),
        (3, 0, 4, 2),
        (1, 0, 5, 2),
        (1, 1, 6, 3),
        (4, 0, None, 3),
    ]
    assert tree.stop_reason == "leaf_target"
    assert [n["leaf_kind"] for n in tree.nodes] == [None, None, "token_limit", None, "open", "open", "token_limit"]
    assert [n["score"] for n in tree.nodes] == [1.0, 2.0, 1.0, 1.5, 3.0, None, 2.5]
    assert [n["path_best_score"] for n in tree.nodes] == [1.0, 2.0, 1.0, 1.5, 3.0, 2.0, 2.5]
    assert [n["kept_by"] for n in tree.nodes] == [None, None, None, None, None, "exemption", None]
    assert [n["failed_expansions"] for n in tree.nodes] == [0, 0, 0, 0, 1, 0, 0]


def test_a_minimised_tree_that_spends_its_budget() -> None:
    script = {
        "0": [turn(9.0), turn(None)],
        "1": [turn(12.0), turn(11.0, tokens=30_000)],
        "2": [turn(10.0, knows=True), turn(10.0, knows=True, tokens=10_000)],
        "3": [turn(9.0, failed=4), turn(8.0, failed=4, tokens=30_000)],
    }
    tree = grow(
        script,
        default=turn(7.0),
        root=replace(ROOT, score=10.0),
        direction="minimize",
        max_logical_edges=6,
        parallel_width=4,
    )
    # Direction 0 fails without a score; its second try has 8 of 20 calls failed and is kept: node 1, score 8.
    # soft 3: improved; cleanliness 0.8 − 0.5·(0.4/0.3) is under 0.3: 0.3 + 0.06 + 0.16 + 0.3 = 0.82
    # soft 1: worse than the root twice:                             0.21 + 0.2 + 0.08 + 0    = 0.49
    # soft 2: equal to the root, knowledge in both turns:            0.21 + 0.2 + 0.12 + 0.3  = 0.83
    # Round 2, negated scores {-10, -8, -11, -10}, path bests {-10, -8, -10, -10}, tokens 30, 30, 10 thousand:
    #   node 1: 0.4·3.5/4 + 0.3·3.5/4 + 0.3·0.82 = 0.8585, T = 1/3:   1.025166…
    #   node 2: 0.4·0.5/4 + 0.3·1.5/4 + 0.3·0.49 = 0.3095, T = 1/3:   0.476166…
    #   node 3: 0.4·2/4   + 0.3·1.5/4 + 0.3·0.83 = 0.5615, T = 2.5/3: 0.978166…
    assert selects(tree, 2) == near([(1, 0.8585 + 1 / 6), (3, 0.5615 + 2.5 / 6), (2, 0.3095 + 1 / 6)])
    # Four slots, but three edges are left.
    assert shape(tree) == [
        (0, 0, None, 1),
        (0, 1, 2, 1),
        (0, 2, 3, 1),
        (0, 3, 1, 1),
        (1, 0, 4, 2),
        (3, 0, 5, 2),
        (2, 0, 6, 2),
    ]
    assert tree.stop_reason == "edge_budget"
    assert tree.selected(1) == [(0, 4)]
    assert [n["kept_by"] for n in tree.nodes][:4] == [None, "fallback", None, None]
    assert [e["failure_reason"] for e in tree.edges] == ["no_score", None, None, "tool_errors", None, None, None]
    assert [n["path_best_score"] for n in tree.nodes] == [10.0, 8.0, 10.0, 10.0, 7.0, 7.0, 7.0]


def test_a_tree_that_runs_out_of_candidates() -> None:
    full = [turn(tokens=100_000), turn(tokens=120_000)]
    script = {
        "1": full,
        "2": full,
        "0.1": full,
        "0.0.0": [turn(), turn(None)],
        "0.0.1": [turn(calls=5, failed=5), turn(calls=10, failed=0)],
    }
    tree = grow(script)
    # Round 1: nodes 1, 2, 3, of which 2 and 3 are full. Round 2: node 1 takes both its children, 4 and 5; 5 is full.
    # Round 3: node 4 takes two at once, and both fail (no score; 5 of 15 calls): it is closed without a child.
    assert shape(tree) == [
        (0, 0, 1, 1),
        (0, 1, 2, 1),
        (0, 2, 3, 1),
        (1, 0, 4, 2),
        (1, 1, 5, 2),
        (4, 0, None, 3),
        (4, 1, None, 3),
    ]
    assert tree.stop_reason == "exhausted"
    assert [n["leaf_kind"] for n in tree.nodes] == [
        None,
        None,
        "token_limit",
        "token_limit",
        "exhausted",
        "token_limit",
    ]
    assert [e["failure_reason"] for e in tree.edges[5:]] == ["no_score", "tool_errors"]
