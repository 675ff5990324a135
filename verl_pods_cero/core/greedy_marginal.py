"""The largest marginal gains first."""

from __future__ import annotations

import numpy as np

from verl_pods_cero.core.arrays import Ints, SmallInts
from verl_pods_cero.core.budget import BudgetedAllocator
from verl_pods_cero.core.ranking import leaders
from verl_pods_cero.core.settings import SCHEDULES, AllocatorSettings
from verl_pods_cero.core.utility import marginal_gain


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

    _paced = SCHEDULES

    def __init__(self, settings: AllocatorSettings) -> None:
        super().__init__(settings)
        ranks = np.random.default_rng(settings.seed).permutation(settings.num_prompts)
        self._tie: SmallInts = ranks.astype(np.int32)

    def _choose(self, candidates: Ints | None) -> tuple[Ints, Ints]:
        settings, room = self.settings, self._room
        rows = self._fresh(np.arange(settings.num_prompts) if candidates is None else candidates)
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
