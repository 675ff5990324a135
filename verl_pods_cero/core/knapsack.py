"""Knapsack RL: a batch's rollouts, split so that most groups are expected to hold both outcomes."""

from __future__ import annotations

import numpy as np

from verl_pods_cero.core.arrays import Floats, Ints
from verl_pods_cero.core.walk import WalkingAllocator


class Knapsack(WalkingAllocator):
    """Within each batch, rollouts go where a group is likeliest to have both outcomes.

    Formula:
        for the batch_prompts prompts of a batch maximise sum_i 1 - p_i^{n_i} - (1 - p_i)^{n_i} with sum_i n_i
        equal to what a plain run would give them and n_i at most N_max; p_i is the posterior mean. Solved
        exactly by dynamic programming, O(batch_prompts N_max C) in units. With n_max = n nothing is left to
        decide.

    Source:
        Knapsack RL, arXiv 2509.25849: allocation of an exploration budget as a knapsack; here with the
        probability of a non-zero gradient as the value, and the posterior mean as the pass rate.

    >>> from verl_pods_cero.core.settings import AllocatorSettings
    >>> a = Knapsack(AllocatorSettings(num_prompts=2, budget=32, rounds=2, batch_prompts=2, n=8, n_max=12))
    >>> a.observe([0], [30], [2])
    >>> a.plan(candidates=[0, 1]).rollouts.tolist()
    [12, 4]
    """

    def _choose(self, candidates: Ints | None) -> tuple[Ints, Ints]:
        settings, room = self.settings, self._room
        rows = self._met(candidates, -(-room // settings.n_units))
        units = np.zeros(len(rows), dtype=np.int64)
        for start in range(0, len(rows), settings.batch_prompts):
            batch = slice(start, start + settings.batch_prompts)
            p = self.rates.predict(rows[batch])
            total = min(room, len(p) * settings.n_units)
            units[batch] = mixed_outcome_knapsack(p, total, settings.n_max_units, settings.unit)
            room -= total
        return rows, units


def mixed_outcome_knapsack(p: Floats, total: int, cap: int, unit: int) -> Ints:
    """Split `total` units so that most groups are expected to hold both a success and a failure.

    Formula:
        maximise sum_i V_i(k_i) with V_i(k) = 1 - p_i^{g k} - (1 - p_i)^{g k}, V_i(0) = 0, 0 <= k_i <= cap and
        sum_i k_i = total, over integers; g = unit. Of equal solutions the one that serves earlier prompts more.

    Args:
        p: Pass rates, (B,), each in [0, 1].
        total: Units to hand out, at most B cap.
        cap: Most units of one prompt.
        unit: Rollouts in a unit, at least 2.

    Returns:
        k, (B,) int64, in units.

    Source:
        Knapsack RL, arXiv 2509.25849, value of a group under GRPO.

    >>> mixed_outcome_knapsack(np.array([0.5, 0.02]), total=4, cap=4, unit=2).tolist()
    [3, 1]
    """
    k = np.arange(cap + 1)
    value = 1.0 - p[:, None] ** (unit * k) - (1.0 - p[:, None]) ** (unit * k)
    value[:, 0] = 0.0
    best = np.full(total + 1, -np.inf)
    best[0] = 0.0
    taken = np.zeros((len(p), total + 1), dtype=np.int64)
    for i in range(len(p)):
        grown = best.copy()
        for j in range(1, min(cap, total) + 1):
            worth = best[: total + 1 - j] + value[i, j]
            better = worth > grown[j:]
            grown[j:][better] = worth[better]
            taken[i, j:][better] = j
        best = grown
    units = np.zeros(len(p), dtype=np.int64)
    left = total
    for i in range(len(p) - 1, -1, -1):
        units[i] = taken[i, left]
        left -= units[i]
    return units
