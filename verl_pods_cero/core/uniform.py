"""Plain GRPO as an allocator."""

from __future__ import annotations

import numpy as np

from verl_pods_cero.core.arrays import Ints
from verl_pods_cero.core.settings import AllocatorSettings
from verl_pods_cero.core.walk import WalkingAllocator


class Uniform(WalkingAllocator):
    """Plain GRPO: n rollouts to every prompt met, until the batch is full.

    Formula:
        N_i = n in the order met; the last prompt of a batch or of the budget may get less. Where B asks for more
        than n of every prompt in every round, N_i = B / (K M), rounded up to units.

    Source:
        GRPO, arXiv 2402.03300, as verl runs it.

    >>> a = Uniform(AllocatorSettings(num_prompts=4, budget=32, rounds=2, batch_prompts=2, n=8))
    >>> p = a.plan(candidates=[3, 0, 1]); p.indices.tolist(), p.rollouts.tolist()
    ([3, 0], [8, 8])
    """

    learns = False

    @classmethod
    def group_sizes(cls, settings: AllocatorSettings) -> tuple[int, int]:
        """Whoever is served gets n."""
        each = settings.group_units * settings.unit
        return each, each

    @classmethod
    def takes_everyone(cls, settings: AllocatorSettings, offered: int) -> bool:  # noqa: ARG003
        """To take everyone is what it is for."""
        return False

    def _choose(self, candidates: Ints | None) -> tuple[Ints, Ints]:
        each = self.settings.group_units
        rows = self._met(candidates, -(-self._room // each))
        return rows, np.clip(self._room - each * np.arange(len(rows)), 0, each)
