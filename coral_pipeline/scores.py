"""What counts as a score."""

from __future__ import annotations

import math


def numeric(value: object) -> float | None:
    """The value as a float where it is a finite int or float; None for anything else (booleans, strings, NaN …)."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
