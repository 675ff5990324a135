"""Groups against the baseline: what they had spent at an accuracy, and how accurate they were at equal spending."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from verl_pods_cero.core.arrays import Floats, Ints, Mask
from verl_pods_cero.tools.reports.accuracy import Curve
from verl_pods_cero.tools.reports.groups import seeds_of
from verl_pods_cero.tools.reports.quantities import AXES
from verl_pods_cero.tools.reports.spread import CONFIDENCE

RESAMPLES = 2000
FEWEST_SEEDS = 3


@dataclass(frozen=True)
class Ratio:
    """The baseline's amount over a group's: above 1 the group needs less."""

    # of the mean curves; 0 where the group's does not get there, infinite where it does and the baseline's does not
    value: float
    # The 95 % interval, a percentile bootstrap over seeds, which draws the target anew as well: 0 where the group may
    # not get there; NaN with fewer than `FEWEST_SEEDS` on a side, and of an infinite value.
    low: float
    high: float


@dataclass(frozen=True)
class Milestone:
    """A group's way to the target."""

    group: str
    best: float  # the highest mean accuracy over seeds
    spent: Mapping[str, float]  # by axis, at the first validation whose mean accuracy is at least the target, if any is
    # by axis; none of one that either side did not log, of a group that began at a target which the baseline came to,
    # nor where neither gets there
    ratios: Mapping[str, Ratio]


def target(baseline: Curve) -> float:
    """Return the best accuracy of a curve: the highest mean over seeds at a validation."""
    return float(baseline.mean.max())


def milestones(curves: Mapping[str, Curve], baseline: str, goal: float | None = None) -> list[Milestone]:
    """Return the milestone of every group; the baseline's is among them, without ratios.

    The goal is an accuracy, or where it is None the baseline's best, in each draw of seeds its own.
    """
    base = curves[baseline]
    least = target(base) if goal is None else goal
    found = []
    for name, curve in curves.items():
        axes = [axis for axis in AXES if curve.knows(axis)]
        reached = np.flatnonzero(curve.mean >= least)
        spent = {axis: float(curve.spent[axis][:, reached[0]].mean()) for axis in axes} if len(reached) else {}
        compared = [axis for axis in axes if base.knows(axis)] if name != baseline else []
        ratios = {axis: ratio for axis in compared if (ratio := _ratio(base, curve, axis, goal)) is not None}
        found.append(Milestone(name, float(curve.mean.max()), spent, ratios))
    return found


def _ratio(base: Curve, curve: Curve, axis: str, goal: float | None) -> Ratio | None:
    everyone = np.arange(len(base.runs))[None], np.arange(len(curve.runs))[None]
    value = float(_ratios(base, curve, axis, goal, *everyone)[0])
    if np.isinf(value) and goal is not None and base.mean.max() < goal:
        return Ratio(value, math.nan, math.nan)
    if not np.isfinite(value):
        return None
    low = high = math.nan
    if min(len(base.runs), len(curve.runs)) >= FEWEST_SEEDS:
        # long curves a few draws at a time: a draw copies both
        pieces = 1 + RESAMPLES * (base.values.size + curve.values.size) // 2**20
        drawn = zip(*(np.array_split(seeds, min(pieces, RESAMPLES)) for seeds in _draws(base, curve)), strict=True)
        ratios = np.concatenate([_ratios(base, curve, axis, goal, *seeds) for seeds in drawn])
        # A draw in which neither side gets there says nothing: it counts against both ends. Some are infinite: no
        # interpolation.
        low, high = (
            float(np.quantile(np.where(np.isnan(ratios), unsaid, ratios), share, method="inverted_cdf"))
            for unsaid, share in ((0.0, (1 - CONFIDENCE) / 2), (np.inf, (1 + CONFIDENCE) / 2))
        )
    return Ratio(value, low, high)


def _ratios(base: Curve, curve: Curve, axis: str, goal: float | None, base_seeds: Ints, seeds: Ints) -> Floats:
    """Return the ratio in each of R draws of seeds, shapes (R, S): 0 or infinite where one side does not get there."""
    base_means = base.values[base_seeds].mean(axis=1)
    goals = base_means.max(axis=1, keepdims=True) if goal is None else goal
    base_spent = _first(base.spent[axis][base_seeds].mean(axis=1), base_means >= goals)
    spent = _first(curve.spent[axis][seeds].mean(axis=1), curve.values[seeds].mean(axis=1) >= goals)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = base_spent / spent
    return np.where((base_spent == 0) & (spent == 0), 1.0, ratios)


