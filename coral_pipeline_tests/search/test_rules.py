"""Each rule of the search by a tree of its own (method T1–T14). Edge ``0.1``: second fork of the first direction."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coral_pipeline_tests.search.growing import ROOT, ROUND_ONE_ONLY, grow, turn

GOOD = [turn(), turn()]
"""Two turns that pass: they equal the root's score."""
FULL = [turn(tokens=100_000), turn(tokens=100_000)]
"""Passes, and leaves a node with a full context: a leaf."""
NO_SCORE = [turn(None), turn(None)]
TOOL_ERRORS = [turn(calls=10, failed=4), turn(calls=10, failed=3)]
"""7 of 20 calls failed: 0.35."""


def test_t1_the_root_has_the_snapshots_score_no_tokens_and_no_session() -> None:
    tree = grow(**ROUND_ONE_ONLY)
    assert tree.nodes[0] == {
        "node_id": 0,
        "parent_id": None,
        "depth": 0,
        "score": 1.0,
        "path_best_score": 1.0,
        "max_token_total": 0,
        "valid_children": 3,
        "failed_expansions": 0,
        "leaf_kind": None,
        "kept_by": None,
        "commit_hash": "0123456789abcdef",
        "session_id": None,
    }
    assert tree.teacher.forked == {"0": None, "1": None, "2": None}, "directions are forked from the root's own state"


def test_t2_an_edge_adds_up_its_two_turns() -> None:
    first = turn(1.5, calls=7, failed=1, tokens=900, step_turns=4, seconds=1.5, commit_hash="aaa", session_id="s1")
    second = turn(1.25, calls=3, failed=0, tokens=2100, step_turns=5, seconds=2.0, commit_hash="bbb", session_id="s2")
    tree = grow({"0": [first, second]}, **ROUND_ONE_ONLY)
    edge = tree.edge(0, 0)
    assert (edge["best_score"], edge["step_turns"], edge["tool_calls"], edge["failed_tool_calls"]) == (1.5, 9, 10, 1)
    assert (edge["tool_error_rate"], edge["max_token_total"], edge["seconds"]) == (0.1, 2100, 3.5)
    child = tree.nodes[1]
    assert (child["score"], child["max_token_total"]) == (1.5, 2100)
    assert (child["commit_hash"], child["session_id"]) == ("bbb", "s2"), "the state is that after the second turn"


@pytest.mark.parametrize(
    ("direction", "turns", "best"),
    [
        ("maximize", [turn(0.5), turn(0.75)], 0.75),
        ("minimize", [turn(0.5), turn(0.75)], 0.5),
        ("maximize", [turn(0.5), turn(None)], 0.5),
        ("minimize", [turn(None), turn(0.0)], 0.0),
        ("maximize", NO_SCORE, None),
    ],
)
def test_t2_best_score_is_the_better_of_the_numeric_ones(direction, turns, best) -> None:
    script = {"0": turns, "3": turns}
    tree = grow(script, direction=direction, **ROUND_ONE_ONLY)
    edge = tree.edge(0, 3) if None in (turns[0].score, turns[1].score) else tree.edge(0, 0)
    assert edge["best_score"] == best


def test_t2_an_edge_without_calls_has_no_tool_errors() -> None:
    tree = grow({"0": [turn(calls=0), turn(calls=0)]}, **ROUND_ONE_ONLY)
    assert (tree.edge(0, 0)["tool_error_rate"], tree.edge(0, 0)["cleanliness"]) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("turns", "reason"),
    [
        ([turn(None), turn()], "no_score"),
        ([turn(), turn(None)], "no_score"),
        (TOOL_ERRORS, "tool_errors"),
        ([turn(None, failed=10), turn(None, failed=10)], "no_score"),
        ([turn(calls=10, failed=6), turn(calls=10, failed=0)], None),  # 6 of 20 is 0.30: not over the limit
        ([turn(calls=100, failed=31), turn(calls=100, failed=30)], "tool_errors"),
    ],
)
def test_t3_an_edge_fails_without_a_score_or_with_too_many_tool_errors(turns, reason) -> None:
    tree = grow({"1": turns}, **ROUND_ONE_ONLY)
    edge = tree.edge(0, 1)
    assert edge["failure_reason"] == reason
    assert (edge["child_id"] is None) == (reason is not None)


