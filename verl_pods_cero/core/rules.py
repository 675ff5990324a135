"""The rules of PODS: which m rollouts of a group are kept (arXiv 2504.13818, section 3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from verl_pods_cero.core.arrays import Floats, Ints, Mask
from verl_pods_cero.errors import OptionError


class Selection(NamedTuple):
    """The choice: kept (B, n) bool; top (B,), k, taken from the high end (0: group kept whole, or a rule without ends).

    >>> RULES["max_variance"](np.array([[0.0, 1.0, 0.0, 1.0]]), np.ones((1, 4), bool), 2, None).top.tolist()
    [1]
    """

    kept: Mask
    top: Ints


def _max_variance(rewards: Floats, mask: Mask, keep: int, _rng: Generator | None) -> Selection:
    """Keep the k highest and the m - k lowest, k the smallest that maximises the variance.

    A gain that rounding could have made is none (see `_best_top`): rewards that differ in their last few digits, or by
    about 1 at an offset of 1e15, count as equal, and the m lowest are kept.
    """
    low, high = _ends(rewards, mask, keep)
    top = _best_top(low, high)
    return Selection(_take(rewards, low, high, keep - top, top), top)


def _max_reward(rewards: Floats, mask: Mask, keep: int, _rng: Generator | None) -> Selection:
    """Keep the m highest: k = m."""
    top = np.full(len(rewards), keep)
    return Selection(_take(rewards, *_ends(rewards, mask, keep), keep - top, top), top)


def _random(rewards: Floats, mask: Mask, keep: int, rng: Generator | None) -> Mask:
    """Keep the rollouts with the m highest of n uniform draws: every subset is as likely."""
    if not isinstance(rng, Generator):
        raise OptionError("rule", "'random' needs a generator", rng, "pass rng=numpy.random.default_rng(seed)")
    return _max_reward(np.where(mask, rng.random(rewards.shape), np.nan), mask, keep, None).kept


def _percentile(rewards: Floats, mask: Mask, keep: int, _rng: Generator | None) -> Mask:
    """Keep the ranks round((j + 0.5) / m * n - 0.5), j = 0..m-1, n the group's own size, halves to the even rank."""
    sizes = np.count_nonzero(mask, axis=1)[:, None]
    # In integers: ((2 j + 1) n - m) / (2 m). n > m: ranks are more than one apart before rounding, and distinct after.
    ranks, rest = np.divmod((2 * np.arange(keep) + 1) * sizes - keep, 2 * keep)
    ranks += (rest > keep) | ((rest == keep) & (ranks % 2 == 1))
    order = np.argsort(rewards, axis=1, kind="stable")
    kept = np.zeros_like(mask)
    np.put_along_axis(kept, np.take_along_axis(order, ranks, axis=1), True, axis=1)
    return kept


RULES: dict[str, Callable[[Floats, Mask, int, Generator | None], Mask | Selection]] = {
    function.__name__[1:]: function for function in (_max_variance, _max_reward, _random, _percentile)
}


def _ends(values: Floats, mask: Mask, keep: int) -> tuple[Floats, Floats]:
    """Return the m + 1 lowest of each group, rising, and the m + 1 highest, falling: (m + 1, B) each."""
    ascending = np.sort(values, axis=1)  # NaN, outside the mask, comes last
    falling = ascending[:, ::-1]
    if not mask.all():
        last = np.count_nonzero(mask, axis=1)[:, None] - 1
        falling = np.take_along_axis(ascending, last - np.arange(keep + 1), axis=1)
    # A row for each rank keeps later memory accesses in order, and the copies let go of the big array.
    return ascending[:, : keep + 1].T.copy(), falling[:, : keep + 1].T.copy()


def _best_top(low: Floats, high: Floats) -> Ints:
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


def _take(values: Floats, low: Floats, high: Floats, first: Ints, last: Ints) -> Mask:
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
