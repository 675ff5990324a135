"""All runs of a simulation: every player at every seed, on as many processes as there are cores."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl_pods_cero.core.utility import utility
from verl_pods_cero.errors import PluginError
from verl_pods_cero.tools.simulation.filters import RULES
from verl_pods_cero.tools.simulation.logs import write_log
from verl_pods_cero.tools.simulation.measures import Result, choices, judge
from verl_pods_cero.tools.simulation.oracles import best_split, curvature
from verl_pods_cero.tools.simulation.play import play
from verl_pods_cero.tools.simulation.players import OFFLINE, Player, create, settings_for
from verl_pods_cero.tools.simulation.worlds import DriftingWorld, RecordedWorld, World, means_over_time


@dataclass(frozen=True)
class Experiment:
    """What is played.

    Attributes:
        players: who.
        sizes: of every run, as `settings_for` takes them.
        keeps: rollouts that the filter keeps of a group, one after the other; the logs hold the first.
        seeds: how many, from 0.
        recorded: the world, or None for a synthetic one drawn anew with each seed.
    """

    players: tuple[Player, ...]
    sizes: dict[str, Any]
    keeps: tuple[int, ...]
    seeds: int
    recorded: RecordedWorld | None

    def world(self, seed: int) -> World:
        """Return the world of a seed."""
        return self.recorded or DriftingWorld.drawn(self.sizes["num_prompts"], seed)

    def check(self) -> None:
        """Build every allocator once.

        Raises:
            OptionError: sizes that do not fit together, or an allocator that cannot be built.
        """
        world = self.world(0)
        for player in self.players:
            create(player, settings_for(player, self.sizes, 0), world)


class RunError(PluginError):
    """A run failed; the message names it."""


def run_one(experiment: Experiment, player: Player, seed: int, folder: Path) -> Result:
    """Play one run and write its log into the folder.

    Raises:
        RunError: the allocator failed.
    """
    world = experiment.world(seed)
    sizes = experiment.sizes
    settings = settings_for(player, sizes, seed)
    try:
        allocator = create(player, settings, world)
        # A trainer that is given a budget and a number of steps ends at the first of the two.
        played = play(allocator, settings, world, seed, limit=None if sizes["budget"] is None else sizes["steps"])
    except Exception as error:
        raise RunError(f"{player.label}, seed {seed}: {type(error).__name__}: {error}") from error
    filtered = choices(played.groups, RULES, experiment.keeps, seed)
    write_log(
        folder / f"{player.file_stem}-seed{seed}.jsonl", played, next(iter(filtered.values())) if filtered else None
    )
    means = means_over_time(world)
    hindsight = settings_for(Player(OFFLINE), sizes, seed)
    best = float(utility(best_split(hindsight, means[1]), curvature(hindsight, means[1])).sum())
    return judge(played, allocator, means, best, player.label, seed, filtered)


def run_all(experiment: Experiment, folder: Path, jobs: int) -> Iterator[Result]:
    """Play every run, in no order; with one job in this process, else in others.

    Raises:
        RunError: an allocator failed; the runs that have not begun are not played.
    """
    tasks = [(player, seed) for seed in range(experiment.seeds) for player in experiment.players]
    if jobs == 1:
        for player, seed in tasks:
            yield run_one(experiment, player, seed, folder)
        return
    # Not forked: the progress bar has a thread of its own.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(jobs, len(tasks)), context, _begin, (experiment, folder)) as pool:
        try:
            for future in as_completed([pool.submit(_run_here, *task) for task in tasks]):
                yield future.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


_here: list[tuple[Experiment, Path]] = []


def _begin(experiment: Experiment, folder: Path) -> None:
    # An interrupt reaches every process of the terminal: the one that waits for the others answers it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _here[:] = [(experiment, folder)]


def _run_here(player: Player, seed: int) -> Result:
    experiment, folder = _here[0]
    return run_one(experiment, player, seed, folder)