def test_t3_a_prunable_edge_whose_first_turn_has_no_score_ends_there() -> None:
    tree = grow({"1": [turn(None, calls=4, failed=1, tokens=700), turn()]}, **ROUND_ONE_ONLY)
    failed = tree.edge(0, 1)
    assert [row["turn"] for row in tree.turns if row["edge_id"] == failed["edge_id"]] == [1]
    assert ("1", 2) not in tree.teacher.asked
    assert (failed["tool_calls"], failed["step_turns"], failed["max_token_total"]) == (4, 3, 700)
    assert failed["regressed_rate"] == 1.0, "a turn that was not run has no score, and so regressed"
    assert failed["has_knowledge_action"] is False


def test_t3_an_edge_that_cannot_be_pruned_runs_both_turns() -> None:
    tree = grow({"1": NO_SCORE, "3": NO_SCORE}, **ROUND_ONE_ONLY)
    assert ("1", 2) not in tree.teacher.asked, "a first try is prunable"
    assert ("3", 2) in tree.teacher.asked, "a second try is not"


def test_t4_a_failed_direction_is_tried_once_more_from_the_root() -> None:
    tree = grow({"1": NO_SCORE, "3": [turn(1.5), turn(1.5)]}, **ROUND_ONE_ONLY)
    # Dispatch order gives the edge ids, the order of the directions gives the node ids.
    assert [(e["edge_id"], e["expansion"], e["child_id"]) for e in tree.edges] == [
        (0, 0, 1),
        (1, 1, None),
        (2, 2, 3),
        (3, 3, 2),
    ]
    assert {e["round"] for e in tree.edges} == {1}
    assert tree.edge(0, 3)["kept_by"] is None, "the second try passed"
    assert tree.teacher.forked["3"] is None, "forked afresh from the root"
    assert tree.nodes[0]["failed_expansions"] == 1
    assert [n["score"] for n in tree.nodes] == [1.0, 1.0, 1.5, 1.0]


def test_t4_second_tries_take_the_next_ordinals_in_the_order_of_their_directions() -> None:
    tree = grow({"0": NO_SCORE, "2": TOOL_ERRORS}, **ROUND_ONE_ONLY)
    assert [(e["expansion"], e["child_id"]) for e in tree.edges] == [(0, None), (1, 2), (2, None), (3, 1), (4, 3)]
    assert tree.selected(1) == [(0, 5)], "five forks were taken from the root"


@pytest.mark.parametrize(("second", "reason"), [(NO_SCORE, "no_score"), (TOOL_ERRORS, "tool_errors")])
def test_t4_the_second_try_gives_a_child_even_where_it_fails(second, reason) -> None:
    tree = grow({"2": NO_SCORE, "3": second}, **ROUND_ONE_ONLY)
    kept, child = tree.edge(0, 3), tree.nodes[3]
    assert (kept["child_id"], kept["failure_reason"], kept["kept_by"]) == (3, reason, "fallback")
    assert (child["kept_by"], child["score"]) == ("fallback", second[0].score)
    assert tree.nodes[0]["failed_expansions"] == 1, "a kept edge is no failed expansion"


def test_t4_failures_never_close_the_root() -> None:
    tree = grow(default=turn(None), max_logical_edges=9)
    assert (tree.nodes[0]["failed_expansions"], tree.nodes[0]["valid_children"]) == (3, 3)
    assert [n["kept_by"] for n in tree.nodes[1:4]] == ["fallback"] * 3
    assert tree.valid_edges == 9, "it goes on below"


def test_t4_edges_to_depth_2_are_never_pruned() -> None:
    tree = grow({"0.0": NO_SCORE, "0.1": TOOL_ERRORS}, max_logical_edges=9)
    no_score, tool_errors = tree.edge(1, 0), tree.edge(1, 1)
    assert (no_score["failure_reason"], no_score["kept_by"]) == ("no_score", "exemption")
    assert (tool_errors["failure_reason"], tool_errors["kept_by"]) == ("tool_errors", "exemption")
    assert ("0.0", 2) in tree.teacher.asked
    assert tree.nodes[no_score["child_id"]]["score"] is None
    assert tree.nodes[1]["failed_expansions"] == 0


