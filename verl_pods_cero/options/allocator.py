"""From verl's configuration to an allocator's settings."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from verl_pods_cero.core.settings import AllocatorSettings
from verl_pods_cero.core.steps import group_sizes, most_steps
from verl_pods_cero.errors import option_names
from verl_pods_cero.options.names import ALLOCATOR_NAMES
from verl_pods_cero.options.schema import AllocatorOptions

if TYPE_CHECKING:
    from omegaconf import DictConfig


@option_names(ALLOCATOR_NAMES)
def allocator_settings(config: DictConfig, options: AllocatorOptions, num_prompts: int) -> AllocatorSettings:
    """Fill in what the options leave to verl's configuration.

    Raises:
        OptionError: the budget, the rounds and the sizes do not fit together.
    """
    shared = [each.name for each in fields(AllocatorSettings) if hasattr(options, each.name)]
    return AllocatorSettings.of_run(
        num_prompts=num_prompts,
        batch_prompts=min(int(config.data.train_batch_size), num_prompts),
        n=int(config.actor_rollout_ref.rollout.n),
        steps=config.trainer.total_training_steps,
        epochs=config.trainer.total_epochs,
        **{name: getattr(options, name) for name in shared},
    )


def run_steps(config: DictConfig, options: AllocatorOptions, settings: AllocatorSettings) -> int:
    """Return the most steps of a run, over which the learning rate's schedule is laid."""
    steps = most_steps(settings, group_sizes(options.name, settings)[0])
    if options.budget is not None and config.trainer.total_training_steps is not None:
        return min(steps, int(config.trainer.total_training_steps))
    return steps
