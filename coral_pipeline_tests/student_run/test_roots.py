"""Quotas, even picks, backfill (method S9–S11)."""

from __future__ import annotations

import itertools
from collections import Counter
from fractions import Fraction
from typing import Any

import hypothesis
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coral_pipeline import tables
from coral_pipeline.settings import STAGES, Direction, SelectionSettings, Stage, StageWeights
from coral_pipeline.student_run.roots import account, choose, pick_evenly, select_roots, shortages, stage_quotas
from coral_pipeline.student_run.stages import label_stages
from coral_pipeline_tests.student_runs import S, commit, filtered_table, snapshot_name

unhurried = hypothesis.settings(max_examples=60, deadline=None)
WEIGHTS = SelectionSettings().quota_weights
weights = st.builds(StageWeights, early=st.integers(0, 9), middle=st.integers(0, 9), late=st.integers(0, 9)).filter(
    lambda w: w.early + w.middle + w.late > 0
)


@pytest.mark.parametrize(
    ("num_roots", "quotas"),
    [
        (30, (5, 15, 10)),
        (6, (1, 3, 2)),
        (1, (0, 1, 0)),  # shares 1/6, 1/2, 1/3: the one root goes to the largest remainder
        (2, (0, 1, 1)),  # 1/3, 1, 2/3
        (3, (1, 1, 1)),  # 1/2, 3/2, 1: early and middle tie, early is first
        (4, (1, 2, 1)),  # 2/3, 2, 4/3
        (7, (1, 4, 2)),  # 7/6, 7/2, 7/3
        (10, (2, 5, 3)),  # 10/6, 5, 10/3
    ],
)
def test_quotas_by_largest_remainder_worked_by_hand(num_roots: int, quotas: tuple[int, int, int]) -> None:
    assert tuple(stage_quotas(num_roots, WEIGHTS).values()) == quotas


def test_equal_remainders_go_early_middle_late() -> None:
    equal = StageWeights(early=1, middle=1, late=1)
    assert stage_quotas(4, equal) == {"early": 2, "middle": 1, "late": 1}
    assert stage_quotas(5, equal) == {"early": 2, "middle": 2, "late": 1}


@unhurried
@given(st.integers(1, 500), weights)
def test_quotas_add_up_and_are_within_one_of_their_share(num_roots: int, weights: StageWeights) -> None:
    quotas = stage_quotas(num_roots, weights)
    assert list(quotas) == list(STAGES)
    assert sum(quotas.values()) == num_roots
    parts = {"early": weights.early, "middle": weights.middle, "late": weights.late}
    for stage, quota in quotas.items():
        assert abs(quota - Fraction(num_roots * parts[stage], sum(parts.values()))) < 1


@pytest.mark.parametrize(
    ("n", "q", "picks"),
    [
        (5, 0, []),
        (0, 0, []),
        (1, 1, [0]),
        (4, 1, [1]),  # (4 - 1) // 2
        (5, 1, [2]),
        (10, 2, [0, 9]),
        (10, 4, [0, 3, 6, 9]),
        (6, 3, [0, 3, 5]),  # floor(2.5 + 0.5) = 3: halves go up
        (8, 3, [0, 4, 7]),  # floor(3.5 + 0.5) = 4
        (5, 4, [0, 1, 3, 4]),  # 0, 1.33, 2.67, 4
        (4, 4, [0, 1, 2, 3]),
    ],
)
def test_even_picks_worked_by_hand(n: int, q: int, picks: list[int]) -> None:
    assert pick_evenly(range(n), q) == picks


@unhurried
@given(st.integers(1, 300).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n))))
def test_even_picks_are_distinct_ordered_even_and_reach_both_ends(case: tuple[int, int]) -> None:
    n, q = case
    picks = pick_evenly(range(n), q)
    assert len(set(picks)) == q and picks == sorted(picks)
    assert all(0 <= pick < n for pick in picks)
    if q > 1:
        assert (picks[0], picks[-1]) == (0, n - 1)
        assert max(abs(pick - Fraction(k * (n - 1), q - 1)) for k, pick in enumerate(picks)) <= Fraction(1, 2)


def test_more_than_there_are_cannot_be_picked() -> None:
    with pytest.raises(ValueError, match="cannot pick 3 of 2"):
        pick_evenly("ab", 3)


def test_a_shortage_is_filled_worked_by_hand() -> None:
    # 12 roots: quotas 2, 6, 4. Early gives 0 and 9 of its ten, middle its four, late its three: 9.
    # Three are short. Middle and late have none left; early's unpicked 1 … 8 give their 0th, 4th, 7th: 1, 5, 8.
    eligible: dict[Stage, list[int]] = {"early": [*range(10)], "middle": [*range(10, 14)], "late": [*range(14, 17)]}
    reasons = choose(eligible, SelectionSettings(num_roots=12))
    assert sorted(i for i, reason in reasons.items() if reason == "quota") == [0, 9, 10, 11, 12, 13, 14, 15, 16]
    assert sorted(i for i, reason in reasons.items() if reason == "backfill") == [1, 5, 8]


