"""Missing scores, smoothing, stages by gain and by position (method S5, S7, S8)."""

from __future__ import annotations

import math
import statistics
import sys
from typing import Any

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coral_pipeline import tables
from coral_pipeline.errors import BadInput
from coral_pipeline.settings import Direction, SelectionSettings
from coral_pipeline.student_run.stages import (
    count_of_share,
    fill_missing_scores,
    gain_shares,
    label_stages,
    smooth_scores,
    stages_by_position,
)
from coral_pipeline_tests.student_runs import S, filtered_table, snapshot_name

SETTINGS = SelectionSettings()
unhurried = hypothesis.settings(max_examples=60, deadline=None)
numbers = st.floats(allow_nan=False, allow_infinity=False)
runs = st.lists(st.one_of(st.none(), numbers, st.integers(-5, 5).map(float)), min_size=1, max_size=60)
scored_runs = runs.filter(lambda scores: any(score is not None for score in scores))


def labels(scores: list[Any], direction: Direction = "maximize") -> list[dict[str, Any]]:
    table = label_stages(filtered_table(scores), direction, SETTINGS)
    assert table.schema.equals(tables.STAGE_LABELS.schema)
    return list(table.to_pylist())


def test_a_climbing_run_worked_by_hand() -> None:
    # score     0    0    0    0    5    5   10   10   10   10
    # windows  0,0,0 | 0,0,0,0 | 0,0,0,0,5 | 0,0,0,5,5 | 0,0,5,5,10 | 0,5,5,10,10 | 5,5,10,10,10 | 5,10,10,10,10
    # smooth    0    0    1    2    4    6    8    9   10   10      | 10,10,10,10 | 10,10,10
    # S0 = mean of the first ceil(0.05 * 10) = 1: 0;  S_inf = mean of the last ceil(0.20 * 10) = 2: 10
    # c         0    0   0.1  0.2  0.4  0.6  0.8  0.9   1    1
    rows = labels([0.0, 0.0, 0.0, 0.0, 5.0, 5.0, 10.0, 10.0, 10.0, 10.0])
    assert [row["smooth_score"] for row in rows] == [0, 0, 1, 2, 4, 6, 8, 9, 10, 10]
    assert [row["gain"] for row in rows] == [0, 0, 0.1, 0.2, 0.4, 0.6, 0.8, 0.9, 1, 1]
    assert [row["stage"] for row in rows] == ["early"] * 5 + ["middle"] * 2 + ["late"] * 3
    assert {row["staged_by"] for row in rows} == {"gain"}
    assert [row["snapshot"] for row in rows] == [snapshot_name(index) for index in range(1, 11)]


def test_failed_evals_take_part_worked_by_hand() -> None:
    # minimize:  None  6  None  3   0(eval_ok false)   own score, else the one before, else the one after
    # for stage    6   6    6   3   0
    # oriented    -6  -6   -6  -3   0
    # smooth: -18/3 = -6 | -21/4 = -5.25 | -21/5 = -4.2 | -15/4 = -3.75 | -9/3 = -3
    # S0 = first ceil(0.25) = 1: -6;  S_inf = last ceil(1.0) = 1: -3;  c: 0, 0.25, 0.6, 0.75, 1
    rows = labels([None, 6.0, S(None, True), 3.0, S(0.0, False)], "minimize")
    assert [row["score_for_stage"] for row in rows] == [6, 6, 6, 3, 0]
    assert [row["score"] for row in rows] == [None, 6, None, 3, 0]
    assert [row["oriented_score"] for row in rows] == [-6, -6, -6, -3, 0]
    assert [row["smooth_score"] for row in rows] == [-6, -5.25, -4.2, -3.75, -3]
    assert [row["gain"] for row in rows] == pytest.approx([0, 0.25, 0.6, 0.75, 1], abs=1e-15)
    assert [row["stage"] for row in rows] == ["early", "early", "middle", "middle", "late"]
    assert [row["eligible"] for row in rows] == [False, True, False, True, False]


def test_the_limits_belong_to_the_later_stage() -> None:
    # One snapshot of start and end each and a window of 1: c is the score itself.
    settings = SelectionSettings(smooth_window=1, start_fraction=0.01, final_fraction=0.01)
    below = [math.nextafter(0.5, 0), math.nextafter(0.9, 0)]
    table = label_stages(filtered_table([0.0, below[0], 0.5, below[1], 0.9, 1.5, -1.0, 1.0]), "maximize", settings)
    assert table["stage"].to_pylist() == ["early", "early", "middle", "middle", "late", "late", "early", "late"]
    assert table["gain"].to_pylist() == [0, below[0], 0.5, below[1], 0.9, 1, 0, 1], "clipped to [0, 1]"


@pytest.mark.parametrize(
    ("snapshots", "early", "middle"),
    # early: i < 0.10 N, middle: i < 0.50 N
    [(1, 1, 0), (2, 1, 0), (3, 1, 1), (9, 1, 4), (10, 1, 4), (11, 2, 4), (20, 2, 8), (21, 3, 8), (30, 3, 12)],
)
def test_stages_by_position(snapshots: int, early: int, middle: int) -> None:
    stages = stages_by_position(snapshots, SETTINGS)
    assert stages == ["early"] * early + ["middle"] * middle + ["late"] * (snapshots - early - middle)