def test_t4_edges_to_depth_3_are_strict() -> None:
    tree = grow({"0": GOOD, "0.0": GOOD, "0.0.0": NO_SCORE}, default=turn(tokens=100_000), max_logical_edges=6)
    parent = next(n["node_id"] for n in tree.nodes if n["depth"] == 2 and n["max_token_total"] < 100_000)
    edge = tree.edge(parent, 0)
    assert (edge["depth"], edge["child_id"], edge["failure_reason"], edge["kept_by"]) == (3, None, "no_score", None)
    assert all(edge[part] is None for part in ("outcome", "cleanliness", "knowledge", "soft"))
    assert tree.nodes[parent]["failed_expansions"] == 1


def test_t6_improved_compares_with_the_parent_not_with_the_root() -> None:
    script = {"0": [turn(2.0), turn(0.5)], "0.0": [turn(1.5), turn(1.5)], "0.1": [turn(2.5), turn(0.5)]}
    tree = grow(script, max_logical_edges=9)
    assert tree.edge(0, 0)["improved"] is True
    assert tree.edge(0, 1)["improved"] is False, "equal is not better"
    assert tree.edge(1, 0)["improved"] is False, "better than the root (1.0), not than the parent (2.0)"
    assert tree.edge(1, 1)["improved"] is True


def test_t6_without_a_score_of_the_parent_the_nearest_scored_ancestor_counts() -> None:
    # 0 has score 2.0, 0.0 none; below it 1.5 beats the root (1.0) but not the nearest scored ancestor (2.0).
    script = {
        "0": [turn(2.0), turn(2.0)],
        "0.0": NO_SCORE,
        "0.0.0": [turn(1.5), turn(1.5)],
        "0.0.1": [turn(2.25), turn(1)],
    }
    tree = grow(script, default=turn(tokens=100_000), max_logical_edges=7)
    scoreless = next(n["node_id"] for n in tree.nodes if n["score"] is None)
    assert tree.edge(scoreless, 0)["improved"] is False
    assert tree.edge(scoreless, 1)["improved"] is True


@pytest.mark.parametrize(
    ("direction", "scores", "rate"),
    [
        ("maximize", (1.0, 1.0), 0.0),  # equal to the best so far is not worse
        ("maximize", (2.0, 1.5), 0.5),  # the second falls below the first
        ("maximize", (0.5, 0.75), 1.0),  # both below the root: the best so far stays 1.0
        ("maximize", (0.5, 1.5), 0.5),
        ("minimize", (0.5, 0.75), 0.5),
        ("minimize", (1.5, 0.5), 0.5),
    ],
)
def test_t7_a_turn_regressed_if_it_is_worse_than_the_best_before_it(direction, scores, rate) -> None:
    tree = grow({"0": [turn(score) for score in scores]}, direction=direction, **ROUND_ONE_ONLY)
    assert tree.edge(0, 0)["regressed_rate"] == rate


def test_t7_the_best_before_a_turn_is_that_of_the_whole_path() -> None:
    # Node 1 has score 2.0 and its child 1.5, but 1.75 below that is still worse than the path's 2.0.
    script = {"0": [turn(2.0), turn(0.0)], "0.0": [turn(1.5), turn(1.5)], "0.0.0": [turn(1.75), turn(2.0)]}
    tree = grow(script, default=turn(tokens=100_000), max_logical_edges=6)
    (deep,) = (e for e in tree.edges if e["depth"] == 3 and e["expansion"] == 0)
    assert (deep["improved"], deep["regressed_rate"]) == (True, 0.5)


def test_t7_a_turn_without_score_regressed() -> None:
    tree = grow({"0.0": [turn(None), turn(3.0)]}, max_logical_edges=9)
    assert tree.edge(1, 0)["regressed_rate"] == 0.5


@pytest.mark.parametrize(
    ("first", "second", "acts"),
    [
        ({"knowledge_read": True}, {"knowledge_write": True}, True),
        ({"knowledge_write": True}, {"knowledge_write": True}, True),
        ({"knowledge_read": True, "knowledge_write": True}, {}, False),
        ({}, {"knowledge_read": True}, False),
    ],
)
def test_t8_both_turns_must_touch_shared_knowledge(first, second, acts) -> None:
    tree = grow({"0": [turn(**first), turn(**second)]}, **ROUND_ONE_ONLY)
    assert tree.edge(0, 0)["has_knowledge_action"] is acts


