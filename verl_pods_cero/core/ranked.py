"""Prompts served by rank: the largest of some index first, alike many rollouts each."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from verl_pods_cero.core.arrays import Floats, Ints, SmallInts
from verl_pods_cero.core.budget import BudgetedAllocator
from verl_pods_cero.core.ranking import leaders
from verl_pods_cero.core.settings import AllocatorSettings


class RankedAllocator(BudgetedAllocator):
    """An allocator that gives n rollouts to each of the prompts whose index is largest.

    Formula:
        a round serves the first ceil(L / n) prompts in the order of (-index, tie rank), n rollouts each, the last one
        what is left; L is C in the schedule `round`. In `epoch`, where C would hold every prompt, L is the even share
        ceil(budget left / rounds left). Where the budget asks for more than n of every prompt in every round, n is
        `AllocatorSettings.group_units`.

    A prompt is served at most once a round; among candidates the answer is in their order.
    """

    _paced = ("epoch",)

    def __init__(self, settings: AllocatorSettings) -> None:
        super().__init__(settings)
        ranks = np.random.default_rng(settings.seed).permutation(settings.num_prompts)
        self._tie: SmallInts = ranks.astype(np.int32)

    @classmethod
    def group_sizes(cls, settings: AllocatorSettings) -> tuple[int, int]:
        """Whoever is served gets n."""
        each = settings.group_units * settings.unit
        return each, each

    @abstractmethod
    def _index(self, rows: Ints | None) -> Floats:
        """A new array: the index of the prompts at `rows`, or of all M."""

    def _choose(self, candidates: Ints | None) -> tuple[Ints, Ints]:
        each, room = self.settings.group_units, self._room
        count = -(-room // each)
        if candidates is None:
            index = self._index(None)
            index[self._open_rows] = -np.inf
            rows = leaders(index, self._tie, floor=-np.inf, count=count)
        else:
            rows = self._fresh(candidates)
            best = leaders(self._index(rows), self._tie[rows], floor=-np.inf, count=count)
            rows = rows[np.sort(best)]
        return rows, np.clip(room - each * np.arange(len(rows)), 0, each)
