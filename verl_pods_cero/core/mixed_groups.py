"""How likely a group of rollouts is to hold both outcomes, where its prompt's pass rate is uncertain."""

from __future__ import annotations

import numpy as np

from verl_pods_cero.core.arrays import Floats
from verl_pods_cero.core.logit_beliefs import logistic

_STEPS_PER_UNIT = 10
_FURTHEST_MEAN, _FURTHEST_SD = 14, 6


class MixedGroups:
    """Probabilities of mixed groups of n under normal distributions of the logit, from a table made once.

    Formula:
        v(m, s) = 1 - E p^n - E (1 - p)^n, p = sigmoid(x), x ~ N(m, s^2); tabled at every tenth of a logit for
        |m| <= 14 and s <= 6 (what lies outside counts as the border), linear in between.

    Args:
        n: Rollouts of a group.

    >>> mixed = MixedGroups(8)
    >>> mixed(np.array([0.0, 0.0, 5.0]), np.array([0.0, 3.0, 0.0])).round(3).tolist()
    [0.992, 0.57, 0.052]
    """

    def __init__(self, n: int) -> None:
        count = 2 * _FURTHEST_MEAN * _STEPS_PER_UNIT + 1
        means = np.linspace(-_FURTHEST_MEAN, _FURTHEST_MEAN, count)[:, None]
        points = np.linspace(-5.0, 5.0, 201)
        weights = np.exp(-(points**2) / 2)
        weights /= weights.sum()
        columns = []
        for sd in np.linspace(0.0, _FURTHEST_SD, _FURTHEST_SD * _STEPS_PER_UNIT + 1):
            p = logistic(means + sd * points)
            columns.append((1.0 - p**n - (1.0 - p) ** n) @ weights)
        self._table = np.stack(columns, axis=1)

    def __call__(self, mean: Floats, sd: Floats) -> Floats:
        """Look up v for means and standard deviations, (k,) each."""
        row = np.clip((mean + _FURTHEST_MEAN) * _STEPS_PER_UNIT, 0, len(self._table) - 1)
        column = np.clip(sd * _STEPS_PER_UNIT, 0, self._table.shape[1] - 1)
        i = np.minimum(row.astype(np.int64), len(self._table) - 2)
        j = np.minimum(column.astype(np.int64), self._table.shape[1] - 2)
        down, across = row - i, column - j
        near = (1.0 - across) * self._table[i, j] + across * self._table[i, j + 1]
        far = (1.0 - across) * self._table[i + 1, j] + across * self._table[i + 1, j + 1]
        return np.asarray((1.0 - down) * near + down * far)