@pytest.mark.parametrize(
    ("turns", "parts"),
    [
        # improved, clean, with knowledge, no turn regressed: 0.3·1 + 0.2·1 + 0.2·1 + 0.3·1
        ([turn(2.0, knows=True), turn(2.0, knows=True)], (1.0, 1.0, 1.0, 1.0)),
        # improved, clean, no knowledge, second turn regressed: 0.3 + 0.2 + 0.2·0.8 + 0.3·0.5
        ([turn(2.0), turn(1.5)], (1.0, 1.0, 0.8, 0.81)),
        # not improved, 3 of 20 calls failed: 0.8 − 0.5·(0.15/0.30) = 0.55; knowledge 0.6; 0.21 + 0.11 + 0.12 + 0.3
        ([turn(1.0, failed=3, knows=True), turn(1.0, knows=True)], (0.7, 0.55, 0.6, 0.74)),
        # 6 of 20 failed, just passing: 0.8 − 0.5 = 0.3; both regressed: 0.21 + 0.06 + 0.08 + 0
        ([turn(0.5, failed=6), turn(0.5)], (0.7, 0.3, 0.4, 0.35)),
    ],
)
def test_t9_the_soft_score_and_its_parts(turns, parts) -> None:
    tree = grow({"0": turns}, **ROUND_ONE_ONLY)
    edge = tree.edge(0, 0)
    assert [edge[part] for part in ("outcome", "cleanliness", "knowledge", "soft")] == pytest.approx(parts, abs=1e-15)


def test_t9_kept_edges_have_all_parts_and_cleanliness_ends_at_its_floor() -> None:
    # 18 of 20 calls failed: 0.8 − 0.5·3 is under the floor of 0.3.
    tree = grow({"0.0": [turn(failed=10), turn(failed=8)]}, max_logical_edges=9)
    kept = tree.edge(1, 0)
    assert kept["kept_by"] == "exemption"
    assert [kept[part] for part in ("outcome", "cleanliness", "knowledge")] == [0.7, 0.3, 0.4]
    assert kept["soft"] == pytest.approx(0.21 + 0.06 + 0.08 + 0.3)


def test_t10_ranks_of_a_worked_round() -> None:
    # After round 1: root 1.0, node 1: 2.0, node 2: 1.0, node 3: none (kept), contexts 3,000 / 1,000 / 2,000 tokens.
    script = {
        "0": [turn(2.0, tokens=500), turn(1.0, tokens=3000)],
        "1": [turn(tokens=500), turn(tokens=1000)],
        "2": NO_SCORE,
        "3": [turn(None, tokens=500), turn(None, tokens=2000)],
    }
    tree = grow(script, max_logical_edges=4, parallel_width=1)
    rows = {row["node_id"]: row for row in tree.rounds if row["round"] == 2}
    # Scores {1, 2, 1}: node 1 ranks (2 + 0.5)/3, node 2 ties with the root: (0 + 1)/3; node 3 has none: 0.
    assert [rows[n]["score_rank"] for n in (1, 2, 3)] == [2.5 / 3, 1 / 3, 0.0]
    # Path bests {1, 2, 1, 1}: node 1 ranks (3 + 0.5)/4, the others (0 + 1.5)/4.
    assert [rows[n]["best_rank"] for n in (1, 2, 3)] == [3.5 / 4, 1.5 / 4, 1.5 / 4]
    # Soft of their edges: 0.3 + 0.2 + 0.16 + 0.15; 0.21 + 0.2 + 0.08 + 0.3; 0.21 + 0.2 + 0.08 + 0.
    assert [rows[n]["process"] for n in (1, 2, 3)] == pytest.approx([0.81, 0.79, 0.49])
    # Fewer tokens rank higher among the three candidates.
    assert [rows[n]["t"] for n in (1, 2, 3)] == [0.5 / 3, 2.5 / 3, 1.5 / 3]
    for row in rows.values():
        assert row["q"] == pytest.approx(0.4 * row["score_rank"] + 0.3 * row["best_rank"] + 0.3 * row["process"])
        assert row["select"] == pytest.approx(row["q"] + 0.5 * row["t"])
    # Select: 0.922…, 0.899…, 0.509…
    assert tree.selected(2) == [(1, 1), (2, 0), (3, 0)]


