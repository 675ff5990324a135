"""How accurate each group was when all had spent the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from verl_pods_cero.reports.accuracy import Curve
from verl_pods_cero.reports.log_files import Floats
from verl_pods_cero.reports.milestones import paired
from verl_pods_cero.reports.spread import half_width

AXES = ("rollouts", "training_s", "wall_s")
"""What is held equal."""

SHARES = (0.25, 0.5, 1.0)
"""Of the least that a run had spent at its last validation."""


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds and half of its 95 % confidence interval (Student's t), NaN with one seed."""

    mean: float
    half_width: float

    @classmethod
    def of(cls, values: Floats) -> Estimate:
        """Estimate the mean of one value a seed.

        >>> Estimate.of(np.array([1.0, 2.0, 3.0])).mean
        2.0
        """
        return cls(float(values.mean()), float(half_width(values)))


@dataclass(frozen=True)
class EqualAmounts:
    """Accuracies at a few amounts of one axis.

    Attributes:
        axis: one of `AXES`.
        amounts: A of them, ascending.
        accuracy: A estimates a group, by its name.
        gain: the same of the accuracy less the baseline's, seed by seed; none of the baseline itself, nor of a group
            that has other seeds.
    """

    axis: str
    amounts: tuple[float, ...]
    accuracy: Mapping[str, tuple[Estimate, ...]]
    gain: Mapping[str, tuple[Estimate, ...]]


def equal_amounts(curves: Mapping[str, Curve], baseline: str, axis: str) -> EqualAmounts | None:
    """Compare groups at equal amounts of what an axis counts.

    A seed's accuracy at an amount lies on the straight line between its validations before and after it.

    Args:
        curves: of the groups.
        baseline: the name of one of them.
        axis: one of `AXES`.

    Returns:
        None where the baseline did not log the axis; groups that did not are left out.
    """
    known = {name: curve for name, curve in curves.items() if curve.knows(axis)}
    if baseline not in known:
        return None
    least = min(float(curve.spent[axis][:, -1].min()) for curve in known.values())
    amounts = tuple(share * least for share in SHARES)
    values = {name: _at(curve, axis, amounts) for name, curve in known.items()}
    gains = {}
    for name, curve in known.items():
        pairs = paired(known[baseline], curve) if name != baseline else None
        if pairs is not None:
            gains[name] = values[name][pairs] - values[baseline]
    return EqualAmounts(
        axis,
        amounts,
        {name: tuple(map(Estimate.of, table.T)) for name, table in values.items()},
        {name: tuple(map(Estimate.of, table.T)) for name, table in gains.items()},
    )


def _at(curve: Curve, axis: str, amounts: tuple[float, ...]) -> Floats:
    """Return the accuracy of each seed at each amount, shape (S, A)."""
    rows = zip(curve.spent[axis], curve.values, strict=True)
    return np.array([np.interp(amounts, spent, values) for spent, values in rows])
