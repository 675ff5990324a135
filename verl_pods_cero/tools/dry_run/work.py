"""How many prompts, rollouts and rows a run has, a step and in all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from verl_pods_cero.core.pods import keep_count
from verl_pods_cero.core.settings import AllocatorSettings
from verl_pods_cero.core.steps import group_sizes
from verl_pods_cero.options.allocator import allocator_settings, run_steps
from verl_pods_cero.options.schema import AllocatorOptions
from verl_pods_cero.tools.dry_run.checks import Checked

if TYPE_CHECKING:
    from omegaconf import DictConfig


@dataclass(frozen=True)
class Work:
    """What a run generates and updates on: exact, or the most that it can be.

    Attributes:
        prompts: of a step.
        rollouts: generated in a step.
        rows: rollouts of these in the update.
        steps: of the run, at most; None where they follow from the training rows, and these are unknown.
        all_rollouts: of the run, at most.
        all_rows: of the run, at most.
        exact: the numbers of a step are no bounds.
    """

    prompts: int
    rollouts: int
    rows: int
    steps: int | None
    all_rollouts: int | None
    all_rows: int | None
    exact: bool


def plain_work(config: DictConfig, data_rows: int | None, keep: int | None = None, *, exact: bool = True) -> Work:
    """Return what a run without an allocator does: n rollouts for every prompt of the batch.

    Args:
        config: verl's configuration.
        data_rows: training rows M, None if unknown.
        keep: m, or None without the filter.
        exact: whole groups are never dropped.
    """
    prompts, n = int(config.data.train_batch_size), int(config.actor_rollout_ref.rollout.n)
    steps = _plain_steps(config, data_rows)
    rollouts, rows = prompts * n, prompts * (n if keep is None else keep)
    all_rollouts, all_rows = (None, None) if steps is None else (steps * rollouts, steps * rows)
    return Work(prompts, rollouts, rows, steps, all_rollouts, all_rows, exact)


def run_work(checked: Checked) -> tuple[Work | None, AllocatorSettings | None]:
    """Return what the run does, and its allocator's settings where it has one.

    Returns:
        No work where an allocator's sizes follow from training rows that are unknown.

    Raises:
        OptionError: the allocator's sizes do not fit together.
    """
    config, options = checked.config, checked.options
    keep = None
    if options.filter.enable:
        keep = keep_count(config.actor_rollout_ref.rollout.n, options.filter.keep, options.filter.keep_fraction)
    if not options.allocator.enable:
        return plain_work(config, checked.data_rows, keep, exact=not options.filter.drop_zero_variance), None
    if checked.data_rows is None:
        return None, None
    settings = allocator_settings(config, options.allocator, checked.data_rows)
    return _allocated_work(config, options.allocator, settings, keep), settings


def most_rows(rollouts: int, group: int, keep: int | None) -> int:
    """Return the rows of an update on groups of one size and a smaller last one.

    Formula:
        floor(rollouts / group) min(m, group) + min(m, rollouts mod group). Smaller groups lose fewer rollouts, so
        that this bounds the rows of larger ones as well.

    >>> most_rows(528, group=8, keep=4), most_rows(20, group=8, keep=4), most_rows(20, group=8, keep=None)
    (264, 12, 20)
    """
    if keep is None:
        return rollouts
    whole, rest = divmod(rollouts, group)
    return whole * min(keep, group) + min(keep, rest)


def _allocated_work(
    config: DictConfig, options: AllocatorOptions, settings: AllocatorSettings, keep: int | None
) -> Work:
    group, largest = group_sizes(options.name, settings)
    capacity = settings.capacity_units * settings.unit
    if settings.schedule == "round":
        prompts, rollouts = -(-capacity // group), capacity
        rows = most_rows(capacity, group, keep)
    else:
        # A step of an epoch is a number of prompts: it is largest where each of them gets the most.
        prompts = settings.batch_prompts
        rollouts, rows = prompts * largest, most_rows(prompts * largest, largest, keep)
    steps = run_steps(config, options, settings)
    all_rollouts = min(settings.budget, steps * rollouts)
    # Every full round may end with a group that the capacity cut short.
    full_rounds, rest = divmod(all_rollouts, capacity)
    all_rows = full_rounds * most_rows(capacity, group, keep) + most_rows(rest, group, keep)
    return Work(prompts, rollouts, rows, steps, all_rollouts, min(all_rows, steps * rows), exact=False)


def _plain_steps(config: DictConfig, data_rows: int | None) -> int | None:
    """Return the steps of verl's loop, which ends with its steps or its epochs, whichever are fewer."""
    given = config.trainer.total_training_steps
    if data_rows is None:
        return None if given is None else int(given)
    epochs = data_rows // int(config.data.train_batch_size) * int(config.trainer.total_epochs)
    return epochs if given is None else min(int(given), epochs)
