"""PODS: which rollouts of each prompt the policy is updated on.

Rewards come as a matrix (B, n) with a mask of the rollouts that exist; a rule keeps m of each row ("group"). All
rules read a group in one order, by (reward, position): rollouts of equal reward stay in the order in which they
came, so the same rewards give the same choice on every machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from numbers import Integral, Real
from typing import Any, TypeAlias, TypeGuard

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from verl_pods_cero.core.arrays import Floats, Ints, Mask
from verl_pods_cero.core.import_names import imported
from verl_pods_cero.core.rules import RULES, Selection
from verl_pods_cero.errors import OptionError

__all__ = [
    "RESPONSE_LENGTH",
    "NonFiniteRewardError",
    "Rule",
    "Selection",
    "keep_count",
    "needs",
    "resolve_rule",
    "rule_needs",
    "select",
]


Rule: TypeAlias = Callable[..., "Mask | Selection"]
"""``(rewards, mask, keep, rng) -> kept``, such as ``lambda r, mask, keep, rng: mask & (mask.cumsum(1) <= keep)``.

Gets the groups of more than m = keep rollouts, rewards (B, n) NaN outside the mask, and keeps exactly m of each.
A rule that is marked by `needs` also gets ``values``, a mapping of names to tables (B, n) like the rewards.
"""

RESPONSE_LENGTH = "response_length"


def needs(*names: str) -> Callable[[Rule], Rule]:
    """Mark a rule as one that reads more than rewards: it gets them by name, as the keyword argument `values`.

    Args:
        names: ``response_length``, in tokens, or keys of the scorer's ``reward_extra_info``.

    The shortest of the best answers, in five lines:

    >>> @needs("response_length")
    ... def shortest(rewards, mask, keep, rng, values):
    ...     order = np.lexsort((values["response_length"], -rewards), axis=1)  # NaN, outside the mask, comes last
    ...     kept = np.zeros_like(mask)
    ...     np.put_along_axis(kept, order[:, :keep], True, axis=1)
    ...     return kept
    >>> rewards, lengths = np.array([[1.0, 0.0, 1.0, 1.0]]), np.array([[90.0, 5.0, 20.0, 40.0]])
    >>> select(rewards, np.ones((1, 4), bool), 2, shortest, values={"response_length": lengths}).kept.tolist()
    [[False, False, True, True]]
    """

    def marked(rule: Rule) -> Rule:
        rule.needs = names  # type: ignore[attr-defined]
        return rule

    return marked


def rule_needs(rule: str | Rule) -> tuple[str, ...]:
    """Return the names of the values that a rule reads besides the rewards.

    >>> rule_needs("max_variance")
    ()
    """
    return tuple(getattr(resolve_rule(rule) if isinstance(rule, str) else rule, "needs", ()))


class NonFiniteRewardError(ValueError):
    """Some rewards, or other values, are NaN or infinite; ``groups`` has the indices along B of their groups.

    >>> str(NonFiniteRewardError(np.array([0, 7])))
    'rewards must be finite, 2 groups have NaN or infinity: [0, 7]'
    """

    def __init__(self, groups: Ints, what: str = "rewards") -> None:
        self.groups = groups
        super().__init__(f"{what} must be finite, {len(groups)} groups have NaN or infinity: {groups[:10].tolist()}")


def select(
    rewards: NDArray[Any],
    mask: Mask,
    keep: int,
    rule: str | Rule = "max_variance",
    rng: Generator | None = None,
    values: Mapping[str, NDArray[Any]] | None = None,
) -> Selection:
    """Keep m rollouts of each group; groups of m or fewer are kept whole (PODS, arXiv 2504.13818, section 3).

    Formula of max_variance: argmax over S, |S| = m, of Var(r_i, i in S).

    Args:
        rewards: shape (B, n), compared as float64; not read outside the mask.
        mask: rollouts that exist, shape (B, n), bool.
        keep: m, at least 2. It may exceed n: a caller that forbids it asks `keep_count`.
        rule: a name or ``package.module:function`` (see `resolve_rule`), or the function itself.
        rng: for rules that draw, such as random.
        values: what rules marked by `needs` read, by name, each of shape (B, n), compared as float64.

    Raises:
        NonFiniteRewardError: NaN or infinite rewards, or values that the rule needs, inside the mask.
        ValueError: shapes that do not fit. Its OptionError: keep is not a whole number of at least 2, a rule is
            unknown or breaks its contract, or what it needs is not among the values.

    >>> rewards = np.array([[0.0, 0.2, 1.0, 0.9, 0.1], [1.0, 0.0, 9.9, 9.9, 9.9]])
    >>> select(rewards, rewards < 9, keep=3).kept.astype(int).tolist()
    [[1, 0, 1, 0, 1], [1, 1, 0, 0, 0]]
    """
    function = resolve_rule(rule) if isinstance(rule, str) else rule
    mask = np.asarray(mask)
    if not _is_whole(keep) or keep < 2:
        raise OptionError("keep", "must be at least 2, a whole number", keep, "one rollout alone has no variance")
    table = _checked(rewards, mask, "rewards")
    needed = {name: _checked(_needed(function, name, values or {}), mask, name) for name in rule_needs(function)}
    kept, top = mask.copy(), np.zeros(len(mask), dtype=np.int64)
    groups = np.flatnonzero(np.count_nonzero(mask, axis=1) > keep)
    if len(groups) > 0:
        several = slice(None) if len(groups) == len(mask) else groups
        inside = mask[several]
        whole = bool(inside.all())
        given, *more = (
            each[several] if whole else np.where(inside, each[several], np.nan) for each in (table, *needed.values())
        )
        extra = {"values": dict(zip(needed, more, strict=True))} if needed else {}
        result = function(given, inside, keep, rng, **extra)
        if function not in RULES.values():
            _check(result, inside, keep, groups, _name(function))
        kept[several], top[several] = result if isinstance(result, Selection) else (result, 0)
    return Selection(kept, top)


def _checked(values: NDArray[Any], mask: Mask, name: str) -> Floats:
    """Return a table as float64, or refuse it."""
    table = np.asarray(values, dtype=np.float64)
    if table.ndim != 2 or table.shape != mask.shape or mask.dtype != np.bool_:
        raise ValueError(f"need {name} (B, n) and bool mask (B, n), got {table.shape} and {mask.dtype} {mask.shape}")
    if (bad := mask & ~np.isfinite(table)).any():
        raise NonFiniteRewardError(np.flatnonzero(bad.any(axis=1)), name)
    return table


def _needed(rule: Rule, name: str, values: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    if name not in values:
        fix = f"let the scorer report it, or the rule do without; given: {', '.join(sorted(values)) or 'none'}"
        raise OptionError("rule", f"{_name(rule)} needs a value that is not there", name, fix)
    return values[name]


def _name(rule: Rule) -> str:
    return str(getattr(rule, "__qualname__", repr(rule)))


def resolve_rule(name: str) -> Rule:
    """Find a rule of PODS (arXiv 2504.13818, section 3) by name, or one's own as ``package.module:function``.

    Raises:
        OptionError: an unknown name, or a function that cannot be imported or called.

    >>> resolve_rule("percentil")
    Traceback (most recent call last):
        ...
    verl_pods_cero.errors.OptionError: rule must be a known name or package.module:function, got 'percentil'. Fix: \
