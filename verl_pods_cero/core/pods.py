"""PODS: which rollouts of each prompt the policy is updated on.

Rewards come as a matrix (B, n) with a mask of the rollouts that exist; a rule keeps m of each row ("group"). All
rules read a group in one order, by (reward, position): rollouts of equal reward stay in the order in which they
came, so the same rewards give the same choice on every machine.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from verl_pods_cero.core.arrays import Floats, Ints, Mask
from verl_pods_cero.errors import OptionError, nearest

_OPTION = "pods_cero.filter.rule"


class Selection(NamedTuple):
    """The choice: kept (B, n) bool; top (B,), k, taken from the high end (0: group kept whole, or a rule without ends).

    >>> select(np.array([[0.0, 1.0, 0.0, 1.0]]), np.ones((1, 4), bool), keep=2).top.tolist()
    [1]
    """

    kept: Mask
    top: Ints


Rule: TypeAlias = Callable[[Floats, Mask, int, "Generator | None"], "Mask | Selection"]
"""``(rewards, mask, keep, rng) -> kept``, such as ``lambda r, mask, keep, rng: mask & (mask.cumsum(1) <= keep)``.

Gets the groups of more than m = keep rollouts, rewards (B, n) NaN outside the mask, and keeps exactly m of each.
"""


class NonFiniteRewardError(ValueError):
    """Some rewards are NaN or infinite; ``groups`` has the indices along B of their groups.

    >>> str(NonFiniteRewardError(np.array([0, 7])))
    'rewards must be finite, 2 groups have NaN or infinity: [0, 7]'
    """

    def __init__(self, groups: Ints) -> None:
        self.groups = groups
        super().__init__(f"rewards must be finite, {len(groups)} groups have NaN or infinity: {groups[:10].tolist()}")


def select(
    rewards: NDArray[Any], mask: Mask, keep: int, rule: str | Rule = "max_variance", rng: Generator | None = None
) -> Selection:
    """Keep m rollouts of each group; groups of m or fewer are kept whole (PODS, arXiv 2504.13818, section 3).

    Formula of max_variance: argmax over S, |S| = m, of Var(r_i, i in S).

    Args:
        rewards: shape (B, n), compared as float64; not read outside the mask.
        mask: rollouts that exist, shape (B, n), bool.
        keep: m, at least 2. It may exceed n: a caller that forbids it asks `keep_count`.
        rule: a name or ``package.module:function`` (see `resolve_rule`), or the function itself.
        rng: for rules that draw, such as random.

    Raises:
        NonFiniteRewardError: NaN or infinite rewards inside the mask.
        ValueError: shapes that do not fit, keep < 2, or OptionError: a rule that is unknown or breaks its contract.

    >>> rewards = np.array([[0.0, 0.2, 1.0, 0.9, 0.1], [1.0, 0.0, 9.9, 9.9, 9.9]])
    >>> select(rewards, rewards < 9, keep=3).kept.astype(int).tolist()
    [[1, 0, 1, 0, 1], [1, 1, 0, 0, 0]]
    """
    function = resolve_rule(rule) if isinstance(rule, str) else rule
    values, mask = np.asarray(rewards, dtype=np.float64), np.asarray(mask)
    if values.ndim != 2 or values.shape != mask.shape or mask.dtype != np.bool_:
        raise ValueError(f"need rewards (B, n) and bool mask (B, n), got {values.shape} and {mask.dtype} {mask.shape}")
    if keep < 2:
        raise ValueError(f"keep must be at least 2, for one rollout alone has no variance, got {keep}")
    if (bad := mask & ~np.isfinite(values)).any():
        raise NonFiniteRewardError(np.flatnonzero(bad.any(axis=1)))
    kept, top = mask.copy(), np.zeros(len(values), dtype=np.int64)
    groups = np.flatnonzero(np.count_nonzero(mask, axis=1) > keep)
    if len(groups) > 0:
        several = slice(None) if len(groups) == len(values) else groups
        inside = mask[several]
        given = values[several] if inside.all() else np.where(inside, values[several], np.nan)
        result = function(given, inside, keep, rng)
        if function not in _RULES.values():
            _check(result, inside, keep, groups, getattr(function, "__qualname__", repr(function)))
        kept[several], top[several] = result if isinstance(result, Selection) else (result, 0)
    return Selection(kept, top)


def resolve_rule(name: str) -> Rule:
    """Find a rule of PODS (arXiv 2504.13818, section 3) by name, or one's own as ``package.module:function``.

    Raises:
        OptionError: an unknown name, or a function that cannot be imported or called.

    >>> resolve_rule("percentil")
    Traceback (most recent call last):
        ...
    verl_pods_cero.errors.OptionError: pods_cero.filter.rule must be a rule or package.module:function, \
