"""The rules of `pods_cero.allocator`, and from verl's configuration to an allocator's settings."""

from __future__ import annotations

import logging
import math
from dataclasses import fields
from typing import TYPE_CHECKING

from verl_pods_cero.core.allocators import create_allocator, resolve_allocator
from verl_pods_cero.core.budget import BudgetedAllocator
from verl_pods_cero.core.settings import AllocatorSettings
from verl_pods_cero.core.steps import group_sizes, most_steps
from verl_pods_cero.errors import LOGGER, OptionError, nearest, option_names
from verl_pods_cero.options.data_files import training_rows
from verl_pods_cero.options.names import ALLOCATOR_NAMES
from verl_pods_cero.options.schema import ROOT, AllocatorOptions, Run
from verl_pods_cero.options.warm_start import read_outcomes

if TYPE_CHECKING:
    from omegaconf import DictConfig

logger = logging.getLogger(LOGGER)

PATH = f"{ROOT}.allocator"
CANDIDATES = ("pool", "loader")

# Beyond these a count overflows a table, and a dual is 0 or NaN for every prompt.
_MOST = 10**9
_LEAST_REAL, _MOST_REAL = 1e-6, 1e6


def check_values(run: Run) -> None:
    """Refuse values that are wrong whatever the rest of the configuration says."""
    options = run.options.allocator
    if not options.enable:
        if options.budget is not None:
            raise OptionError(
                f"{PATH}.budget",
                f"has no effect while {PATH}.enable=false",
                options.budget,
                f"set {PATH}.enable=true, or take {PATH}.budget out",
            )
        return
    if options.candidates not in CANDIDATES:
        fix = nearest(options.candidates, CANDIDATES)
        raise OptionError(f"{PATH}.candidates", "names no source of prompts", options.candidates, fix)
    if options.schedule == "epoch" and options.candidates == "loader":
        raise OptionError(
            f"{PATH}.candidates",
            f"must be pool with {PATH}.schedule=epoch: a round is a plan for the whole data set",
            options.candidates,
            f"set {PATH}.candidates=pool",
        )
    for name in ("rounds", "n_max"):
        if ((value := getattr(options, name)) or 0) > _MOST:
            raise OptionError(f"{PATH}.{name}", f"must be at most {_MOST:,}", value, "lower it, or take it out")
    for name in ("lam", "prior_successes", "prior_failures"):
        if not _LEAST_REAL <= (value := getattr(options, name)) <= _MOST_REAL:
            rule = f"must lie between {_LEAST_REAL:g} and {_MOST_REAL:g}"
            raise OptionError(f"{PATH}.{name}", rule, value, "use 1.0 if in doubt")
    _check_success(options)


def _check_success(options: AllocatorOptions) -> None:
    key, threshold = options.success_key, options.success_threshold
    if not key:
        raise OptionError(f"{PATH}.success_key", "must name a value", key, "use acc")
    if threshold is not None and not math.isfinite(threshold):
        fix = "set it to the value from which a rollout counts as a success"
        raise OptionError(f"{PATH}.success_threshold", "must be a finite number", threshold, fix)
    if key == "reward" and threshold is None:
        raise OptionError(
            f"{PATH}.success_key",
            "cannot be the reward alone: a shaped score is no outcome, and CERO counts successes and failures",
            key,
            f"set {PATH}.success_threshold to the reward from which a rollout counts as a success, or use acc",
        )


def check_plan(run: Run) -> None:
    """Refuse options of verl under which other rollouts would be generated than were planned."""
    config = run.config
    refused = {
        "algorithm.filter_groups.enable": bool((config.algorithm.get("filter_groups") or {}).get("enable")),
        "trainer.v1.sampler.sync_refill_failed_groups": bool(config.trainer.v1.sampler.sync_refill_failed_groups),
        # recorded rollouts are handed out in order, whichever prompts were chosen
        "skip.rollout_tq.enable": run.options.allocator.candidates == "pool" and bool(config.skip.rollout_tq.enable),
    }
    for option, value in refused.items():
        if value:
            rule = f"does not keep to the plan of rollouts that {PATH}.enable=true makes under its budget"
            raise OptionError(option, rule, value, "set it to false, or turn the allocator off")


