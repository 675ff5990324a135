"""The two ends of groups: the lowest and the highest values, in the order (value, position)."""

from __future__ import annotations

import numpy as np

from verl_pods_cero.core.arrays import Floats, Ints, Mask


def ends(values: Floats, mask: Mask, keep: int) -> tuple[Floats, Floats]:
    """Return the m + 1 lowest of each group, rising, and the m + 1 highest, falling: (m + 1, B) each."""
    ascending = np.sort(values, axis=1)  # NaN, outside the mask, comes last
    falling = ascending[:, ::-1]
    if not mask.all():
        last = np.count_nonzero(mask, axis=1)[:, None] - 1
        falling = np.take_along_axis(ascending, last - np.arange(keep + 1), axis=1)
    # A row for each rank keeps later memory accesses in order, and the copies let go of the big array.
    return ascending[:, : keep + 1].T.copy(), falling[:, : keep + 1].T.copy()


def best_top(low: Floats, high: Floats) -> Ints:
    """Return the smallest k that maximises V(k), the variance of the k highest and m - k lowest, shape (B,).

    The step from k to k + 1 puts a, the highest not yet taken, in place of b, the highest of the low ones:

        m (V(k+1) - V(k)) = (a - b) (a + b - mean(k) - mean(k+1)).

    With k, a and b never rise and the mean never falls, so the second factor changes sign at most once: V climbs,
    then falls, and the best k is one past the last step that gains.
    """
    keep, centre = len(low) - 1, low[0] / 2 + high[0] / 2  # V ignores the rewards' offset; sums lose digits to it
    a, b = high[:-1] - centre, low[-2::-1] - centre
    step, total = a - b, b.sum(axis=0)
    climb = np.add(a, b, out=a)
    for k in range(keep):
        climb[k] -= (2 * total + step[k]) / keep  # mean(k) + mean(k+1)
        total += step[k]
    # In a symmetric group two k are equally good, and rounding must not choose between them. This bounds what half
    # a unit in the last place of every reward, and of every sum of m, can do to either factor.
    noise = 4 * np.finfo(float).eps * (keep * (high[0] - centre) + np.maximum(np.abs(low[0]), np.abs(high[0])))
    gains = np.minimum(step, climb) > noise
    best: Ints = (gains * np.arange(1, keep + 1)[:, None]).max(axis=0)
    return best


def take(values: Floats, low: Floats, high: Floats, first: Ints, last: Ints) -> Mask:
    """Mark the first and the last so many of each group in the order (value, position), shape (B, n).

    Comparing with the first value left out at each end costs less than a stable argsort. Those that equal it and
    are still missing come by position, from the front at the low end and from the back at the high end.
    """
    groups = np.arange(len(values))
    floor, ceiling = low[first, groups], high[last, groups]
    kept: Mask = values < floor[:, None]
    kept |= values > ceiling[:, None]
    for bound, missing, back in (
        (floor, first - np.count_nonzero(low < floor, axis=0), 0),
        (ceiling, last - np.count_nonzero(high > ceiling, axis=0), 1),
    ):
        if (rows := np.flatnonzero(missing)).size:
            equal = np.flatnonzero(values == np.where(missing > 0, bound, np.nan)[:, None])
            count = missing[rows]
            starts = np.searchsorted(equal, (rows + back) * values.shape[1]) - back * count
            runs = np.repeat(starts + count - np.cumsum(count), count) + np.arange(count.sum())
            kept.reshape(-1)[equal[runs]] = True  # runs: starts[i] .. starts[i] + count[i] - 1 of each row i
    return kept