did you mean 'percentile'? Known: max_reward, max_variance, percentile, random.
    """
    return RULES[name] if name in RULES else imported("rule", name, RULES, "function")


def keep_count(n: int, keep: int | None = None, keep_fraction: float | None = None) -> int:
    """Return m, the rollouts kept of n (PODS, arXiv 2504.13818, section 3).

    Formula: m = keep, or max(2, floor(keep_fraction n + 1/2)), so halves go up; the fraction is the decimal that it is
    written as, in exact arithmetic: 0.7 of 45 is 31.5, and m = 32.

    Raises:
        OptionError: both or neither given, keep no integer from 2 to n, a fraction outside (0, 1], n < 2.

    >>> keep_count(64, keep=16), keep_count(5, keep_fraction=0.5)
    (16, 3)
    """
    if (keep is None) == (keep_fraction is None):
        fix = f"set {{keep}}={max(2, n // 4)}" if keep is None else "set {keep_fraction}=null"
        given = "neither" if keep is None else f"both {keep} and {keep_fraction}"
        raise OptionError("keep", "or {keep_fraction} must be set, one of them", given, fix)
    if keep_fraction is not None:
        if n < 2 or not isinstance(keep_fraction, Real) or not 0 < keep_fraction <= 1:
            rule = f"must be above 0, at most 1 (and n={n} at least 2)"
            raise OptionError("keep_fraction", rule, keep_fraction, "use 0.25")
        return max(2, int(Fraction(str(keep_fraction)) * n + Fraction(1, 2)))
    if not _is_whole(keep) or not 2 <= keep <= n:
        fix = "set it to 2 or more" if _is_whole(keep) and keep < 2 else "lower it, or generate more rollouts"
        raise OptionError("keep", f"must be an integer from 2 to n={n}", keep, fix)
    return keep


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _check(result: object, mask: Mask, keep: int, groups: Ints, name: str) -> None:
    """Refuse what a rule of one's own returned unless it keeps exactly m of each group, inside the mask."""
    kept = np.asarray(result.kept if isinstance(result, Selection) else result)
    if kept.shape != mask.shape or kept.dtype != np.bool_:
        raise OptionError("rule", f"{name} must return bool {mask.shape}", f"{kept.dtype} {kept.shape}", "correct it")
    inside, total = np.count_nonzero(kept & mask, axis=1), np.count_nonzero(kept, axis=1)
    if (wrong := np.flatnonzero((inside != keep) | (total != keep))).size:
        first = wrong[0]
        got = f"{total[first]} kept, {inside[first]} of them inside the mask, in group {groups[first]}"
        fix = f"let the function {name} return bool (B, n) with {keep} true in each row, where the mask is true"
        raise OptionError("rule", f"must keep exactly {keep} rollouts of each group, inside the mask", got, fix)