def test_t10_the_root_alone_ranks_in_the_middle() -> None:
    (row,) = grow(**ROUND_ONE_ONLY).rounds
    assert row == {
        "round": 1,
        "node_id": 0,
        "score_rank": 0.5,
        "best_rank": 0.5,
        "process": 0.5,
        "q": 0.5,
        "t": 0.5,
        "select": 0.75,
        "expansions": 3,
    }


def test_t10_process_is_the_mean_over_the_paths_edges() -> None:
    # Edge 0: soft 1.0 (improved, clean, knowledge); edge 0.0: 0.21 + 0.2 + 0.08 + 0.3 = 0.79. Mean 0.895.
    script = {"0": [turn(2.0, knows=True)] * 2, "0.0": [turn(2.0)] * 2}
    tree = grow(script, default=turn(tokens=100_000), max_logical_edges=6)
    child = tree.edge(1, 0)["child_id"]
    assert next(r["process"] for r in tree.rounds if r["node_id"] == child) == pytest.approx(0.895)


def test_t11_a_node_with_a_full_context_is_no_candidate() -> None:
    tree = grow({"0": [turn(), turn(tokens=99_999)], "1": FULL, "2": FULL}, max_logical_edges=5)
    assert [node for node, _ in tree.selected(2)] == [1]


def test_t11_a_node_with_all_its_children_is_no_candidate() -> None:
    tree = grow(max_logical_edges=15)
    assert [node for node, _ in tree.selected(2)] == [1, 2, 3], "the root has its three"
    assert [node for node, _ in tree.selected(3)] == [4, 5, 6, 7, 8, 9], "the first three have their two"


def test_t11_two_failures_close_a_node() -> None:
    script = {"0": GOOD, "0.0": GOOD, "0.1": FULL, "0.0.0": NO_SCORE, "0.0.1": TOOL_ERRORS}
    tree = grow(script, default=turn(tokens=100_000))
    closed = tree.nodes[tree.edge(1, 0)["child_id"]]
    assert (closed["failed_expansions"], closed["valid_children"], closed["leaf_kind"]) == (2, 0, "exhausted")
    assert tree.stop_reason == "exhausted"


def test_t11_depth_4_is_the_end() -> None:
    tree = grow()
    assert {n["depth"] for n in tree.nodes} == {0, 1, 2, 3, 4}
    deepest = {n["node_id"] for n in tree.nodes if n["depth"] == 4}
    assert not deepest & {r["node_id"] for r in tree.rounds}


def test_t12_round_1_takes_all_directions_whatever_the_width() -> None:
    tree = grow(parallel_width=1, max_logical_edges=5)
    assert [len([e for e in tree.edges if e["round"] == r]) for r in (1, 2, 3)] == [3, 1, 1]


def test_t12_equal_select_scores_go_by_depth_then_by_node_id() -> None:
    tree = grow(parallel_width=4, max_logical_edges=10)
    # Every edge is the same, so all Select scores tie.
    assert tree.selected(2) == [(1, 2), (2, 1), (3, 1)]
    # Of the ten edges three are left: the full node 1 is out, depth 1 (2, 3) comes before depth 2 (4 to 7).
    assert tree.selected(3) == [(2, 1), (3, 1), (4, 1), (5, 0), (6, 0), (7, 0)]


def test_t12_a_tie_is_what_rounds_to_the_same_12_decimals() -> None:
    # Soft scores 0.79 and 0.79 + tiny: cleanliness weights move process by less than half of 1e-12.
    weights = {"outcome": 0.3, "cleanliness": 1e-13, "knowledge": 0.2, "regression_stability": 0.3}
    script = {"0": [turn(failed=1), turn()], "1": GOOD, "2": FULL}
    tree = grow(script, soft_weights=weights, parallel_width=1, max_logical_edges=4)
    first, second = (row for row in tree.rounds if row["round"] == 2)
    assert first["node_id"] == 1 and first["select"] < second["select"]


