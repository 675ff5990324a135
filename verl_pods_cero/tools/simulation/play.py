"""One run without a model: an allocator's steps, with outcomes drawn from a world."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verl_pods_cero.core.allocators import Allocation, Allocator
from verl_pods_cero.core.arrays import Floats, Ints, Mask
from verl_pods_cero.core.budget import BudgetedAllocator
from verl_pods_cero.core.settings import AllocatorSettings
from verl_pods_cero.core.steps import Steps, most_steps
from verl_pods_cero.core.walk import Walk
from verl_pods_cero.tools.simulation.learner import LearnerWorld
from verl_pods_cero.tools.simulation.luck import luck
from verl_pods_cero.tools.simulation.worlds import World


@dataclass(frozen=True)
class Groups:
    """Groups of rollouts, one a prompt and step.

    Shapes:
        step, row, rollouts, wins: (G,) int64. true_rate: (G,). predicted: (G,), NaN where the allocator predicts
        nothing. outcomes: (G, widest) bool, False beyond a group's rollouts.
    """

    step: Ints
    row: Ints
    rollouts: Ints
    wins: Ints
    true_rate: Floats
    predicted: Floats
    outcomes: Mask

    @property
    def mixed(self) -> Mask:
        """Groups with a success and a failure, (G,)."""
        return np.asarray((self.wins > 0) & (self.wins < self.rollouts))

    @property
    def exists(self) -> Mask:
        """Which entries of `outcomes` are rollouts."""
        return np.asarray(np.arange(self.outcomes.shape[1]) < self.rollouts[:, None])


@dataclass(frozen=True)
class Play:
    """A finished run: its groups, what the allocator said of itself after each step, and its settings."""

    settings: AllocatorSettings
    groups: Groups
    metrics: list[dict[str, float]]

    @property
    def steps(self) -> int:
        """Training steps taken."""
        return len(self.metrics)

    def per_step(self, values: NDArray[np.generic] | None = None) -> Floats:
        """Sum values of groups by step, (steps,); without values, count the groups."""
        return np.bincount(self.groups.step, weights=values, minlength=self.steps).astype(np.float64)


def play(
    allocator: Allocator,
    settings: AllocatorSettings,
    world: World,
    seed: int,
    limit: int | None = None,
    offered: int | None = None,
) -> Play:
    """Play a run to its end, in the steps that a trainer would take.

    The world's clock is the share of the budget that was spent before a step: at equal rollouts, every allocator
    meets the same pass rates.

    Args:
        allocator: new, built from `settings`.
        settings: of the run.
        world: where outcomes come from.
        seed: of the outcomes.
        limit: most steps.
        offered: prompts that a loader brings at a time, in a shuffled order; None to choose from all.

    Raises:
        ValueError: the allocator serves a prompt twice in a step.
    """
    run = Steps(allocator, settings, None if offered is None else _loader(settings, offered))
    seen = np.zeros(world.num_prompts, dtype=np.int64)
    parts: list[Groups] = []
    metrics: list[dict[str, float]] = []
    most = most_steps(settings) if limit is None else min(limit, most_steps(settings))
    while len(metrics) < most:
        run.prepare()
        if run.exhausted:
            break
        progress = run.rollouts_taken / settings.budget
        step = run.take()
        groups = _sampled(step, len(metrics), world, progress, seed, seen, _predictions(allocator, step))
        seen[step.indices] += step.rollouts
        if isinstance(world, LearnerWorld):
            world.learn(groups.row, groups.rollouts, groups.wins)
        run.observe(step.indices, groups.wins, groups.rollouts - groups.wins)
        parts.append(groups)
        metrics.append({**allocator.metrics(), "prompts": float(len(step)), "rollouts": float(step.total)})
    return Play(settings, _joined(parts), metrics)


def _loader(settings: AllocatorSettings, offered: int) -> Callable[[], Ints]:
    walk = Walk(settings.num_prompts, settings.seed)

    def next_candidates() -> Ints:
        rows = walk.next_rows(offered)
        walk.step_past(int(rows[-1]))
        return rows

    return next_candidates


def _sampled(
    step: Allocation, number: int, world: World, progress: float, seed: int, seen: Ints, predicted: Floats
) -> Groups:
    rows, rollouts = step.indices, step.rollouts
    if len(np.unique(rows)) < len(rows):
        raise ValueError("the allocator served a prompt twice in one step: its rollouts belong into one group")
    rates = world.pass_rates(progress, rows)
    trials = np.arange(int(rollouts.max()))
    outcomes = luck(seed, rows[:, None], seen[rows, None] + trials) < rates[:, None]
    outcomes &= trials < rollouts[:, None]
    steps = np.full(len(rows), number)
    return Groups(steps, rows, rollouts, outcomes.sum(axis=1), rates, predicted, outcomes)


def _predictions(allocator: Allocator, step: Allocation) -> Floats:
    if isinstance(allocator, BudgetedAllocator):
        return allocator.predict(step.indices)
    return np.full(len(step), np.nan)


def _joined(parts: list[Groups]) -> Groups:
    if not parts:
        none, no_rates = np.zeros(0, dtype=np.int64), np.zeros(0)
        return Groups(none, none, none, none, no_rates, no_rates, np.zeros((0, 1), dtype=bool))
    widest = max(part.outcomes.shape[1] for part in parts)
    outcomes = [np.pad(part.outcomes, ((0, 0), (0, widest - part.outcomes.shape[1]))) for part in parts]
    names = ("step", "row", "rollouts", "wins", "true_rate", "predicted")
    return Groups(
        **{name: np.concatenate([getattr(part, name) for part in parts]) for name in names},
        outcomes=np.concatenate(outcomes),
    )
