"""Who plays: allocators by name, each with its schedule and settings of its own, and those that know the truth."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from verl_pods_cero.core.allocators import KNOWN, Allocator, create_allocator, resolve_allocator
from verl_pods_cero.core.settings import SCHEDULES, AllocatorSettings
from verl_pods_cero.errors import OptionError, nearest
from verl_pods_cero.tools.simulation.oracles import GreedyOracle, OfflineOptimum, Oracle
from verl_pods_cero.tools.simulation.worlds import World, means_over_time

OFFLINE = "offline_optimum"
# Players that are shown the world.
_KNOWING: dict[str, Callable[[AllocatorSettings, World], Allocator]] = {
    "greedy_oracle": GreedyOracle,
    "oracle": Oracle,
    OFFLINE: lambda settings, world: OfflineOptimum(settings, means_over_time(world)[1]),
}
_NAMES = {*KNOWN, *_KNOWING}
# Forgetting of arXiv 2507.04632.
_THOMPSON_RHO = 0.5
# Settings that a player may have of its own; sizes are everyone's, or a comparison would not be one.
_OWN: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(("n_max", "unit", "capacity"), int),
    **dict.fromkeys(("rho", "lam", "focus", "drift_noise", "price", "prior_successes", "prior_failures"), float),
}
_OPTION = "--allocators"


@dataclass(frozen=True)
class Player:
    """An allocator, its schedule, and what it has set otherwise than the rest.

    >>> Player("cero", "epoch").label, Player("cero", "round", (("rho", 0.9),)).label
    ('cero/epoch', 'cero@rho=0.9')
    """

    allocator: str
    schedule: str = "round"
    own: tuple[tuple[str, float], ...] = ()

    @property
    def label(self) -> str:
        """Its name in tables; the schedule is left out where it is `round`."""
        name = self.allocator if self.schedule == "round" else f"{self.allocator}/{self.schedule}"
        return "@".join([name, *(f"{field}={value:g}" for field, value in self.own)])

    @property
    def file_stem(self) -> str:
        """Its name in file names."""
        return re.sub(r"[^A-Za-z0-9_.]+", "-", self.label)


def parse_players(text: str) -> list[Player]:
    """Read a list of names with commas, `name/schedule@setting=value@...` each; `package.module:Class` is a name too.

    Raises:
        OptionError: an unknown name, schedule or setting, or a player named twice.

    >>> [player.label for player in parse_players("uniform,cero/round,cero/epoch,prioritized@focus=1")]
    ['uniform', 'cero', 'cero/epoch', 'prioritized@focus=1']
    """
    players: list[Player] = []
    for entry in (part.strip() for part in text.split(",")):
        head, *assigned = entry.split("@")
        name, _, schedule = head.partition("/")
        if schedule and schedule not in SCHEDULES:
            raise OptionError(_OPTION, f"has an unknown schedule for {name}", schedule, nearest(schedule, SCHEDULES))
        if ":" not in name and name not in _NAMES:
            raise OptionError(_OPTION, "names no allocator", name, nearest(name, _NAMES))
        if (name, schedule) == (OFFLINE, "epoch"):
            raise OptionError(_OPTION, "has one schedule for the offline optimum", entry, f"write {OFFLINE}")
        player = Player(name, schedule or "round", tuple(_own(entry, part) for part in assigned))
        if player in players:
            raise OptionError(_OPTION, "must name an allocator once", entry, f"take one {entry} out")
        players.append(player)
    return players


def _own(entry: str, assignment: str) -> tuple[str, float]:
    name, _, value = assignment.partition("=")
    if name not in _OWN:
        raise OptionError(_OPTION, f"has an unknown setting in {entry}", name, nearest(name, _OWN))
    try:
        return name, _OWN[name](value)
    except ValueError:
        fix = "write setting=number, a whole one for n_max, unit and capacity"
        raise OptionError(_OPTION, f"must have a number for {name} in {entry}", value, fix) from None


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
    default = {"knapsack": {"n_max": 2 * sizes["n"]}, "thompson": {"rho": _THOMPSON_RHO}}.get(player.allocator, {})
    if player.allocator not in _KNOWING:
        default["headroom"] = getattr(resolve_allocator(player.allocator), "headroom", 1.0)
    given = {name: value for name, value in sizes.items() if value is not None}
    return AllocatorSettings.of_run(**{**default, **given, **dict(player.own)}, schedule=player.schedule, seed=seed)


def create(player: Player, settings: AllocatorSettings, world: World) -> Allocator:
    """Build a player's allocator; oracles and the offline optimum are shown the world, the others are not."""
    if player.allocator in _KNOWING:
        return _KNOWING[player.allocator](settings, world)
    return create_allocator(player.allocator, settings)
