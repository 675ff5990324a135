"""Groups: the values of each prompt's rollouts, as a table with a mask of those that exist."""

from __future__ import annotations

import numpy as np

from verl_pods_cero.core.arrays import Floats, Mask


def zero_variance(values: Floats, mask: Mask, tolerance: float = 1e-6) -> Mask:
    """Return which groups hold one value only, up to rounding, shape (B,).

    Formula:
        max - min <= t max(g, t T), g the largest |v| of the group, T that of the table, t the tolerance: the second
        takes what rounding leaves of a zero, without one outlier of a step deciding for the other groups.

    Args:
        values: shape (B, n).
        mask: entries that exist, shape (B, n).
        tolerance: relative, in [0, 1); 0 compares exactly.

    >>> values = np.array([[0.1 + 0.2, 0.3], [0.0, 1.0], [0.0, 5.5e-17]])
    >>> zero_variance(values, np.ones((3, 2), bool)).tolist()
    [True, False, True]
    """
    high = np.where(mask, values, -np.inf).max(axis=1, initial=-np.inf)
    low = np.where(mask, values, np.inf).min(axis=1, initial=np.inf)
    largest = np.abs(values).max(axis=1, initial=0.0, where=mask)
    scale = np.maximum(largest, tolerance * largest.max(initial=0.0))
    return np.asarray(high - low <= tolerance * scale)


def variances(values: Floats, mask: Mask) -> Floats:
    """Return the variance of each group, shape (B,); 0 of a group without entries.

    Formula:
        (1/m) sum over i of (v_i - mean)^2, over the m entries that exist.

    Args:
        values: shape (B, n).
        mask: entries that exist, shape (B, n).

    >>> variances(np.array([[0.0, 1.0, 9.0]]), np.array([[True, True, False]])).tolist()
    [0.25]
    """
    counts = np.maximum(mask.sum(axis=1), 1)
    means = np.where(mask, values, 0.0).sum(axis=1) / counts
    squares = np.where(mask, values - means[:, None], 0.0) ** 2
    return np.asarray(squares.sum(axis=1) / counts)
