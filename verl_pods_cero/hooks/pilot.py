"""A step in two parts: a few rollouts of each prompt, and the rest where these disagree."""

from __future__ import annotations

import numpy as np

from verl_pods_cero.core.allocators import Allocation
from verl_pods_cero.core.arrays import Ints
from verl_pods_cero.core.pilot import committed, pilot_of
from verl_pods_cero.core.settings import AllocatorSettings
from verl_pods_cero.hooks.prompts import AllocatedPrompts
from verl_pods_cero.hooks.rollouts import Rollouts


class Pilot:
    """Splits each step that an allocator planned.

    Args:
        rollouts: of each prompt in the first part.
        prompts: plan the steps.
        settings: of the allocator.
    """

    def __init__(self, rollouts: int, prompts: AllocatedPrompts, settings: AllocatorSettings) -> None:
        self._rollouts, self._prompts, self._settings = rollouts, prompts, settings
        self._planned = self._first = Allocation.empty()
        self.stopped_fraction = 0.0

    def first(self, planned: Allocation) -> Allocation:
        """Return the part of a step that comes first."""
        self._planned = planned
        self._first = Allocation(planned.indices, pilot_of(planned.rollouts, self._rollouts))
        return self._first

    def rest(self, rollouts: Rollouts | None) -> tuple[Ints, Allocation]:
        """Decide the second part, and tell the allocator who got what.

        Args:
            rollouts: of the first part that have every value, or None where there are none.

        Returns:
            Places in the step of the prompts that go on, (k,), and their rows with the rollouts to come.
        """
        rows, settings = self._planned.indices, self._settings
        wins, losses = np.zeros((2, len(rows)), dtype=np.int64)
        if rollouts is not None and len(rollouts):
            found, *counts = self._prompts.outcomes(rollouts)
            order = np.argsort(rows)
            place = order[np.searchsorted(rows, found, sorter=order)]
            wins[place], losses[place] = counts
        most = settings.n_max_units * settings.unit
        expected = self._prompts.expected(rows)
        more = committed(self._planned.rollouts, self._first.rollouts, wins, losses, expected, most, settings.unit)
        self._prompts.reassign(Allocation(rows, self._first.rollouts + more))
        on = np.flatnonzero(more)
        self.stopped_fraction = 1.0 - len(on) / max(1, len(rows))
        return on, Allocation(rows[on], more[on])

    def already(self, places: Ints) -> Ints:
        """Return how many rollouts the prompts at these places of the step were given first."""
        return self._first.rollouts[places]