def test_a_shortage_goes_to_the_middle_before_late_and_early() -> None:
    # 6 roots: quotas 1, 3, 2. Late has none, so two are short. Middle has 5: its picks 0, 2, 4 leave 1 and 3.
    eligible: dict[Stage, list[int]] = {"early": [0, 1, 2], "middle": [3, 4, 5, 6, 7], "late": []}
    reasons = choose(eligible, SelectionSettings(num_roots=6))
    assert reasons == {1: "quota", 3: "quota", 5: "quota", 7: "quota", 4: "backfill", 6: "backfill"}
    # 8 roots: quotas 1, 4, 3 (shares 4/3, 4, 8/3). Early and middle give 1 and 4;
    # the three that are short are middle's one unpicked and early's two.
    reasons = choose(eligible, SelectionSettings(num_roots=8))
    assert Counter(reasons.values()) == {"quota": 5, "backfill": 3}
    assert sorted(reasons) == list(range(8))


stage_sizes = st.tuples(st.integers(0, 25), st.integers(0, 25), st.integers(0, 25))


@unhurried
@given(stage_sizes, st.integers(1, 60), weights, st.permutations(STAGES))
def test_selection_takes_what_it_can_and_fills_in_order(
    sizes: tuple[int, int, int], num_roots: int, weights: StageWeights, order: list[Stage]
) -> None:
    items = iter(range(sum(sizes)))
    eligible = {stage: [next(items) for _ in range(size)] for stage, size in zip(STAGES, sizes, strict=True)}
    settings = SelectionSettings(num_roots=num_roots, quota_weights=weights, backfill_order=tuple(order))
    reasons = choose(eligible, settings)
    assert len(reasons) == min(num_roots, sum(sizes))
    left: dict[Stage, int] = {}
    filled: dict[Stage, int] = {}
    for stage, quota in stage_quotas(num_roots, weights).items():
        picked = Counter(reasons.get(item) for item in eligible[stage])
        assert picked["quota"] == min(quota, len(eligible[stage]))
        left[stage], filled[stage] = picked[None], picked["backfill"]
    for earlier, later in itertools.combinations(order, 2):
        assert left[earlier] == 0 or filled[later] == 0, "a stage is filled only when those before it are used up"


def select(scores: list[Any], num_roots: int) -> tuple[pa.Table, pa.Table, SelectionSettings]:
    settings, filtered = SelectionSettings(num_roots=num_roots), filtered_table(scores)
    labels = label_stages(filtered, "maximize", settings)
    return labels, select_roots(labels, filtered, "the-run", settings), settings


def test_roots_are_rows_in_run_order_and_only_eligible_ones() -> None:
    # By position (the scores are level): early 1, middle 2 … 5, late 6 … 10. Quotas of 6: 1, 3, 2.
    # Eligible: 1 | 2, 4, 5 | 6, 8, 9: number 3 failed, 7 has no score, 10 is not ok.
    scores = [1.0, 1.0, None, 1.0, 1.0, 1.0, S(None, True), 1.0, 1.0, S(1.0, False)]
    labels, roots, settings = select(scores, 6)
    assert roots.schema.equals(tables.SELECTED_ROOTS.schema)
    assert roots["global_index"].to_pylist() == [1, 2, 4, 5, 6, 9]
    assert roots.to_pylist()[1] == {
        "root": snapshot_name(2),
        "student_run": "the-run",
        "global_index": 2,
        "agent_id": "agent-1",
        "commit_hash": commit(2),
        "score": 1.0,
        "stage": "middle",
        "selection_reason": "quota",
    }
    assert shortages(account(labels, roots, settings), settings) == []


def test_fewer_eligible_than_roots_are_all_chosen_and_it_is_said() -> None:
    labels, roots, settings = select([1.0, None, 1.0, 1.0], 30)
    assert roots["global_index"].to_pylist() == [1, 3, 4]
    assert shortages(account(labels, roots, settings), settings) == [
        "early stage: quota 5, eligible 1",
        "middle stage: quota 15, eligible 0",
        "late stage: quota 10, eligible 2",
        "roots asked for: 30, eligible snapshots: 3; all of them were chosen",
    ]


def test_none_eligible_gives_an_empty_table() -> None:
    labels, roots, settings = select([S(1.0, False), S(2.0, None)], 4)
    assert roots.num_rows == 0 and roots.schema.equals(tables.SELECTED_ROOTS.schema)
    assert [(a.quota, a.by_quota, a.by_backfill) for a in account(labels, roots, settings)] == [
        (1, 0, 0),
        (2, 0, 0),
        (1, 0, 0),
    ]


def test_one_snapshot_is_one_root() -> None:
    labels, roots, settings = select([1.0], 30)
    assert [(row["stage"], row["selection_reason"]) for row in roots.to_pylist()] == [("early", "quota")]
    (early, *_) = account(labels, roots, settings)
    assert (early.snapshots, early.eligible, early.quota, early.by_quota) == (1, 1, 5, 1)


@unhurried
@given(
    st.lists(st.one_of(st.none(), st.integers(-9, 9).map(float)), min_size=1, max_size=50).filter(any),
    st.integers(1, 40),
)
def test_minimising_chooses_what_maximising_the_negated_scores_does(scores: list[float | None], num_roots: int) -> None:
    settings = SelectionSettings(num_roots=num_roots)
    signs: dict[Direction, float] = {"maximize": 1.0, "minimize": -1.0}
    chosen = []
    for direction, sign in signs.items():
        filtered = filtered_table([None if score is None else sign * score for score in scores])
        labels = label_stages(filtered, direction, settings)
        chosen.append(select_roots(labels, filtered, "r", settings).select(["root", "stage", "selection_reason"]))
    assert chosen[0].equals(chosen[1])
