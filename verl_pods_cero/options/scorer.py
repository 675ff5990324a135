"""The values that a run needs of its rewards, and whether its scorer will give them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from verl_pods_cero.errors import OptionError, nearest
from verl_pods_cero.options.data_files import data_paths
from verl_pods_cero.options.schema import ROOT, PodsCeroOptions

if TYPE_CHECKING:
    from omegaconf import DictConfig


def check_rewards(config: DictConfig, options: PodsCeroOptions) -> None:
    """Refuse a scorer that is not there, and what it will not report, or our own could not score.

    Raises:
        OptionError: the option that is wrong.
        PluginError: rows of mathematics, and math-verify is not installed.
    """
    _check_reward_model(config, options)
    reward = config.reward.custom_reward_function
    if not reward.path:
        return
    from verl_pods_cero.hooks.scorer import check_scorer

    check_scorer(reward.path, reward.name)
    if reward.path != "pkg://verl_pods_cero.rewards":
        return
    from verl_pods_cero.rewards import RESULT_KEYS, check_setup

    # verl takes a scorer that raises for a failed rollout
    files = data_paths(config.data.train_files) + data_paths(config.data.val_files)
    check_setup(files, **(reward.get("reward_kwargs") or {}))
    known = ("reward", *RESULT_KEYS)
    for name, key in required_keys(options).items():
        check_key(name, key, known)


def check_key(option: str, key: str, known: Iterable[str]) -> None:
    """Refuse a key that a scorer does not report.

    Raises:
        OptionError: the key is none of those known, with the nearest match.
    """
    names = tuple(known)
    if key not in names:
        raise OptionError(option, "is no key of the scorer's reward_extra_info", key, nearest(key, names))


def required_keys(options: PodsCeroOptions) -> dict[str, str]:
    """Return the keys of a scorer's result that the enabled parts cannot do without, by option."""
    keys = {}
    if options.filter.enable:
        keys[f"{ROOT}.filter.ranking_key"] = options.filter.ranking_key
    if options.allocator.enable:
        keys[f"{ROOT}.allocator.success_key"] = options.allocator.success_key
    return keys


def value_keys(options: PodsCeroOptions) -> tuple[str, ...]:
    """Return the names of all the values that a run reads of a rollout."""
    return tuple(dict.fromkeys(("reward", "acc", *required_keys(options).values())))


def _check_reward_model(config: DictConfig, options: PodsCeroOptions) -> None:
    """Refuse keys of the scorer where a reward model scores on the driver: it reports a reward and nothing else."""
    model = config.reward.reward_model
    if not model.enable or model.enable_resource_pool:
        return
    for name, key in required_keys(options).items():
        if key != "reward":
            raise OptionError(
                name,
                "must be reward where a colocated reward model scores (reward.reward_model.enable=true)",
                key,
                "set it to reward (an allocator then needs success_threshold), or give the reward model GPUs of its "
                "own: reward.reward_model.enable_resource_pool=true",
            )
