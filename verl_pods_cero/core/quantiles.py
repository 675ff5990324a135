"""A few quantiles of many numbers, exactly, without sorting them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verl_pods_cero.core.arrays import Floats, SmallInts

# Values looked at to guess where a quantile lies.
_SAMPLE = 16_384
# Standard deviations of the sample's rank that a guess leaves to either side.
_MARGIN = 5.0


def quantiles(values: Floats | SmallInts, shares: Sequence[float]) -> list[float]:
    """Quantiles of values, linear between neighbours: the numbers of `np.quantile`, bit for bit.

    Formula:
        x_(k) + (h - k) (x_(k+1) - x_(k)), h = share (M - 1), k = floor(h), x_(0) <= x_(1) <= ... the sorted values.

    Args:
        values: (M,) float64 without NaN, or int32 of at least 0; M >= 1.
        shares: from 0 to 1.

    Cost:
        small integers are counted once. Of other numbers a sample says between which two values a quantile lies: two
        comparisons with M numbers, and a selection among the few in between. Where the guess fails, among all M.

    Source:
        Floyd and Rivest (1975), "Expected time bounds for selection".

    >>> quantiles(np.array([3.0, 1.0, 2.0, 8.0]), [0.5, 1.0])
    [2.5, 8.0]
    >>> quantiles(np.array([3, 1, 2, 8], dtype=np.int32), [0.5, 1.0])
    [2.5, 8.0]
    """
    if values.dtype.kind == "i" and int(values.max()) <= max(len(values), _SAMPLE):
        ends = np.cumsum(np.bincount(values))
        neighbours = [np.searchsorted(ends, _places(len(values), share), side="right").tolist() for share in shares]
    else:
        sample = np.sort(values[:: -(-len(values) // _SAMPLE)])
        neighbours = [_neighbours(values, sample, share) for share in shares]
    return [
        _between(low, high, share * (len(values) - 1) % 1.0)
        for (low, high), share in zip(neighbours, shares, strict=True)
    ]


def _places(count: int, share: float) -> tuple[int, int]:
    """Ranks of the two values that a quantile lies between."""
    first = math.floor(share * (count - 1))
    return first, min(first + 1, count - 1)


def _neighbours(values: NDArray[Any], sample: NDArray[Any], share: float) -> tuple[float, float]:
    """Return the two values that a quantile lies between."""
    first, second = _places(len(values), share)
    middle, margin = share * (len(sample) - 1), _MARGIN * math.sqrt(share * (1.0 - share) * len(sample)) + 1.0
    low, high = sample[max(0, math.floor(middle - margin))], sample[min(len(sample) - 1, math.ceil(middle + margin))]
    if len(sample) == len(values):
        return float(sample[first]), float(sample[second])
    not_below = values >= low
    below = len(values) - int(np.count_nonzero(not_below))
    not_below &= values <= high
    if not below <= first <= second < below + np.count_nonzero(not_below):
        near, below = values, 0
    elif low == high:
        return float(low), float(low)
    else:
        near = values[not_below]
    ordered = np.partition(near, (first - below, second - below))
    return float(ordered[first - below]), float(ordered[second - below])


def _between(low: float, high: float, part: float) -> float:
    """Interpolate as numpy does: from the nearer side, so that rounding never leaves the two values' range."""
    step = float(high) - float(low)
    return float(high) - step * (1.0 - part) if part >= 0.5 else float(low) + step * part
