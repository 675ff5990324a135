"""Allocators without a price: the plain run, greedy gains, and a knapsack in each batch."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from verl_pods_cero.core.ledger import BudgetedAllocator
from verl_pods_cero.core.ranking import leaders
from verl_pods_cero.core.settings import AllocatorSettings
from verl_pods_cero.core.utility import marginal_gain
from verl_pods_cero.core.walk import Walk

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


class WalkingAllocator(BudgetedAllocator):
    """An allocator that meets prompts in a given order: the candidates', or a shuffled walk over the data.

    In a round it meets a prompt of the walk at most once; candidates are the caller's business.
    """

    def __init__(self, settings: AllocatorSettings) -> None:
        super().__init__(settings)
        self._walk = Walk(settings.num_prompts, settings.seed)

    def _met(self, candidates: Indices | None, count: int) -> Indices:
        """The next `count` prompts to decide on."""
        if candidates is not None:
            return candidates[:count]
        rows = self._walk.next_rows(min(count + len(self._open_rows), self.settings.num_prompts))
        rows = rows[~np.isin(rows, self._open_rows)][:count]
        if len(rows):
            self._walk.step_past(int(rows[-1]))
        return rows

    def state_dict(self) -> dict[str, np.ndarray]:
        """Adds how far the walk is."""
        return super().state_dict() | {"visited": np.array(self._walk.visited)}

    def load_state_dict(self, state: dict[str, np.ndarray]) -> None:
        """Go on from a saved state."""
        super().load_state_dict(state)
        self._walk.visited = int(state["visited"])


class Uniform(WalkingAllocator):
    """Plain GRPO: n rollouts to every prompt met, until the batch is full.

    Formula:
        N_i = n in the order met; the last prompt of a batch or of the budget may get less.

    Source:
        GRPO, arXiv 2402.03300, as verl runs it.

    >>> a = Uniform(AllocatorSettings(num_prompts=4, budget=32, rounds=2, batch_prompts=2, n=8))
    >>> p = a.plan(candidates=[3, 0, 1]); p.indices.tolist(), p.rollouts.tolist()
    ([3, 0], [8, 8])
    """

    @classmethod
    def group_sizes(cls, settings: AllocatorSettings) -> tuple[int, int]:
        """Whoever is served gets n."""
        return settings.n, settings.n

    def _choose(self, candidates: Indices | None) -> tuple[Indices, Indices]:
        each = self.settings.n_units
        rows = self._met(candidates, -(-self._room // each))
        return rows, np.clip(self._room - each * np.arange(len(rows)), 0, each)


class GreedyMarginal(BudgetedAllocator):
    """The largest marginal gains of the moment, at an even pace.

    Formula:
        unit l of a prompt that has z units is worth (1 - exp(-c)) exp(-c (z + l - 1)), c = 4 lam q / R; a
        round takes the most valuable units, at most N_max of a prompt, until it has its even share of what is
        left, ceil(budget left / rounds left), or C.

    Source:
        The offline greedy optimum of `verl_pods_cero.core.utility`, with the posterior of the moment in the
        place of the truth.

    >>> a = GreedyMarginal(AllocatorSettings(num_prompts=2, budget=32, rounds=2, batch_prompts=2, n=8))
    >>> a.plan().rollouts.tolist()
    [8, 8]
    """

    def __init__(self, settings: AllocatorSettings) -> None:
        super().__init__(settings)
        ranks = np.random.default_rng(settings.seed).permutation(settings.num_prompts)
        self._tie: NDArray[np.int32] = ranks.astype(np.int32)

    def _round_limit(self) -> int:
        handed = int(self._open_units.sum())
        left = self.settings.budget_units - self._spent + handed
        return min(super()._round_limit(), -(-left // max(1, self.settings.rounds - self.round)))

    def _choose(self, candidates: Indices | None) -> tuple[Indices, Indices]:
        settings, room = self.settings, self._room
        rows = np.arange(settings.num_prompts)
        if candidates is not None:
            rows = candidates[np.sort(np.unique(candidates, return_index=True)[1])]
        rows = rows[~np.isin(rows, self._open_rows)] if len(self._open_rows) else rows
        c = 4.0 * settings.lam * self.rates.q[rows] * settings.num_prompts / settings.budget_units
        level = self.exposures[rows]
        ranks = self._tie[rows]
        # A prompt's first unit is its best, so no more than `room` prompts can be served, and these are they.
        best = leaders(marginal_gain(level, c), ranks, floor=-1.0, count=room)
        steps = np.arange(settings.n_max_units)
        gains = marginal_gain(level[best, None] + steps, c[best, None])
        order = np.lexsort((np.tile(steps, len(best)), np.repeat(ranks[best], len(steps)), -gains.ravel()))
        units = np.bincount(order[:room] // len(steps), minlength=len(best))
        place = np.argsort(best)
        return rows[best[place]], units[place]


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

    >>> a = Knapsack(AllocatorSettings(num_prompts=2, budget=32, rounds=2, batch_prompts=2, n=8, n_max=12))
    >>> a.observe([0], [30], [2])
    >>> a.plan(candidates=[0, 1]).rollouts.tolist()
    [12, 4]
    """

    def _choose(self, candidates: Indices | None) -> tuple[Indices, Indices]:
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


def mixed_outcome_knapsack(p: Floats, total: int, cap: int, unit: int) -> Indices:
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
