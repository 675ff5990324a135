"""The rules of `pods_cero.filter`, alone and against verl's options."""

from __future__ import annotations

from difflib import get_close_matches

import numpy as np

from verl_pods_cero.core.pods import keep_count, resolve_rule, rule_needs, select
from verl_pods_cero.errors import OptionError, nearest, option_names, verbatim
from verl_pods_cero.options.names import FILTER_NAMES
from verl_pods_cero.options.schema import ROOT, Run
from verl_pods_cero.options.update_shape import data_parallel_size, update_shape

PATH = f"{ROOT}.filter"
ADVANTAGE_STATS = ("subset", "full_group")

# Estimators whose advantage is a function of the group's scores alone: it can be computed over rollouts
# that never reach the log-probability passes.
SCORE_ONLY_ESTIMATORS = ("grpo", "grpo_vectorized", "rloo", "rloo_vectorized")


def check_values(run: Run) -> None:
    """Refuse values that are wrong whatever the rest of the configuration says."""
    options = run.options.filter
    if not options.enable:
        for name in ("keep", "keep_fraction"):
            if (value := getattr(options, name)) is not None:
                raise OptionError(
                    f"{PATH}.{name}",
                    f"has no effect while {PATH}.enable=false",
                    value,
                    f"add +pods_cero=pods, or {PATH}.enable=true in a recipe, or take {PATH}.{name} out",
                )
        return
    if options.advantage_stats not in ADVANTAGE_STATS:
        fix = nearest(options.advantage_stats, ADVANTAGE_STATS)
        raise OptionError(f"{PATH}.advantage_stats", "names no statistics", options.advantage_stats, fix)
    if not options.ranking_key:
        raise OptionError(f"{PATH}.ranking_key", "must name a value", options.ranking_key, "use reward or acc")
    for name in ("seed", "min_prompts"):
        if (value := getattr(options, name)) < 0:
            raise OptionError(f"{PATH}.{name}", "must not be negative", value, "use 0")
    if options.min_prompts and not options.drop_zero_variance:
        raise OptionError(
            f"{PATH}.min_prompts",
            f"has no effect while {PATH}.drop_zero_variance=false",
            options.min_prompts,
            f"set {PATH}.drop_zero_variance=true, or take {PATH}.min_prompts out",
        )


@option_names(FILTER_NAMES)
def kept(run: Run) -> int:
    """Return m, the rollouts kept of each prompt.

    Raises:
        OptionError: `keep` or `keep_fraction` does not fit n.
    """
    return keep_count(run.config.actor_rollout_ref.rollout.n, run.options.filter.keep, run.options.filter.keep_fraction)


@option_names(FILTER_NAMES)
def check_rule(run: Run) -> None:
    """Try the rule on two small groups: one of the user's own is not to fail after the first generation."""
    options, keep, n = run.options.filter, kept(run), int(run.config.actor_rollout_ref.rollout.n)
    rewards = np.arange(2.0 * n).reshape(2, n) % 3
    try:
        rule = resolve_rule(options.rule)
        rng, values = np.random.default_rng(options.seed), dict.fromkeys(rule_needs(rule), rewards)
        select(rewards, np.ones((2, n), dtype=bool), keep, rule, rng, values)
    except OptionError:
        raise
    except Exception as error:
        raise OptionError(
            f"{PATH}.rule",
            f"must choose {keep} of {n} rollouts, and failed on rewards of shape (2, {n}): "
            f"{type(error).__name__}: {verbatim(error)}",
            options.rule,
            "correct the function (rewards, mask, keep, rng) -> kept, with `values` where it is marked by `needs`",
        ) from error


def check_advantages(run: Run) -> None:
    """Refuse an estimator that the kept rollouts, or statistics of the whole group, do not go with."""
    algorithm, stats = run.config.algorithm, run.options.filter.advantage_stats
    estimator = str(algorithm.adv_estimator)
    known = _estimators()
    if estimator not in known and get_close_matches(estimator, known, cutoff=0.7):  # others may be registered later
        raise OptionError("algorithm.adv_estimator", "names no estimator", estimator, nearest(estimator, known))
    if estimator == "remax":
        raise OptionError(
            "algorithm.adv_estimator",
            f"has no baseline rollouts to work with while {PATH}.enable=true",
            estimator,
            "use grpo, rloo or reinforce_plus_plus",
        )
    if stats != "full_group":
        return
    if estimator not in SCORE_ONLY_ESTIMATORS:
        raise OptionError(
            f"{PATH}.advantage_stats",
            f"needs advantages that follow from scores alone, unlike algorithm.adv_estimator={estimator}",
            stats,
            f"use subset, or one of the estimators {', '.join(SCORE_ONLY_ESTIMATORS)}",
        )
    if algorithm.use_kl_in_reward:
        raise OptionError(
            f"{PATH}.advantage_stats",
            "cannot include the KL penalty of rollouts that were dropped before their log-probabilities "
            "were computed (algorithm.use_kl_in_reward=true)",
            stats,
            "use subset, or actor_rollout_ref.actor.use_kl_loss=true in place of the penalty",
        )


def _estimators() -> list[str]:
    from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY

    return [str(getattr(name, "value", name)) for name in ADV_ESTIMATOR_REGISTRY]


def check_micro_batches(run: Run) -> None:
    """Refuse micro-batches of a fixed size that the kept rows would need much padding for."""
    shape = update_shape(run.config, use_critic=run.use_critic, use_reference=run.use_reference)
    data_parallel = data_parallel_size(run.config)
    rows = run.config.data.train_batch_size * kept(run)
    if shape.padded(rows, data_parallel) - rows < data_parallel * shape.actor_updates:
        return
    raise OptionError(
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu",
        f"and the log_prob_micro_batch_size_per_gpu options must split a rank's rows: {rows} kept rows, over "
        f"{data_parallel} ranks and {shape.actor_updates} updates, are no multiple of "
        f"{shape.multiple(data_parallel)}",
        run.config.actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu,
        "choose sizes that divide, or set actor_rollout_ref.actor.use_dynamic_bsz=true "
        "(ppo_max_token_len_per_gpu then bounds a micro-batch)",
    )


def check_min_prompts(run: Run) -> None:
    """Refuse a floor that no step can reach."""
    least, prompts = run.options.filter.min_prompts, run.config.data.train_batch_size
    if least > prompts:
        raise OptionError(f"{PATH}.min_prompts", f"must be at most data.train_batch_size={prompts}", least, "lower it")
