"""Checks of what recipes and value models written by others return."""

from __future__ import annotations

import math
from collections.abc import Iterable
from numbers import Real


def number(value: object) -> float | None:
    """The value as a float where it is a real number (numpy's too, booleans not), finite or not; else None."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf


def as_list(values: object) -> list[object] | None:
    """The values as a list; None where they are no sequence of values (a mapping, a string, a number, None)."""
    if isinstance(values, (str, bytes, dict)) or not isinstance(values, Iterable):
        return None
    return list(values)
