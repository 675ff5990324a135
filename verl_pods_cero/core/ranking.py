"""The few largest of many values, with ties broken by a fixed permutation and without sorting the rest."""

from __future__ import annotations

import numpy as np

from verl_pods_cero.core.arrays import Floats, Ints, Mask, SmallInts

# Values looked at to guess where the cut lies; enough for the guess to hold nearly always.
_SAMPLE = 16_384


def leaders(values: Floats, ranks: SmallInts, floor: float, count: int) -> Ints:
    """Positions of the `count` largest values above `floor`, largest first, equals by rank.

    Formula:
        the first `count` of {i : values_i > floor} in the order of (-values_i, ranks_i).

    Args:
        values: (M,) float64, no NaN.
        ranks: (M,) int32, distinct, at best a permutation of 0..M-1.
        floor: Values must exceed it.
        count: How many at most.

    Returns:
        (k,) int64, k <= count; permuting values and ranks together permutes the answer and nothing more.

    Cost:
        A few comparisons of M numbers and a sort of k; a selection among M when the sampled guess fails.

    >>> ranks = np.array([0, 2, 1, 3], dtype=np.int32)
    >>> leaders(np.array([0.5, 0.9, 0.9, 0.1]), ranks, floor=0.2, count=2).tolist()
    [2, 1]
    """
    if count <= 0:
        return np.zeros(0, dtype=np.int64)
    chosen = np.arange(len(values)) if len(values) <= count else _unordered(values, ranks, count)
    chosen = chosen[values[chosen] > floor]
    return np.asarray(chosen[np.lexsort((ranks[chosen], -values[chosen]))], dtype=np.int64)


def _unordered(values: Floats, ranks: SmallInts, count: int) -> Ints:
    """Positions of the `count` < M largest values, equals by rank, in no order."""
    stride = -(-len(values) // _SAMPLE)
    sample = values[::stride]
    # Twice as deep as the cut should lie in the sample, and a few more against bad luck.
    depth = min(len(sample), 2 * count // stride + 16)
    guess = np.partition(sample, len(sample) - depth)[len(sample) - depth]
    above = np.flatnonzero(values > guess)
    if len(above) < count:
        level = values == guess
        if len(above) + np.count_nonzero(level) >= count:
            return np.concatenate([above, _lowest_ranks(level, ranks, count - len(above))])
        above = np.arange(len(values))
    near = values[above]
    cut = np.partition(near, len(near) - count)[len(near) - count]
    certain, level_rows = above[near > cut], above[near == cut]
    missing = count - len(certain)
    order = np.argpartition(ranks[level_rows], missing - 1)[:missing]
    return np.concatenate([certain, level_rows[order]])


def _lowest_ranks(members: Mask, ranks: SmallInts, count: int) -> Ints:
    """Positions of the `count` members with the lowest ranks, in no order; there are at least that many."""
    if count == 0:
        return np.zeros(0, dtype=np.int64)
    # Ranks are spread evenly over the members, so a low limit lets enough of them through; widen it if not.
    limit = 2 * count * len(ranks) // int(np.count_nonzero(members)) + 16
    low = np.flatnonzero(members & (ranks < limit))
    while len(low) < count:
        limit *= 4
        low = np.flatnonzero(members & (ranks < limit))
    return low[np.argpartition(ranks[low], count - 1)[:count]]