@option_names(ALLOCATOR_NAMES)
def check_sizes(run: Run) -> None:
    """Build the allocator: its own rules bind, and one of the user's own is not to fail when engines are up."""
    options, rows = run.options.allocator, training_rows(run.config)
    if rows is None:  # remote files or a data set of the user's own: its sizes are checked when it is loaded
        resolve_allocator(options.name)
        return
    settings = allocator_settings(run.config, options, rows)
    _check_choice(run, settings)
    check_pilot(run.config, options, settings)
    allocator = create_allocator(options.name, settings)
    if options.warm_start is not None:
        if not isinstance(allocator, BudgetedAllocator) or not allocator.learns:
            rule = f"needs an allocator that chooses by outcomes, and {options.name} does not"
            raise OptionError(f"{PATH}.warm_start", rule, options.warm_start, "take it out, or use another allocator")
        read_outcomes(options.warm_start, rows)
    if options.dump_prompts and not isinstance(allocator, BudgetedAllocator):
        rule = f"needs an allocator that keeps pass rates, and {options.name} does not"
        fix = "set it to false, or derive the class from verl_pods_cero.core.budget.BudgetedAllocator"
        raise OptionError(f"{PATH}.dump_prompts", rule, True, fix)


def _check_choice(run: Run, settings: AllocatorSettings) -> None:
    """Refuse a batch of the loader that leaves nothing to choose from, and warn of a data set that does."""
    options, data = run.options.allocator, run.config.data
    if options.candidates == "pool":
        if remark := no_choice(options.name, settings, settings.num_prompts):
            logger.warning("%s.name=%s changes nothing here: %s", PATH, options.name, remark)
        return
    size = "gen_batch_size" if data.get("gen_batch_size") else "train_batch_size"
    if remark := no_choice(options.name, settings, int(data[size])):
        fix = f"set {PATH}.candidates=pool, or data.gen_batch_size={4 * settings.batch_prompts} to choose from"
        rule = f"must leave {options.name} a choice (data.{size}={data[size]}: {remark})"
        raise OptionError(f"{PATH}.candidates", rule, options.candidates, fix)


@option_names(ALLOCATOR_NAMES)
def check_pilot(config: DictConfig, options: AllocatorOptions, settings: AllocatorSettings) -> None:
    """Refuse a first part that leaves no second one, or one in which no prompt could get more than was planned.

    Raises:
        OptionError: the rule that is broken.
    """
    if (pilot := options.pilot) is None:
        return
    option, unit = f"{PATH}.pilot", settings.unit
    if pilot % unit or not unit <= pilot < settings.n:
        rule = f"must be a multiple of {{unit}} ({unit}), at least that and below {{n}} ({settings.n})"
        raise OptionError(option, rule, pilot, f"use {max(unit, settings.n // 2 // unit * unit)}, or take it out")
    if (most := group_sizes(options.name, settings)[1]) >= (limit := settings.n_max_units * unit):
        rule = f"needs room above what a prompt is planned ({most} of {{n_max}}={limit} with {options.name})"
        fix = "raise {n_max} above {n}, with uniform, prioritized, thompson or greso"
        raise OptionError(option, rule, pilot, fix)
    if config.skip.rollout_tq.enable:
        raise OptionError(
            "skip.rollout_tq.enable", f"has no second part, which {option} asks for", True, f"take {option} out"
        )


def no_choice(name: str, settings: AllocatorSettings, offered: int) -> str:
    """Return why an allocator gives all of the prompts that a round offers it the same, or an empty text."""
    takes_everyone = getattr(resolve_allocator(name), "takes_everyone", None)  # one of the user's own may lack it
    if takes_everyone is None or not takes_everyone(settings, offered):
        return ""
    most = group_sizes(name, settings)[1]
    return f"a round has rollouts enough for all of its {offered} prompts, {most} each, as in plain GRPO"


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
        headroom=getattr(resolve_allocator(options.name), "headroom", 1.0),
        **{name: getattr(options, name) for name in shared},
    )


def run_steps(config: DictConfig, options: AllocatorOptions, settings: AllocatorSettings) -> int:
    """Return the most steps of a run, over which the learning rate's schedule is laid."""
    steps = most_steps(settings, group_sizes(options.name, settings)[0])
    if options.budget is not None and config.trainer.total_training_steps is not None:
        return min(steps, int(config.trainer.total_training_steps))
    return steps
