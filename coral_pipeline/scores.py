"""What counts as a score, and the mean of several."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction


def numeric(value: object) -> float | None:
    """The value as a float where it is a finite int or float; None for anything else (booleans, strings, NaN …)."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def mean(values: Sequence[float]) -> float:
    """The arithmetic mean of at least one value, their sum rounded once (``math.fsum``)."""
    try:
        return math.fsum(values) / len(values)
    except OverflowError:  # the sum is beyond the largest float, the mean is not
        return float(sum(map(Fraction, values)) / len(values))
