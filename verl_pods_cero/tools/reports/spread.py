"""The spread of a mean over seeds: 95 % confidence intervals by Student's t."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from verl_pods_cero.core.arrays import Floats

CONFIDENCE = 0.95


def half_width(values: ArrayLike) -> Floats:
    """Return the half width of the 95 % confidence interval of the mean over S seeds, NaN of one: `t s / sqrt(S)`.

    From values of shape (S, ...), with their standard deviation s and t of S - 1 degrees of freedom.

    >>> float(half_width([1.0, 2.0, 3.0]).round(3))
    2.484
    """
    table = np.asarray(values, dtype=np.float64)
    seeds = len(table)
    if seeds < 2:
        return np.full(table.shape[1:], np.nan)
    return np.asarray(t_quantile(CONFIDENCE, seeds - 1) * table.std(axis=0, ddof=1) / math.sqrt(seeds))


@lru_cache
def t_quantile(confidence: float, degrees: int) -> float:
    """Return t with P(|T| < t) = `confidence`, by bisection: neither verl nor matplotlib brings SciPy.

    >>> [round(t_quantile(0.95, degrees), 3) for degrees in (1, 2, 4, 9, 100)]
    [12.706, 4.303, 2.776, 2.262, 1.984]
    """
    low, high = 0.0, 1.0
    while _t_probability(high, degrees) < confidence:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _t_probability(middle, degrees) < confidence else (low, middle)
    return high


def _t_probability(t: float, degrees: int) -> float:
    """Return P(|T| < t): the finite sums for whole degrees, Abramowitz and Stegun 26.7.3 and 26.7.4."""
    angle, odd = math.atan(t / math.sqrt(degrees)), degrees % 2
    term = math.cos(angle) if odd else 1.0
    total = 0.0 if degrees == 1 else term
    for k in range(2 + odd, degrees - 1, 2):
        term *= (k - 1) / k * math.cos(angle) ** 2
        total += term
    total *= math.sin(angle)
    return 2 / math.pi * (angle + total) if odd else total
