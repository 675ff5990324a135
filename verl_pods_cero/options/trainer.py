"""The rules of the trainer: our options at the root, and those of verl's that our trainers reckon with."""

from __future__ import annotations

from difflib import get_close_matches

from omegaconf import OmegaConf

from verl_pods_cero.errors import OptionError, nearest
from verl_pods_cero.options.schema import BASE_MODES, ROOT, Run
from verl_pods_cero.options.update_shape import data_parallel_size

MODE = "trainer.v1.trainer_mode"

# Likeness of two names from which one is taken for the other misspelt.
_NEARLY = 0.77

# The least that a size may be, and the most: beyond it tables overflow, or a group fills the memory.
_SIZES = {
    "data.train_batch_size": (1, 10**9),
    "data.max_prompt_length": (1, 10**9),
    "data.max_response_length": (1, 10**9),
    "actor_rollout_ref.actor.ppo_mini_batch_size": (1, 10**9),
    "trainer.n_gpus_per_node": (1, 10**6),
    "trainer.nnodes": (1, 10**6),
    "trainer.total_epochs": (1, 10**9),
    "trainer.save_freq": (-1, 10**9),
    "trainer.test_freq": (-1, 10**9),
}
_SIZES_OR_NULL = {
    "data.gen_batch_size": (1, 10**9),
    "data.train_max_samples": (-1, 10**12),
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": (1, 10**9),
    "actor_rollout_ref.actor.ppo_max_token_len_per_gpu": (1, 10**9),
    "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu": (1, 10**9),
    "actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu": (1, 10**9),
    "actor_rollout_ref.rollout.max_model_len": (1, 10**9),
    "trainer.total_training_steps": (1, 10**9),
}
_RESUME_MODES = ("auto", "disable", "resume_path")

_MOST_ROLLOUTS = 10**6

# A step would only wait for its own look at the clock.
_LONGEST_WAIT_S = 60


def check_common_values(run: Run) -> None:
    """Refuse what is wrong at the root of our options."""
    interval, tolerance = run.options.poll_interval_s, run.options.zero_variance_tolerance
    if not 0 < interval <= _LONGEST_WAIT_S:
        rule = f"must be above 0 seconds, and at most {_LONGEST_WAIT_S}"
        raise OptionError(f"{ROOT}.poll_interval_s", rule, interval, "use 0.1")
    if not 0 < (failed := run.options.max_failed_fraction) <= 1:
        rule = "must be above 0 and at most 1: a share of a step's rollouts"
        raise OptionError(f"{ROOT}.max_failed_fraction", rule, failed, "use 0.5, or 1 to go on unless all of them fail")
    if not 0 <= tolerance < 1:
        rule = "must be at least 0 and below 1: a share of the step's largest reward"
        raise OptionError(f"{ROOT}.zero_variance_tolerance", rule, tolerance, "use 1e-6")


def check_mode(run: Run) -> None:
    """Refuse another trainer where a part of ours is on, and else a name that is nearly one of ours."""
    mode = str(run.config.trainer.v1.trainer_mode)
    if mode in BASE_MODES:
        return
    for part in ("filter", "allocator"):
        if getattr(run.options, part).enable:
            rule = f"must be one of {', '.join(BASE_MODES)} while {ROOT}.{part}.enable=true"
            misspelt = get_close_matches(mode, BASE_MODES, cutoff=0.5)
            fix = nearest(mode, BASE_MODES) if misspelt else "take it out: +pods_cero=pods, cero or pods_cero sets it"
            raise OptionError(MODE, rule, mode, fix)
    # With both off any trainer will do, such as one that another plugin registers where this process cannot see it.
    if mode not in BASE_MODES.values() and get_close_matches(mode, BASE_MODES, cutoff=_NEARLY):
        raise OptionError(MODE, "names no trainer", mode, nearest(mode, BASE_MODES))


def check_sizes(run: Run) -> None:
    """Refuse sizes that are no whole numbers, or out of all proportion."""
    for option, (least, most) in {**_SIZES, **_SIZES_OR_NULL}.items():
        value = OmegaConf.select(run.config, option)
        if value is None and option in _SIZES_OR_NULL:
            continue
        if type(value) is not int or not least <= value <= most:
            rule = f"must be a whole number, at least {least} and at most {most:,}"
            raise OptionError(option, rule, value, "give one" + " or null" * (option in _SIZES_OR_NULL))


def check_trainer(run: Run) -> None:
    """Refuse verl's older trainer, a way to resume that is none, and steps between which the policy stays as it is."""
    trainer = run.config.trainer
    base, needed = BASE_MODES[trainer.v1.trainer_mode], f"for {MODE}={trainer.v1.trainer_mode}"
    if not trainer.use_v1:
        raise OptionError("trainer.use_v1", f"must be true {needed}", False, "set it to true")
    if trainer.resume_mode not in _RESUME_MODES:
        fix = nearest(str(trainer.resume_mode), _RESUME_MODES)
        raise OptionError("trainer.resume_mode", "names no way to resume", trainer.resume_mode, fix)
    steps = trainer.v1.get(base, {}).get("parameter_sync_step", 1)
    if steps != 1:
        rule = f"must be 1 {needed}: a step is allocated and filtered once"
        raise OptionError(f"trainer.v1.{base}.parameter_sync_step", rule, steps, "take it out")


def check_mini_batches(run: Run) -> None:
    """Refuse mini-batches of prompts that do not divide a step."""
    prompts = run.config.data.train_batch_size
    sizes = {"actor_rollout_ref.actor.ppo_mini_batch_size": run.config.actor_rollout_ref.actor.ppo_mini_batch_size}
    if run.use_critic:
        sizes["critic.ppo_mini_batch_size"] = run.config.critic.ppo_mini_batch_size
    for option, size in sizes.items():
        if type(size) is not int or size < 1 or prompts % size:
            divisors = ", ".join(str(d) for d in range(1, min(prompts, 10**4) + 1) if prompts % d == 0)
            raise OptionError(option, f"must divide data.train_batch_size={prompts}", size, f"use one of {divisors}")


def check_rollouts(run: Run) -> None:
    """Refuse groups that have nothing to compare."""
    rollouts = run.config.actor_rollout_ref.rollout.n
    if type(rollouts) is not int or not 2 <= rollouts <= _MOST_ROLLOUTS:
        raise OptionError(
            "actor_rollout_ref.rollout.n",
            f"must be a whole number, at least 2 and at most {_MOST_ROLLOUTS:,}, while {ROOT}.filter or "
            f"{ROOT}.allocator is enabled",
            rollouts,
            "give a number of rollouts per prompt, such as 16",
        )


def check_critic_ranks(run: Run) -> None:
    """Refuse a critic with other ranks than the actor: a step's rows are padded for one number of ranks."""
    if not run.use_critic:
        return
    actor, critic = data_parallel_size(run.config), data_parallel_size(run.config, run.config.critic)
    if actor != critic:
        raise OptionError(
            "critic's data-parallel size",
            f"must be the actor's, {actor}: rows that are kept are padded for one number of ranks",
            critic,
            "give both the same sequence, tensor and pipeline parallel sizes",
        )
