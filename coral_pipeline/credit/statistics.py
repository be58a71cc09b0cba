"""Mean and spread, to the last digit."""

from __future__ import annotations

import math

import numpy as np

from coral_pipeline.explored import FloatArray


def mean_and_std(values: FloatArray) -> tuple[float, float]:
    """Mean and population standard deviation (ddof 0) of at least one value, summed without rounding errors."""
    mean = math.fsum(np.ascontiguousarray(values).data) / len(values)
    return mean, math.sqrt(math.fsum(((values - mean) ** 2).data) / len(values))