got 'percentil'. Fix: did you mean 'percentile'? Known: max_reward, max_variance, percentile, random.
    """
    if name in _RULES:
        return _RULES[name]
    module, _, attribute = name.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), attribute)):
        raise OptionError(_OPTION, "must be a rule or package.module:function", name, nearest(name, _RULES))
    try:
        function: Rule = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise OptionError(_OPTION, f"cannot be imported ({error})", name, "put it on PYTHONPATH") from error
    if not callable(function):
        raise OptionError(_OPTION, "must be a function", name, f"{attribute} is of type {type(function).__name__}")
    return function


def keep_count(n: int, keep: int | None = None, keep_fraction: float | None = None) -> int:
    """Return m, the rollouts kept of n (PODS, arXiv 2504.13818, section 3).

    Formula: m = keep, or max(2, floor(keep_fraction n + 1/2)), so halves go up.

    Raises:
        OptionError: both or neither given, keep no integer from 2 to n, a fraction outside (0, 1], n < 2.

    >>> keep_count(64, keep=16), keep_count(5, keep_fraction=0.5)
    (16, 3)
    """
    option, share = "pods_cero.filter.keep", "pods_cero.filter.keep_fraction"
    if (keep is None) == (keep_fraction is None):
        fix = f"set {option}={max(2, n // 4)}" if keep is None else "null the other"
        raise OptionError(f"{option} or {share}", "must be set, one of them", (keep, keep_fraction), fix)
    if keep_fraction is not None:
        if n < 2 or not 0 < keep_fraction <= 1:
            raise OptionError(share, f"must be above 0, at most 1 (and n={n} at least 2)", keep_fraction, "use 0.25")
        return max(2, int(keep_fraction * n + 0.5))
    if not isinstance(keep, int) or not 2 <= keep <= n:
        fix = "set it to 2 or more" if isinstance(keep, int) and keep < 2 else "lower it, or generate more rollouts"
        raise OptionError(option, f"must be an integer from 2 to n={n}", keep, fix)
    return keep


def _max_variance(rewards: Floats, mask: Mask, keep: int, _rng: Generator | None) -> Selection:
    """Keep the k highest and the m - k lowest, k the smallest that maximises the variance."""
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
        raise OptionError(_OPTION, "'random' needs a generator", rng, "pass rng=numpy.random.default_rng(seed)")
    return _max_reward(np.where(mask, rng.random(rewards.shape), np.nan), mask, keep, None).kept


def _percentile(rewards: Floats, mask: Mask, keep: int, _rng: Generator | None) -> Mask:
    """Keep the ranks round((j + 0.5) / m * n - 0.5), j = 0..m-1, n the group's own size, halves to the even rank."""
    sizes = np.count_nonzero(mask, axis=1)[:, None]
    # n > m: ranks are more than one apart before rounding, and distinct after it.
    ranks = np.rint((np.arange(keep) + 0.5) / keep * sizes - 0.5).astype(np.int64)
    order = np.argsort(rewards, axis=1, kind="stable")
    kept = np.zeros_like(mask)
    np.put_along_axis(kept, np.take_along_axis(order, ranks, axis=1), True, axis=1)
    return kept


_RULES: dict[str, Rule] = {f.__name__[1:]: f for f in (_max_variance, _max_reward, _random, _percentile)}


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


def _check(result: object, mask: Mask, keep: int, groups: Ints, name: str) -> None:
    """Refuse what a rule of one's own returned unless it keeps exactly m of each group, inside the mask."""
    kept = np.asarray(result.kept if isinstance(result, Selection) else result)
    if kept.shape != mask.shape or kept.dtype != np.bool_:
        raise OptionError(_OPTION, f"{name} must return bool {mask.shape}", f"{kept.dtype} {kept.shape}", "correct it")
    inside, total = np.count_nonzero(kept & mask, axis=1), np.count_nonzero(kept, axis=1)
    if (wrong := np.flatnonzero((inside != keep) | (total != keep))).size:
        got = f"{total[wrong[0]]}, {inside[wrong[0]]} of them inside, in group {groups[wrong[0]]}"
        raise OptionError(_OPTION, f"{name} must keep {keep} of each group inside the mask", got, "correct it")
