"""PathScore and the choice of paths (method P1–P3)."""

from __future__ import annotations

import dataclasses
import itertools
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coral_pipeline import tables
from coral_pipeline.paths.rank import rank_paths, rank_tree
from coral_pipeline.settings import PathSettings
from coral_pipeline_tests.random_trees import random_nodes
from coral_pipeline_tests.trees import Failed, N, explored, write_tree

ONLY_CLEANLINESS = PathSettings(
    max_score_rank_weight=0, avg_score_rank_weight=0, cleanliness_weight=1, knowledge_weight=0
)


def ranked(nodes: list[N], settings: PathSettings = PathSettings(), **options: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = rank_tree(explored(nodes, **options), settings).to_pylist()
    return rows


def leaves(rows: list[dict[str, Any]]) -> list[int]:
    return [row["leaf_id"] for row in rows]


WORKED = [
    N(score=100.0),
    N(0, 2.0, cleanliness=1.0, knowledge=0.8),
    N(0, 3.0, cleanliness=0.5, knowledge=0.4),
    N(1, 4.0, cleanliness=0.6, knowledge=0.4),
    N(1, 1.0, cleanliness=1.0, knowledge=1.0),
]


def test_path_scores_worked_by_hand() -> None:
    rows = ranked(WORKED)
    # Three paths, the root's 100 in none of them.   leaf 3: 2, 4   leaf 2: 3   leaf 4: 2, 1
    #   max    4, 3, 2        ranks (2 + .5) / 3, (1 + .5) / 3, .5 / 3
    #   mean   3, 3, 1.5      ranks (1 + .5 * 2) / 3 twice, .5 / 3
    assert leaves(rows) == [3, 2, 4]
    best, second, third = rows
    assert best == {
        "leaf_id": 3,
        "node_ids": [0, 1, 3],
        "edge_ids": [0, 2],
        "candidate": True,
        "excluded_reason": None,
        "avg_cleanliness": 0.8,
        "avg_knowledge": pytest.approx(0.6),
        "avg_score": 3.0,
        "avg_score_rank": 2 / 3,
        "max_score": 4.0,
        "max_score_rank": 2.5 / 3,
        "PathScore": pytest.approx(0.35 * 2.5 / 3 + 0.25 * 2 / 3 + 0.2 * 0.8 + 0.2 * 0.6, abs=1e-15),
        "rank": 1,
        "selected": True,
    }
    assert second["PathScore"] == pytest.approx(0.35 * 0.5 + 0.25 * 2 / 3 + 0.2 * 0.5 + 0.2 * 0.4, abs=1e-15)
    assert third["PathScore"] == pytest.approx(0.35 / 6 + 0.25 / 6 + 0.2 * 1.0 + 0.2 * 0.9, abs=1e-15)
    assert [row["rank"] for row in rows] == [1, 2, 3]


def test_minimising_ranks_low_scores_high_and_reports_them_raw() -> None:
    rows = {row["leaf_id"]: row for row in ranked(WORKED, direction="minimize")}
    assert [rows[leaf]["max_score"] for leaf in (2, 3, 4)] == [3.0, 2.0, 1.0], "the best is the lowest"
    assert [rows[leaf]["max_score_rank"] for leaf in (2, 3, 4)] == [0.5 / 3, 1.5 / 3, 2.5 / 3]
    assert rows[4]["avg_score"] == 1.5
    assert rows[4]["avg_score_rank"] == 2.5 / 3


def test_penalties_as_large_as_floats_go_are_ranked() -> None:
    rows = ranked([N(score=0.0), N(0, -1.7e308), N(0, 1.0), N(1, -1.7e308)])
    assert [(row["leaf_id"], row["avg_score"]) for row in rows] == [(2, 1.0), (3, -1.7e308)]


def test_a_lone_candidate_ranks_in_the_middle_of_itself() -> None:
    (row,) = ranked([N(score=0.0), N(0, 5.0)])
    assert (row["max_score_rank"], row["avg_score_rank"], row["rank"], row["selected"]) == (0.5, 0.5, 1, True)


def test_paths_that_are_out_come_last_with_the_reason_and_influence_no_rank() -> None:
    nodes = [N(score=0.0), N(0, None), N(0, 9.0, leaf="open"), N(1, 7.0), N(1, None, leaf="open"), N(0, 1.0)]
    rows = ranked(nodes)
    assert [(row["leaf_id"], row["excluded_reason"]) for row in rows] == [
        (5, None),
        (2, "open_leaf"),
        (3, "missing_score"),  # its own score is fine, its parent has none
        (4, "open_leaf"),  # no score either, but the path has not even ended
    ]
    assert rows[0]["max_score_rank"] == 0.5
    for row in rows[1:]:
        assert row["selected"] is row["candidate"] is False
        assert all(row[name] is None for name in ("avg_score", "max_score", "PathScore", "rank", "avg_cleanliness"))


@pytest.mark.parametrize(("kind", "reason"), [("open", "open_leaf"), ("exhausted", "missing_score")])
def test_a_root_alone_is_a_path_without_a_score_to_average(kind: str, reason: str) -> None:
    (row,) = ranked([N(score=1.0, leaf=kind)])
    assert (row["node_ids"], row["edge_ids"], row["excluded_reason"]) == ([0], [], reason)


@pytest.mark.parametrize("kind", ["token_limit", "depth_limit", "exhausted"])
def test_every_normal_end_makes_a_candidate(kind: str) -> None:
    (row,) = ranked([N(score=1.0), N(0, 1.0, leaf=kind)])
    assert row["candidate"]


def test_the_best_six_are_selected_or_all_where_there_are_fewer() -> None:
    star = [N(score=0.0)] + [N(0, float(score)) for score in range(9)]
    assert [row["selected"] for row in ranked(star)] == [True] * 6 + [False] * 3
    assert leaves(ranked(star))[:6] == [9, 8, 7, 6, 5, 4]
    assert [row["selected"] for row in ranked(star[:4])] == [True] * 3
    assert sum(row["selected"] for row in ranked(star, PathSettings(top_k=2))) == 2


def test_ties_are_broken_by_best_score_then_cleanliness_then_leaf_id() -> None:
    by_score = [N(score=0.0), N(0, 1.0), N(0, 3.0), N(0, 2.0)]
    assert leaves(ranked(by_score, ONLY_CLEANLINESS)) == [2, 3, 1]
    assert leaves(ranked(by_score, ONLY_CLEANLINESS, direction="minimize")) == [1, 3, 2]
    nothing = PathSettings(max_score_rank_weight=0, avg_score_rank_weight=0, cleanliness_weight=0, knowledge_weight=0)
    by_cleanliness = [N(score=0.0), N(0, 1.0, cleanliness=0.5), N(0, 1.0, cleanliness=0.7), N(0, 1.0, cleanliness=0.7)]
    assert leaves(ranked(by_cleanliness, nothing)) == [2, 3, 1]


def test_path_scores_that_differ_only_by_rounding_tie() -> None:
    nodes = [N(score=0.0), N(0, 1.0, cleanliness=0.5 + 1e-14), N(0, 2.0, cleanliness=0.5)]
    rows = ranked(nodes, ONLY_CLEANLINESS)
    assert leaves(rows) == [2, 1], "a tie: the better score comes first"
    assert rows[1]["PathScore"] == 0.5 + 1e-14, "reported as it is"
    exact = ONLY_CLEANLINESS.model_copy(update={"tie_decimals": 15})
    assert leaves(ranked(nodes, exact)) == [1, 2]


def test_means_do_not_depend_on_the_order_of_their_terms() -> None:
    scores = [0.1, 0.2, 0.3, 0.7]  # left to right 1.3, right to left 1.2999999999999998
    forth = [N(score=0.0)] + [N(k, s) for k, s in enumerate(scores)]
    back = [N(score=0.0)] + [N(k, s) for k, s in enumerate(scores[::-1])]
    assert ranked(forth)[0]["avg_score"] == ranked(back)[0]["avg_score"] == 1.3 / 4


def test_a_path_of_twenty_thousand_edges() -> None:
    nodes = [N(score=0.0)] + [N(k, float(k)) for k in range(20_000)]
    (row,) = ranked(nodes)
    assert (len(row["node_ids"]), row["max_score"], row["avg_score"]) == (20_001, 19_999.0, 9_999.5)


@settings(max_examples=40, deadline=None)
@given(random_nodes(), st.randoms(use_true_random=False))
def test_the_order_of_the_rows_changes_nothing(nodes: list[N], shuffle: random.Random) -> None:
    assert ranked(nodes, shuffle=shuffle) == ranked(nodes)


@settings(max_examples=40, deadline=None)
@given(random_nodes())
def test_minimising_is_maximising_the_negated_scores(nodes: list[N]) -> None:
    negated = [dataclasses.replace(n, score=None if n.score is None else -n.score) for n in nodes]
    turned = [
        row | {name: None if row[name] is None else -row[name] for name in ("avg_score", "max_score")}
        for row in ranked(negated, direction="minimize")
    ]
    assert turned == ranked(nodes)


@settings(max_examples=40, deadline=None)
@given(random_nodes())
def test_what_holds_for_every_tree(nodes: list[N]) -> None:
    rows = ranked(nodes)
    parents = {n.parent for n in nodes}
    assert sorted(leaves(rows)) == [k for k in range(len(nodes)) if k not in parents], "every childless node is a path"
    candidates = [row for row in rows if row["candidate"]]
    assert rows[: len(candidates)] == candidates
    assert [row["rank"] for row in candidates] == list(range(1, len(candidates) + 1))
    assert sum(row["selected"] for row in rows) == min(6, len(candidates))
    for row in candidates:
        assert 0 <= row["PathScore"] <= 1
        assert 0 < row["max_score_rank"] < 1
        assert 0 < row["avg_score_rank"] < 1
    for better, worse in itertools.pairwise(candidates):
        assert better["PathScore"] >= worse["PathScore"] - 1e-12


def test_from_the_folder_of_a_tree_failed_edges_left_out(tmp_path: Path) -> None:
    table = rank_paths(write_tree(tmp_path, WORKED, failed=[Failed(1)]), PathSettings())
    assert table.schema.equals(tables.RANKED_PATHS.schema, check_metadata=True)
    assert table.to_pylist() == ranked(WORKED)
