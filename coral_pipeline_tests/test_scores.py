"""The mean (method, S7: ``math.fsum``), whatever the size of the numbers."""

from __future__ import annotations

import math
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coral_pipeline.scores import mean

LARGEST = sys.float_info.max
NUMBERS = st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=20)


@given(st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=20))
def test_of_ordinary_numbers_it_is_the_exact_sum_rounded_once_and_divided(values: list[float]) -> None:
    assert mean(values) == math.fsum(values) / len(values)


@pytest.mark.parametrize(
    ("values", "middle"),
    [([-1.7e308] * 2, -1.7e308), ([LARGEST] * 3, LARGEST), ([LARGEST, LARGEST, -LARGEST], LARGEST / 3)],
)
def test_a_sum_beyond_the_largest_float_still_has_a_mean(values: list[float], middle: float) -> None:
    with pytest.raises(OverflowError):
        math.fsum(values)
    assert mean(values) == middle


@given(NUMBERS)
def test_it_lies_between_the_least_and_the_largest(values: list[float]) -> None:
    slack = math.ulp(max(map(abs, values)))
    assert min(values) - slack <= mean(values) <= max(values) + slack
