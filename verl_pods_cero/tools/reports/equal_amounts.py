"""How accurate each group was when all had spent the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from verl_pods_cero.core.arrays import Floats
from verl_pods_cero.tools.reports.accuracy import Curve
from verl_pods_cero.tools.reports.milestones import shared_seeds

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