def _first(spent: Floats, reached: Mask) -> Floats:
    """Return what was spent at the first true entry of each row, infinity without one."""
    return np.where(reached.any(axis=1), spent[np.arange(len(spent)), reached.argmax(axis=1)], np.inf)


def _draws(base: Curve, curve: Curve) -> tuple[Ints, Ints]:
    """Draw seeds with replacement: the same for both sides where they have the same seeds."""
    rng = np.random.default_rng(0)
    drawn = rng.integers(len(base.runs), size=(RESAMPLES, len(base.runs)))
    if (pairs := paired(base, curve)) is not None:
        return drawn, pairs[drawn]
    return drawn, rng.integers(len(curve.runs), size=(RESAMPLES, len(curve.runs)))


def paired(base: Curve, curve: Curve) -> Ints | None:
    """Return the position in `curve` of each seed of `base`, or None unless both have the same seeds, once each."""
    ours, theirs = shared_seeds(base, curve)
    return theirs if len(ours) == len(base.runs) == len(curve.runs) else None


def shared_seeds(base: Curve, curve: Curve) -> tuple[Ints, Ints]:
    """Return the positions, in each of two curves, of the seeds that both have once, in the order of the first."""
    ours, theirs = ([seeds_of(run) for run in one.runs] for one in (base, curve))
    names = sorted(set.intersection(*(set(seeds) for seeds in (*ours, *theirs))))
    keys, others = ([tuple(seeds[name] for name in names) for seeds in side] for side in (ours, theirs))
    both = [key for key in keys if keys.count(key) == others.count(key) == 1]
    first, second = (np.array([side.index(key) for key in both], dtype=np.int64) for side in (keys, others))
    return first, second


HELD_EQUAL = ("rollouts", "training_s", "wall_s")
"""Axes at equal amounts of which groups are compared."""

SHARES = (0.25, 0.5, 1.0)
"""Of what the shortest run had spent at the last validation that all seeds of its group had."""


@dataclass(frozen=True)
class EqualAmounts:
    """Accuracies at A amounts of one axis, ascending, by group."""

    axis: str
    amounts: tuple[float, ...]
    accuracy: Mapping[str, Floats]  # shape (S, A) for S seeds; NaN before the first validation
    # Less the baseline's of the same seed, shape (C, A) for the C seeds that both have once; none of the baseline
    # itself, nor of a group that shares fewer than two of several seeds with it.
    gain: Mapping[str, Floats]


def equal_amounts(curves: Mapping[str, Curve], baseline: str, axis: str) -> EqualAmounts | None:
    """Compare groups at equal amounts of what an axis counts.

    A seed's accuracy at an amount lies on the straight line between its validations before and after it.

    Returns:
        None unless the baseline and another group logged the axis (one of `HELD_EQUAL`) and were validated after they
        had spent some of it. Groups that did not, or were not, are left out.
    """
    known = {name: curve for name, curve in curves.items() if curve.knows(axis) and _shortest(curve, axis) > 0}
    if baseline not in known or len(known) < 2:
        return None
    least = min(_shortest(curve, axis) for curve in known.values())
    amounts = tuple(share * least for share in SHARES)
    values = {name: _at(curve, axis, amounts) for name, curve in known.items()}
    gains = {}
    for name, curve in known.items():
        ours, theirs = shared_seeds(known[baseline], curve)
        fewest = min(2, max(len(values[baseline]), len(values[name])))
        if name != baseline and len(ours) >= fewest:
            gains[name] = values[name][theirs] - values[baseline][ours]
    return EqualAmounts(axis, amounts, values, gains)


def _shortest(curve: Curve, axis: str) -> float:
    return float(curve.spent[axis][:, -1].min())


def _at(curve: Curve, axis: str, amounts: tuple[float, ...]) -> Floats:
    """Return the accuracy of each seed at each amount, shape (S, A)."""
    rows = zip(curve.spent[axis], curve.values, strict=True)
    return np.array([np.interp(amounts, spent, values, left=np.nan) for spent, values in rows])
