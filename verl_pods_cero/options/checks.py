"""Every check of a run's options, in the order in which they are made: before Ray starts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from verl_pods_cero.errors import OptionError
from verl_pods_cero.options import allocator, data_files, resume, scorer, trainer
from verl_pods_cero.options import filter as rollout_filter
from verl_pods_cero.options.schema import BASE_MODES, ROOT, PodsCeroOptions, Run, parse

if TYPE_CHECKING:
    from omegaconf import DictConfig

# Which runs a check is for: all, those of our trainers, and of these the ones with a part switched on.
ALL, OURS, EITHER, FILTER, ALLOCATOR = "all", "ours", "either", "filter", "allocator"

CHECKS: tuple[tuple[str, Callable[[Run], None]], ...] = (
    (ALL, rollout_filter.check_values),
    (ALL, allocator.check_values),
    (ALL, trainer.check_common_values),
    (ALL, trainer.check_mode),
    (OURS, trainer.check_trainer),
    (OURS, trainer.check_sizes),
    (OURS, data_files.check_data_files),
    (OURS, data_files.check_loader_batches),
    (OURS, scorer.check_reward_model),
    (OURS, scorer.check_scorer),
    (OURS, trainer.check_mini_batches),
    (EITHER, trainer.check_rollouts),
    (EITHER, trainer.check_critic_ranks),
    (FILTER, rollout_filter.check_rule),
    (FILTER, rollout_filter.check_advantages),
    (FILTER, rollout_filter.check_micro_batches),
    (FILTER, rollout_filter.check_min_prompts),
    (ALLOCATOR, allocator.check_plan),
    (ALLOCATOR, allocator.check_sizes),
    (OURS, resume.check_checkpoint),
    (ALLOCATOR, resume.check_state),
)


def validate(config: DictConfig, *, use_critic: bool, use_reference: bool) -> PodsCeroOptions | None:
    """Check a run's configuration.

    Returns:
        The plugin's options, or None for a stock verl run.

    Raises:
        OptionError: the first rule that is broken, with the option, the value and the fix.
    """
    options = parse(config)
    ours = config.trainer.v1.trainer_mode in BASE_MODES
    if options is None:
        if ours:
            rule = f"needs the plugin's options, and the configuration has no {ROOT} node"
            fix = "add +pods_cero=pods (or cero, or pods_cero), or pods_cero_schema to a recipe's defaults list"
            raise OptionError(trainer.MODE, rule, config.trainer.v1.trainer_mode, fix)
        return None
    run = Run(config, options, use_critic, use_reference)
    filtering, allocating = options.filter.enable, options.allocator.enable
    kinds = {ALL: True, OURS: ours, EITHER: ours and (filtering or allocating)}
    kinds |= {FILTER: ours and filtering, ALLOCATOR: ours and allocating}
    for kind, check in CHECKS:
        if kinds[kind]:
            check(run)
    return options
