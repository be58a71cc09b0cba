"""Percentile mid-ranks (method, "Words")."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coral_pipeline.ranks import PercentileRank, percentile_ranks

VALUES = st.lists(st.integers(-3, 3).map(float) | st.floats(allow_nan=False, allow_infinity=False), min_size=1)


def test_mid_ranks_worked_by_hand() -> None:
    rank = PercentileRank([3.0, 1.0, 1.0, 2.0])
    assert [rank(x) for x in (0.0, 1.0, 1.5, 2.0, 3.0, 4.0)] == [0.0, 1 / 4, 2 / 4, 2.5 / 4, 3.5 / 4, 1.0]
    assert PercentileRank([7.0])(7.0) == 0.5
    assert percentile_ranks(np.array([3.0, 1.0, 1.0, 2.0])).tolist() == [3.5 / 4, 1 / 4, 1 / 4, 2.5 / 4]


@given(VALUES)
def test_the_rank_is_the_formula_of_the_method(values: list[float]) -> None:
    rank = PercentileRank(values)
    for x in values:
        assert rank(x) == (sum(v < x for v in values) + 0.5 * sum(v == x for v in values)) / len(values)


@given(VALUES)
def test_all_at_once_gives_the_same_numbers_to_the_digit(values: list[float]) -> None:
    rank = PercentileRank(values)
    assert percentile_ranks(np.array(values)).tolist() == [rank(x) for x in values]


@given(VALUES)
def test_lower_is_better_turns_the_ranks_round(values: list[float]) -> None:
    forth, back = percentile_ranks(np.array(values)), percentile_ranks(-np.array(values))
    assert forth + back == pytest.approx(np.ones(len(values)))
