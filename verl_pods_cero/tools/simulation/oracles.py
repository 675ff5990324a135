"""Players that know what no allocator can: the true pass rates of the moment, or those of the whole run."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from verl_pods_cero.core.arrays import Floats, Ints
from verl_pods_cero.core.greedy_marginal import GreedyMarginal
from verl_pods_cero.core.pass_rates import checked_indices
from verl_pods_cero.core.ranked import RankedAllocator
from verl_pods_cero.core.ranking import leaders
from verl_pods_cero.core.settings import AllocatorSettings
from verl_pods_cero.core.utility import greedy_optimum
from verl_pods_cero.tools.simulation.worlds import World


class GreedyOracle(RankedAllocator):
    """The prompts whose groups are likeliest to be mixed at this moment, however often they had their turn.

    Formula:
        v_i = 1 - p_i^n - (1 - p_i)^n with the true pass rate p_i when the round is planned; the largest get n rollouts
        each. No allocator can expect a larger share of mixed groups of n in a round.

    Args:
        settings: of the run.
        world: whose pass rates it reads.
    """

    def __init__(self, settings: AllocatorSettings, world: World) -> None:
        super().__init__(settings)
        self.world = world

    @property
    def _taken(self) -> int:
        """Units handed out before the open round."""
        return self._spent - int(self._open_units.sum())

    def predict(self, indices: ArrayLike) -> Floats:
        """The true pass rates, (k,)."""
        rows = checked_indices(self.settings.num_prompts, indices)
        return self.world.pass_rates(self._taken / self.settings.budget_units, rows)

    def _signal(self, rows: Ints | None) -> Floats:
        p = self.predict(np.arange(self.settings.num_prompts) if rows is None else rows)
        n = self.settings.group_units * self.settings.unit
        return np.asarray(1.0 - p**n - (1.0 - p) ** n)

    def _index(self, rows: Ints | None) -> Floats:
        return self._signal(rows)


class Oracle(GreedyOracle):
    """What `prioritized` would do if it knew the true pass rates of the moment.

    Formula:
        priority_i = v_i^focus (t - t_i), v_i as in `GreedyOracle`, t and t_i as in `Prioritized`.
    """

    def __init__(self, settings: AllocatorSettings, world: World) -> None:
        super().__init__(settings, world)
        self._last_met: Floats = np.full(settings.num_prompts, -1.0)

    @property
    def _clock(self) -> float:
        return self._taken / (self.settings.num_prompts * self.settings.group_units)

    def _index(self, rows: Ints | None) -> Floats:
        age = self._clock - self._last_met[slice(None) if rows is None else rows]
        return np.asarray(self._signal(rows) ** self.settings.focus * age)

    def _learn(self, rows: Ints, wins: Floats, losses: Floats) -> None:
        super()._learn(rows, wins, losses)
        self._last_met[rows] = self._clock


class OfflineOptimum(GreedyMarginal):
    """The best split in hindsight for CERO's utility, handed out at the even pace of `GreedyMarginal`.

    Formula:
        targets z_i = argmax sum_i 1 - exp(-c_i z_i), c_i = 4 lam q_i / R with q_i the true mean of p_i (1 - p_i)
        over the run, sum_i z_i = B. In round k the prompts that are furthest behind z_i (k + 1) / K + N_max x_i get
        N_max units each, or what is left of z_i; x_i in [0, 1), fixed, so that prompts alike do not come all at once.

    Args:
        settings: of the run.
        q: (M,), what no allocator can know before the run.

    Source:
        The benchmark of CERO's regret, arXiv 2606.05606; the pace is settled here.
    """

    def __init__(self, settings: AllocatorSettings, q: Floats) -> None:
        super().__init__(settings)
        self.targets = best_split(settings, q)
        self._head_start: Floats = self._tie / settings.num_prompts * settings.n_max_units

    def _choose(self, candidates: Ints | None) -> tuple[Ints, Ints]:
        most, room = self.settings.n_max_units, self._room
        wanted = self.targets - self.exposures
        share = (self.round + 1) / self.settings.rounds
        behind: Floats = self.targets * share + self._head_start - self.exposures
        behind[wanted <= 0] = -np.inf
        behind[self._open_rows] = -np.inf
        if candidates is not None:
            others = np.ones(len(behind), dtype=bool)
            others[candidates] = False
            behind[others] = -np.inf
        rows = leaders(behind, self._tie, floor=-np.inf, count=room)
        units = np.minimum(wanted[rows], most)
        return rows, np.clip(room - (np.cumsum(units) - units), 0, units)


def best_split(settings: AllocatorSettings, q: Floats) -> Ints:
    """Units that the offline optimum gives each prompt, (M,)."""
    cap = settings.rounds * settings.n_max_units
    return greedy_optimum(curvature(settings, q), settings.budget_units, cap)


def curvature(settings: AllocatorSettings, q: Floats) -> Floats:
    """Curvature of the prompts' utilities per unit: c = 4 lam q / R, R = B / M in units."""
    return np.asarray(4.0 * settings.lam * q * settings.num_prompts / settings.budget_units)
