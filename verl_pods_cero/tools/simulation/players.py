"""Who plays: allocators by name, each with its schedule, and the best split in hindsight."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from verl_pods_cero.core.allocators import KNOWN, Allocator, create_allocator, resolve_allocator
from verl_pods_cero.core.arrays import Floats, Ints
from verl_pods_cero.core.greedy_marginal import GreedyMarginal
from verl_pods_cero.core.ranking import leaders
from verl_pods_cero.core.settings import SCHEDULES, AllocatorSettings
from verl_pods_cero.core.utility import greedy_optimum
from verl_pods_cero.errors import OptionError, nearest
from verl_pods_cero.tools.simulation.worlds import World, means_over_time

OFFLINE = "offline_optimum"
# Forgetting of arXiv 2507.04632.
_THOMPSON_RHO = 0.5
_OPTION = "--allocators"


@dataclass(frozen=True)
class Player:
    """An allocator and its schedule.

    >>> Player("cero", "epoch").label, Player("cero", "round").label
    ('cero/epoch', 'cero')
    """

    allocator: str
    schedule: str = "round"

    @property
    def label(self) -> str:
        """Its name in tables; the schedule is left out where it is `round`."""
        return self.allocator if self.schedule == "round" else f"{self.allocator}/{self.schedule}"

    @property
    def file_stem(self) -> str:
        """Its name in file names."""
        return re.sub(r"[^A-Za-z0-9_.]+", "-", self.label)


def parse_players(text: str) -> list[Player]:
    """Read a list of names with commas, `name/schedule` each, or `package.module:Class/schedule`.

    Raises:
        OptionError: an unknown name or schedule, or one named twice.

    >>> [player.label for player in parse_players("uniform,cero/round,cero/epoch")]
    ['uniform', 'cero', 'cero/epoch']
    """
    players: list[Player] = []
    for entry in (part.strip() for part in text.split(",")):
        name, _, schedule = entry.partition("/")
        if schedule and schedule not in SCHEDULES:
            raise OptionError(_OPTION, f"has an unknown schedule for {name}", schedule, nearest(schedule, SCHEDULES))
        if ":" not in name and name not in {*KNOWN, OFFLINE}:
            raise OptionError(_OPTION, "names no allocator", name, nearest(name, {*KNOWN, OFFLINE}))
        player = Player(name, schedule or "round")
        if player == Player(OFFLINE, "epoch"):
            raise OptionError(_OPTION, "has one schedule for the offline optimum", entry, f"write {OFFLINE}")
        if player in players:
            raise OptionError(_OPTION, "must name an allocator once", entry, f"take one {entry} out")
        players.append(player)
    return players


def settings_for(player: Player, sizes: Mapping[str, Any], seed: int) -> AllocatorSettings:
    """Fill in an allocator's settings as a training run of these sizes would.

    The knapsack may give a prompt up to 2 n rollouts unless n_max says otherwise: with n_max = n it has nothing to
    decide, and is `uniform`. Posterior sampling forgets as published unless rho says otherwise.

    Args:
        player: who.
        sizes: arguments of `AllocatorSettings.of_run` that all players share.
        seed: of ties and draws.

    Raises:
        OptionError: the sizes do not fit together.
    """
    own = {"knapsack": {"n_max": 2 * sizes["n"]}, "thompson": {"rho": _THOMPSON_RHO}}.get(player.allocator, {})
    if player.allocator != OFFLINE:
        own["headroom"] = getattr(resolve_allocator(player.allocator), "headroom", 1.0)
    given = {name: value for name, value in sizes.items() if value is not None}
    return AllocatorSettings.of_run(**{**own, **given}, schedule=player.schedule, seed=seed)


def create(player: Player, settings: AllocatorSettings, world: World) -> Allocator:
    """Build a player's allocator; the offline optimum is shown the world, the others are not."""
    if player.allocator != OFFLINE:
        return create_allocator(player.allocator, settings)
    return OfflineOptimum(settings, means_over_time(world)[1])


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