@pytest.mark.parametrize(
    "scores",
    [[7.0], [7.0] * 30, [None, 3.0, None, None], [3.0, 2.0, 1.0], [1.0, 9.0, 1.0, 9.0, 1.0], [1.0, 1.0 + 1e-13]],
    ids=["one snapshot", "plateau", "one score", "falling", "wavering", "within the tolerance"],
)
def test_without_an_upward_trend_stages_go_by_position(scores: list[float | None]) -> None:
    rows = labels(scores)
    assert [row["stage"] for row in rows] == stages_by_position(len(scores), SETTINGS)
    assert {(row["staged_by"], row["gain"]) for row in rows} == {("position", None)}


def test_the_tolerance_is_relative_to_the_larger_level() -> None:
    # At the level 2**40 the tolerance is 1e-12 * 2**40 = 1.0995 (a bit more for the larger of the two).
    settings, level = SelectionSettings(smooth_window=1), 2.0**40
    assert gain_shares([level, level + 1], settings) is None
    assert gain_shares([-level - 1, -level], settings) is None
    assert gain_shares([level, level + 2], settings) == [0, 1]
    assert gain_shares([0.0, 1.0], settings) == [0, 1]
    assert gain_shares([0.0, 1e-12], settings) is None
    assert gain_shares([0.0, 1.1e-12], settings) == [0, 1]


def test_a_run_in_which_every_eval_failed_has_no_stages() -> None:
    with pytest.raises(BadInput, match="runs/x: none of the 3 kept snapshots has a numeric score"):
        label_stages(filtered_table([None, S(None, True), None]), "maximize", SETTINGS, student_run="runs/x")


def test_a_run_of_which_nothing_was_kept_has_no_stages() -> None:
    with pytest.raises(BadInput, match="no snapshot was kept"):
        label_stages(filtered_table([]), "maximize", SETTINGS)


@pytest.mark.parametrize(
    ("fraction", "snapshots", "count"),
    [(0.05, 1, 1), (0.05, 20, 1), (0.05, 21, 2), (0.2, 15, 3), (0.2, 16, 4), (0.07, 100, 7), (0.29, 100, 29)],
)
def test_shares_are_rounded_up_exactly(fraction: float, snapshots: int, count: int) -> None:
    """0.07 * 100 is 7.000000000000001 in floating point, and still 7 snapshots."""
    assert count_of_share(fraction, snapshots) == count


@unhurried
@given(st.lists(numbers, min_size=1, max_size=40), st.sampled_from([1, 3, 5, 9]))
def test_smoothing_is_the_mean_of_the_neighbours(scores: list[float], window: int) -> None:
    scores = [score / 100 for score in scores]  # sums stay finite
    for i, smooth in enumerate(smooth_scores(scores, window)):
        near = [score for j, score in enumerate(scores) if abs(i - j) <= window // 2]
        assert smooth == statistics.fmean(near)


@unhurried
@given(st.integers(1, 40), numbers)
def test_smoothing_leaves_a_plateau_as_it_is(snapshots: int, level: float) -> None:
    assert smooth_scores([level] * snapshots, 5) == pytest.approx([level] * snapshots, rel=1e-15)


@unhurried
@given(scored_runs)
def test_filled_scores_are_the_nearest_earlier_else_the_nearest_later(scores: list[float | None]) -> None:
    filled = fill_missing_scores(scores)
    assert filled is not None
    for i, score in enumerate(filled):
        around = [*scores[i::-1], *scores[i:]]
        assert score == next(near for near in around if near is not None)


@unhurried
@given(scored_runs)
def test_minimising_is_maximising_the_negated_scores(scores: list[float | None]) -> None:
    negated = [None if score is None else -score for score in scores]
    for up, down in zip(labels(scores), labels(negated, "minimize"), strict=True):
        for column in ("oriented_score", "smooth_score", "gain", "stage", "staged_by"):
            assert up[column] == down[column], column


@unhurried
@given(scored_runs)
def test_every_finite_run_has_finite_stages_that_follow_the_gain(scores: list[float | None]) -> None:
    rows = labels(scores)
    assert all(math.isfinite(row["smooth_score"]) for row in rows)
    if rows[0]["staged_by"] == "gain":
        assert all(0 <= row["gain"] <= 1 for row in rows)
        order = [row["stage"] for row in sorted(rows, key=lambda row: row["gain"])]
        assert order == sorted(order, key=["early", "middle", "late"].index)


def test_penalties_as_large_as_floats_go_are_staged() -> None:
    # In units of the largest float: smooth -1 -1 -1 -0.6 -0.2 0.2 0.6 1 1 1, c = (smooth + 1) / 2
    largest = sys.float_info.max
    rows = labels([-largest] * 5 + [largest] * 5)
    assert [row["gain"] for row in rows] == pytest.approx([0, 0, 0, 0.2, 0.4, 0.6, 0.8, 1, 1, 1], abs=1e-15)
    assert [row["stage"] for row in rows] == ["early"] * 5 + ["middle"] * 2 + ["late"] * 3