def test_t12_second_expansions_only_after_every_candidate_had_one() -> None:
    tree = grow(parallel_width=5, max_logical_edges=8)
    assert tree.selected(2) == [(1, 2), (2, 2), (3, 1)]
    second_round = [(e["parent_id"], e["expansion"]) for e in tree.edges if e["round"] == 2]
    assert second_round == [(1, 0), (2, 0), (3, 0), (1, 1), (2, 1)], "dispatch order"


def test_t12_the_budget_is_never_passed() -> None:
    tree = grow(max_logical_edges=5)
    assert sum(given for _, given in tree.selected(2)) == 2
    assert tree.valid_edges == 5


def test_t12_failed_edges_do_not_spend_the_budget() -> None:
    script = {"0": GOOD, "1": FULL, "2": FULL, "0.0": GOOD, "0.1": FULL, "0.0.0": NO_SCORE}
    tree = grow(script, max_logical_edges=6, parallel_width=1)
    assert (tree.valid_edges, len(tree.edges)) == (6, 7)


def test_t12_a_node_with_room_for_one_more_gets_one() -> None:
    script = {"0": GOOD, "1": FULL, "2": FULL}
    tree = grow(script, default=turn(tokens=100_000), parallel_width=1)
    assert [tree.selected(r) for r in (2, 3)] == [[(1, 1)], [(1, 1)]]
    again = grow(script, default=turn(tokens=100_000), parallel_width=8)
    assert again.selected(2) == [(1, 2)]


def test_t12_child_limits_above_two_are_filled_by_further_passes() -> None:
    tree = grow({"1": FULL, "2": FULL}, max_children_per_non_root_node=4, max_logical_edges=7)
    assert tree.selected(2) == [(1, 4)]


def test_t13_kept_edges_are_valid_edges() -> None:
    tree = grow(default=turn(None), **ROUND_ONE_ONLY)
    assert (tree.valid_edges, len(tree.edges), [e["kept_by"] for e in tree.edges[3:]]) == (3, 6, ["fallback"] * 3)
    assert tree.stop_reason == "edge_budget"


@pytest.mark.parametrize(
    ("leaves", "edges", "reason"), [(3, 3, "leaf_target"), (4, 3, "edge_budget"), (4, 4, "exhausted")]
)
def test_t13_the_first_reason_that_holds_is_named(leaves: int, edges: int, reason: str) -> None:
    tree = grow(default=turn(tokens=100_000), target_good_leaf_count=leaves, max_logical_edges=edges)
    assert tree.stop_reason == reason


def test_t14_a_full_context_is_named_before_depth() -> None:
    script = {"0": [turn(tokens=10), turn(tokens=100_000)]}
    tree = grow(script, max_depth=1)
    assert [n["leaf_kind"] for n in tree.nodes] == [None, "token_limit", "depth_limit", "depth_limit"]


def test_t14_a_childless_candidate_is_open_and_no_good_leaf() -> None:
    tree = grow(target_good_leaf_count=1, **ROUND_ONE_ONLY)
    assert [n["leaf_kind"] for n in tree.nodes] == [None, "open", "open", "open"]
    assert tree.stop_reason == "edge_budget", "not a target of one good leaf"


def test_t14_a_closed_node_with_a_child_is_no_leaf() -> None:
    script = {"0": GOOD, "0.0": GOOD, "0.1": FULL, "0.0.0": NO_SCORE, "0.0.1": FULL, "0.0.2": NO_SCORE}
    tree = grow(script, default=turn(tokens=100_000))
    inner = tree.nodes[tree.edge(1, 0)["child_id"]]
    assert (inner["failed_expansions"], inner["valid_children"], inner["leaf_kind"]) == (2, 1, None)


def test_a_path_keeps_its_best_score_through_a_regression() -> None:
    root = replace(ROOT, score=3.0)
    script = {"0": [turn(2.0), turn(2.0)], "0.0": [turn(2.5), turn(4.0)]}
    for direction, bests in (("maximize", [3.0, 3.0, 4.0]), ("minimize", [3.0, 2.0, 2.0])):
        tree = grow(script, root=root, direction=direction, max_logical_edges=9)
        child = tree.nodes[tree.edge(1, 0)["child_id"]]
        assert [n["path_best_score"] for n in (tree.nodes[0], tree.nodes[1], child)] == bests
