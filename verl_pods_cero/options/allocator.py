"""From verl's configuration to an allocator's settings."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from verl_pods_cero.core.settings import AllocatorSettings
from verl_pods_cero.core.steps import group_sizes, most_steps
from verl_pods_cero.options.schema import AllocatorOptions

if TYPE_CHECKING:
    from omegaconf import DictConfig


def allocator_settings(config: DictConfig, options: AllocatorOptions, num_prompts: int) -> AllocatorSettings:
    """Fill in what the options leave to verl's configuration.

    Raises:
        OptionError: the budget, the rounds and the sizes do not fit together.
    """
    n, prompts = int(config.actor_rollout_ref.rollout.n), int(config.data.train_batch_size)
    n_max = n if options.n_max is None else options.n_max
    steps_per_epoch = max(1, num_prompts // prompts)
    steps = config.trainer.total_training_steps or steps_per_epoch * config.trainer.total_epochs
    rounds = int(steps) if options.schedule == "round" else math.ceil(steps / steps_per_epoch)
    whole_units = n % 4 == 0 and n_max % 4 == 0
    return AllocatorSettings(
        num_prompts=num_prompts,
        budget=int(steps) * prompts * n if options.budget is None else options.budget,
        rounds=rounds if options.rounds is None else options.rounds,
        batch_prompts=min(prompts, num_prompts),
        n=n,
        n_max=n_max,
        unit=(4 if whole_units else math.gcd(n, n_max)) if options.unit is None else options.unit,
        capacity=options.capacity,
        rho=options.rho,
        lam=options.lam,
        prior_successes=options.prior_successes,
        prior_failures=options.prior_failures,
        price=options.price,
        schedule=options.schedule,
        seed=options.seed,
    )


def run_steps(config: DictConfig, options: AllocatorOptions, settings: AllocatorSettings) -> int:
    """Return the most steps of a run, over which the learning rate's schedule is laid."""
    steps = most_steps(settings, group_sizes(options.name, settings)[0])
    if options.budget is not None and config.trainer.total_training_steps is not None:
        return min(steps, int(config.trainer.total_training_steps))
    return steps
