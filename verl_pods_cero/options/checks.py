"""Every check of a run's options against each other, made before Ray starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from verl_pods_cero.core.allocators import create_allocator, resolve_allocator
from verl_pods_cero.core.budget import BudgetedAllocator
from verl_pods_cero.core.pods import keep_count, resolve_rule, select
from verl_pods_cero.errors import OptionError, nearest, option_names
from verl_pods_cero.options.allocator import allocator_settings
from verl_pods_cero.options.data_files import check_data_files, check_loader_batches, training_rows
from verl_pods_cero.options.names import ALLOCATOR_NAMES, FILTER_NAMES
from verl_pods_cero.options.ranks import data_parallel_size
from verl_pods_cero.options.schema import BASE_MODES, ROOT, AllocatorOptions, FilterOptions, PodsCeroOptions, parse
from verl_pods_cero.options.scorer import check_rewards
from verl_pods_cero.options.update_shape import UpdateShape, update_shape

if TYPE_CHECKING:
    from omegaconf import DictConfig

MODE_OPTION = "trainer.v1.trainer_mode"
VERL_MODES = ("sync", "colocate_async", "separate_async")

# Estimators whose advantage is a function of the group's scores alone: it can be computed over rollouts
# that never reach the log-probability passes.
SCORE_ONLY_ESTIMATORS = ("grpo", "grpo_vectorized", "rloo", "rloo_vectorized")


def validate(config: DictConfig, *, use_critic: bool, use_reference: bool) -> PodsCeroOptions | None:
    """Check a run's configuration.

    Returns:
        The plugin's options, or None for a stock verl run.

    Raises:
        OptionError: the first rule that is broken, with the option, the value and the fix.
    """
    options = parse(config)
    mode = config.trainer.v1.trainer_mode
    _check_mode(mode, options)
    if options is None or mode not in BASE_MODES:
        return options
    _check_trainer(config)
    check_data_files(config)
    if not options.allocator.enable or options.allocator.candidates == "loader":
        check_loader_batches(config)
    check_rewards(config, options)
    _check_mini_batches(config, use_critic=use_critic)
    shape = update_shape(config, use_critic=use_critic, use_reference=use_reference)
    if options.filter.enable or options.allocator.enable:
        _check_rollouts(config)
        _check_critic_ranks(config, use_critic=use_critic)
    if options.filter.enable:
        _check_filter(config, options.filter, shape)
    if options.allocator.enable:
        _check_allocator(config, options.allocator)
    return options


def _check_mode(mode: str, options: PodsCeroOptions | None) -> None:
    known = (*VERL_MODES, *BASE_MODES)
    if options is not None and mode not in known:
        raise OptionError(MODE_OPTION, "names no trainer", mode, nearest(mode, known))
    if mode in BASE_MODES and options is None:
        raise OptionError(
            MODE_OPTION,
            f"needs the plugin's options, and the configuration has no {ROOT} node",
            mode,
            "add pods_cero_schema to the recipe's defaults list, after ppo_trainer",
        )
    if mode in VERL_MODES and options is not None:
        for part in ("filter", "allocator"):
            if getattr(options, part).enable:
                rule = f"must be one of {', '.join(BASE_MODES)} while {ROOT}.{part}.enable=true"
                raise OptionError(MODE_OPTION, rule, mode, "set it so")


def _check_trainer(config: DictConfig) -> None:
    trainer = config.trainer
    needed = f"for {MODE_OPTION}={trainer.v1.trainer_mode}"
    if not trainer.use_v1:
        raise OptionError("trainer.use_v1", f"must be true {needed}", False, "set it to true")
    base = BASE_MODES[trainer.v1.trainer_mode]
    steps = trainer.v1.get(base, {}).get("parameter_sync_step", 1)
    if steps != 1:
        rule = f"must be 1 {needed}: a step is allocated and filtered once"
        raise OptionError(f"trainer.v1.{base}.parameter_sync_step", rule, steps, "take it out")


def _check_mini_batches(config: DictConfig, *, use_critic: bool) -> None:
    prompts = config.data.train_batch_size
    if prompts < 1:
        raise OptionError("data.train_batch_size", "must be at least 1", prompts, "use 64")
    sizes = {"actor_rollout_ref.actor.ppo_mini_batch_size": config.actor_rollout_ref.actor.ppo_mini_batch_size}
    if use_critic:
        sizes["critic.ppo_mini_batch_size"] = config.critic.ppo_mini_batch_size
    for option, size in sizes.items():
        if size < 1 or prompts % size:
            divisors = ", ".join(str(d) for d in range(1, prompts + 1) if prompts % d == 0)
            raise OptionError(option, f"must divide data.train_batch_size={prompts}", size, f"use one of {divisors}")


def _check_critic_ranks(config: DictConfig, *, use_critic: bool) -> None:
    """Refuse a critic with other ranks than the actor: a step's rows are padded for one number of ranks."""
    if not use_critic:
        return
    actor, critic = data_parallel_size(config), data_parallel_size(config, config.critic)
    if actor != critic:
        raise OptionError(
            "critic's data-parallel size",
            f"must be the actor's, {actor}: rows that are kept are padded for one number of ranks",
            critic,
            "give both the same sequence, tensor and pipeline parallel sizes",
        )


