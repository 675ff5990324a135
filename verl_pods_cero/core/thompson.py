"""Posterior sampling: prompts whose pass rate, as drawn from what is believed of it, is nearest to one half."""

from __future__ import annotations

import numpy as np

from verl_pods_cero.core.arrays import Floats, Ints
from verl_pods_cero.core.ranked import RankedAllocator

_TARGET = 0.5


class Thompson(RankedAllocator):
    """MoPPS: Thompson sampling of pass rates, the ones nearest to the target first.

    Formula:
        p_i ~ Beta(a_i, b_i), drawn anew in each round; the smallest |p_i - 1/2| get n rollouts each.
        a <- a0 + rho (a - a0) + S and b likewise with F, for the prompts that had outcomes.

    Differences from the publication:
        its code draws for 16 batches of candidates that the loader brings, here every prompt of the data set is drawn
        for unless candidates are given (0 to 0.4 points more effective prompts in the worlds of `verl-pods-cero
        simulate`). Its forgetting is the option `rho`; `simulate` takes 0.5. What is spent is the budget, as for every
        allocator here.

    Memory and cost:
        32 bytes a prompt; M draws from a Beta distribution a round.

    Source:
        MoPPS, arXiv 2507.04632.

    >>> from verl_pods_cero.core.settings import AllocatorSettings
    >>> a = Thompson(AllocatorSettings(num_prompts=3, budget=16, rounds=2, batch_prompts=1, n=8))
    >>> a.observe([0, 1, 2], [800, 400, 0], [0, 400, 800])
    >>> a.plan().indices.tolist()
    [1]
    """

    def _index(self, rows: Ints | None) -> Floats:
        which = slice(None) if rows is None else rows
        drawn = self._generator().beta(self.rates.a[which], self.rates.b[which])
        return -np.abs(drawn - _TARGET)
