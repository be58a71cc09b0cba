"""Percentile ranks, as the method defines them (mid-rank; method, "Words")."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


class PercentileRank:
    """Mid-ranks within one population of N oriented values: (values below + half of the equal ones) / N.

    Higher is better: negate population and value for "lower is better". A value alone ranks 0.5, ties
    share one rank.
    """

    def __init__(self, population: Sequence[float]) -> None:
        """Sort the population once; it must not be empty when a rank is asked for."""
        self._sorted = sorted(population)

    def __call__(self, value: float) -> float:
        """Rank of ``value``, in [0, 1]."""
        below = bisect_left(self._sorted, value)
        equal = bisect_right(self._sorted, value) - below
        return (below + 0.5 * equal) / len(self._sorted)


def percentile_ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rank of each of N finite oriented values within them all: the numbers ``PercentileRank`` gives, N at once."""
    order = np.argsort(values)
    ordered = values[order]
    below = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))  # where each run of ties begins
    equal = np.diff(below, append=len(values))
    ranks = np.empty(len(values))
    ranks[order] = np.repeat((below + 0.5 * equal) / len(values), equal)
    return ranks
