"""Knapsack RL: a batch's rollouts, split so that the groups are expected to teach most."""

from __future__ import annotations

import numpy as np

from verl_pods_cero.core.arrays import Floats, Ints
from verl_pods_cero.core.walk import WalkingAllocator


class Knapsack(WalkingAllocator):
    """Within each batch, rollouts go where a group is likeliest to have both outcomes and to teach something.

    Formula:
        for the batch_prompts prompts of a batch maximise sum_i V_i(n_i) (`group_values`) with sum_i n_i equal to what
        `Uniform` would give them and n_i at most N_max. Solved exactly by dynamic programming, O(batch_prompts N_max C)
        in units. With n_max = n nothing is left to decide.

    Differences from the publication:
        it puts the last observed pass rate into V; here both factors rest on the Beta posterior, so that a prompt seen
        little is not taken for settled. Its limits on the rollouts of a prompt are `unit` and `n_max` here, and a
        prompt may get none. Its extra exploration of tasks never solved has no part here.

    Source:
        Knapsack RL, arXiv 2509.25849: allocation of an exploration budget as a knapsack.

    >>> from verl_pods_cero.core.settings import AllocatorSettings
    >>> a = Knapsack(AllocatorSettings(num_prompts=2, budget=32, rounds=2, batch_prompts=2, n=8, n_max=12))
    >>> a.observe([0], [30], [2])
    >>> a.plan(candidates=[0, 1]).rollouts.tolist()
    [4, 12]
    """

    def _choose(self, candidates: Ints | None) -> tuple[Ints, Ints]:
        settings, room = self.settings, self._room
        rows = self._met(candidates, -(-room // settings.group_units))
        units = np.zeros(len(rows), dtype=np.int64)
        for start in range(0, len(rows), settings.batch_prompts):
            batch = slice(start, start + settings.batch_prompts)
            a, b = self.rates.a[rows[batch]], self.rates.b[rows[batch]]
            total = min(room, len(a) * settings.group_units)
            units[batch] = fill_knapsack(group_values(a, b, settings.n_max_units, settings.unit), total)
            room -= total
        return rows, units


def group_values(a: Floats, b: Floats, cap: int, unit: int) -> Floats:
    """Value of a group of each size under a Beta posterior of the pass rate.

    Formula:
        V(k) = m (1 - m)^2 (1 - E p^{g k} - E (1 - p)^{g k}), p ~ Beta(a, b), m = a / (a + b), g = unit: the gain in
        pass rate that a step on a mixed group is taken to bring, times the chance of such a group. Of a Beta
        distribution, E p^k is the product of (a + j) / (a + b + j) over j < k.

    Args:
        a: Pseudo-counts of success, (B,), > 0.
        b: Pseudo-counts of failure, (B,), > 0.
        cap: Most units of a prompt.
        unit: Rollouts in a unit.

    Returns:
        V, (B, cap + 1), for k = 0 to cap; V(0) = 0.

    Source:
        Knapsack RL, arXiv 2509.25849, value of a task: probability of a non-zero gradient times p (1 - p)^2.

    >>> group_values(np.array([1.0]), np.array([1.0]), cap=2, unit=4).round(3).tolist()
    [[0.0, 0.075, 0.097]]
    """
    total = a + b
    j = np.arange(cap * unit)
    all_pass, all_fail = (
        np.cumprod((count[:, None] + j) / (total[:, None] + j), axis=1)[:, unit - 1 :: unit] for count in (a, b)
    )
    gain = (a / total) * (b / total) ** 2
    values = np.zeros((len(a), cap + 1))
    values[:, 1:] = gain[:, None] * (1.0 - all_pass - all_fail)
    return values


def fill_knapsack(values: Floats, total: int) -> Ints:
    """Split `total` units so that the sum of values is largest.

    Formula:
        maximise sum_i values[i, k_i] with sum_i k_i = total, over integers 0 <= k_i <= cap. Of equal solutions the
        one that serves earlier prompts more.

    Args:
        values: (B, cap + 1), of 0 to cap units of each prompt.
        total: Units to hand out, at most B cap.

    Returns:
        k, (B,) int64, in units.

    >>> fill_knapsack(np.array([[0, 3.0, 4.0], [0, 2.0, 5.0]]), total=3).tolist()
    [1, 2]
    """
    best = np.full(total + 1, -np.inf)
    best[0] = 0.0
    taken = np.zeros((len(values), total + 1), dtype=np.int64)
    for i in range(len(values)):
        grown = best + values[i, 0]
        for j in range(1, min(values.shape[1] - 1, total) + 1):
            worth = best[: total + 1 - j] + values[i, j]
            better = worth > grown[j:]
            grown[j:][better] = worth[better]
            taken[i, j:][better] = j
        best = grown
    units = np.zeros(len(values), dtype=np.int64)
    left = total
    for i in range(len(values) - 1, -1, -1):
        units[i] = taken[i, left]
        left -= units[i]
    return units