def _check_rollouts(config: DictConfig) -> None:
    rollouts = config.actor_rollout_ref.rollout.n
    if not isinstance(rollouts, int) or rollouts < 2:
        raise OptionError(
            "actor_rollout_ref.rollout.n",
            f"must be a whole number, at least 2, while {ROOT}.filter or {ROOT}.allocator is enabled",
            rollouts,
            "generate more rollouts a prompt, such as 16",
        )


@option_names(FILTER_NAMES)
def _check_filter(config: DictConfig, options: FilterOptions, shape: UpdateShape) -> None:
    keep = keep_count(config.actor_rollout_ref.rollout.n, options.keep, options.keep_fraction)
    _check_rule(config, options, keep)
    _check_advantages(config, options)
    _check_micro_batches(config, keep, shape)
    if options.min_prompts > config.data.train_batch_size:
        raise OptionError(
            f"{ROOT}.filter.min_prompts",
            f"must be at most data.train_batch_size={config.data.train_batch_size}",
            options.min_prompts,
            "lower it",
        )


def _check_rule(config: DictConfig, options: FilterOptions, keep: int) -> None:
    """Try the rule on two small groups: one of the user's own is not to fail after the first generation."""
    rule, n = resolve_rule(options.rule), int(config.actor_rollout_ref.rollout.n)
    rewards = np.arange(2.0 * n).reshape(2, n) % 3
    try:
        select(rewards, np.ones((2, n), dtype=bool), keep, rule=rule, rng=np.random.default_rng(options.seed))
    except OptionError:
        raise
    except Exception as error:
        raise OptionError(
            f"{ROOT}.filter.rule",
            f"must choose {keep} of {n} rollouts, and failed on rewards of shape (2, {n}): "
            f"{type(error).__name__}: {error}",
            options.rule,
            "correct the function (rewards, mask, keep, rng) -> kept",
        ) from error


def _check_advantages(config: DictConfig, options: FilterOptions) -> None:
    estimator = str(config.algorithm.adv_estimator)
    if estimator == "remax":
        raise OptionError(
            "algorithm.adv_estimator",
            f"has no baseline rollouts to work with while {ROOT}.filter.enable=true",
            estimator,
            "use grpo, rloo or reinforce_plus_plus",
        )
    if options.advantage_stats != "full_group":
        return
    option = f"{ROOT}.filter.advantage_stats"
    if estimator not in SCORE_ONLY_ESTIMATORS:
        raise OptionError(
            option,
            f"needs advantages that follow from scores alone, unlike algorithm.adv_estimator={estimator}",
            options.advantage_stats,
            f"use subset, or one of the estimators {', '.join(SCORE_ONLY_ESTIMATORS)}",
        )
    if config.algorithm.use_kl_in_reward:
        raise OptionError(
            option,
            "cannot include the KL penalty of rollouts that were dropped before their log-probabilities "
            "were computed (algorithm.use_kl_in_reward=true)",
            options.advantage_stats,
            "use subset, or actor_rollout_ref.actor.use_kl_loss=true in place of the penalty",
        )


def _check_micro_batches(config: DictConfig, keep: int, shape: UpdateShape) -> None:
    data_parallel = data_parallel_size(config)
    rows = config.data.train_batch_size * keep
    if shape.padded(rows, data_parallel) - rows < data_parallel * shape.actor_updates:
        return
    raise OptionError(
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu",
        f"and the log_prob_micro_batch_size_per_gpu options must split a rank's rows: {rows} kept rows, over "
        f"{data_parallel} ranks and {shape.actor_updates} updates, are no multiple of "
        f"{shape.multiple(data_parallel)}",
        config.actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu,
        "choose sizes that divide, or set actor_rollout_ref.actor.use_dynamic_bsz=true "
        "(ppo_max_token_len_per_gpu then bounds a micro-batch)",
    )


@option_names(ALLOCATOR_NAMES)
def _check_allocator(config: DictConfig, options: AllocatorOptions) -> None:
    refused = {
        "algorithm.filter_groups.enable": bool((config.algorithm.get("filter_groups") or {}).get("enable")),
        "trainer.v1.sampler.sync_refill_failed_groups": bool(config.trainer.v1.sampler.sync_refill_failed_groups),
        # recorded rollouts are handed out in order, whichever prompts were chosen
        "skip.rollout_tq.enable": options.candidates == "pool" and bool(config.skip.rollout_tq.enable),
    }
    for option, value in refused.items():
        if value:
            rule = f"does not keep to the plan of rollouts that {ROOT}.allocator.enable=true makes under its budget"
            raise OptionError(option, rule, value, "set it to false, or turn the allocator off")
    rows = training_rows(config)
    if rows is None:  # remote files or a data set of the user's own: its sizes are checked when it is loaded
        resolve_allocator(options.name)
        return
    allocator = create_allocator(options.name, allocator_settings(config, options, rows))
    if options.dump_prompts and not isinstance(allocator, BudgetedAllocator):
        rule = f"needs an allocator that keeps pass rates, and {options.name} does not"
        fix = "set it to false, or derive the class from verl_pods_cero.core.budget.BudgetedAllocator"
        raise OptionError(f"{ROOT}.allocator.dump_prompts", rule, True, fix)
