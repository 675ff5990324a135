"""The values that a run needs of its rewards, and whether its scorer will give them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from verl_pods_cero.core.pods import RESPONSE_LENGTH, rule_needs
from verl_pods_cero.errors import OptionError, nearest, option_names, verbatim
from verl_pods_cero.options.data_files import data_paths
from verl_pods_cero.options.names import FILTER_NAMES
from verl_pods_cero.options.schema import ROOT, PodsCeroOptions, Run

_OPTION = "reward.custom_reward_function"
_OURS = "pkg://verl_pods_cero.rewards"

REWARD = "reward"
"""The scorer's total, beside the keys of its `reward_extra_info`."""

OUTCOME = "acc"
"""The key under which a scorer says whether a rollout succeeded."""

# What our scorer reports and is no number.
_TEXTS = ("pred",)


def check_reward_model(run: Run) -> None:
    """Refuse keys of the scorer where a reward model scores on the driver: it reports a reward and nothing else."""
    model = run.config.reward.reward_model
    if not model.enable or model.enable_resource_pool:
        return
    for name, key in required_keys(run.options).items():
        if key != REWARD:
            rule = "must be reward where a colocated reward model scores (reward.reward_model.enable=true)"
            own = "give the reward model GPUs of its own: reward.reward_model.enable_resource_pool=true"
            use = "choose a rule that reads no more" if "rule" in name else "set it to reward"
            raise OptionError(name, rule, key, f"{use} (an allocator then needs success_threshold), or {own}")


def check_scorer(run: Run) -> None:
    """Refuse a scorer that is not there, and what it will not report, or our own could not score.

    Raises:
        OptionError: the option that is wrong.
        PluginError: rows of mathematics, and math-verify is not installed.
    """
    scorer, data = run.config.reward.custom_reward_function, run.config.data
    if not scorer.path:
        return
    function = load_scorer(scorer.path, scorer.name)
    if scorer.path == _OURS:
        from verl_pods_cero.rewards import check_setup

        # verl takes a scorer that raises for a failed rollout
        check_setup(data_paths(data.train_files) + data_paths(data.val_files), **(scorer.get("reward_kwargs") or {}))
    # A module may say what its scorer reports; of one that does not, the first step will tell.
    keys: tuple[str, ...] = getattr(sys.modules.get(function.__module__), "RESULT_KEYS", ())
    for name, key in required_keys(run.options).items() if keys else ():
        check_key(name, key, (REWARD, *keys))
        if key in _TEXTS:
            raise OptionError(name, "must be a number of the scorer's, and this is a text", key, "use reward or acc")


@cache  # a process checks its options more than once, and loading runs the user's file
def load_scorer(path: str, name: str) -> Callable[..., Any]:
    """Load a reward function as verl's workers will, which find out when the engines are up.

    Raises:
        OptionError: there is no such file, package or function.
    """
    from verl.utils.import_utils import load_extern_object

    try:
        found: Any = load_extern_object(path, name)
    except Exception as error:  # whatever the user's own module raises as it is imported
        why = f"must lead to a function ({type(error).__name__}: {verbatim(error)})"
        fix = f"correct {_OPTION}.path (a file, or pkg://package.module) or {_OPTION}.name"
        raise OptionError(_OPTION, why, f"{path}: {name}", fix) from error
    if not callable(found):
        raise OptionError(f"{_OPTION}.name", "must name a function", name, f"it is of type {type(found).__name__}")
    function: Callable[..., Any] = found
    return function


def check_key(option: str, key: str, known: Iterable[str]) -> None:
    """Refuse a key that a scorer does not report.

    Raises:
        OptionError: the key is none of those known, with the nearest match.
    """
    names = tuple(known)
    if key not in names:
        raise OptionError(option, "is no key of the scorer's reward_extra_info", key, nearest(key, names))


@option_names(FILTER_NAMES)
def required_keys(options: PodsCeroOptions) -> dict[str, str]:
    """Return the keys of a scorer's result that the enabled parts cannot do without, by option."""
    keys = {}
    if options.filter.enable:
        keys[f"{ROOT}.filter.ranking_key"] = options.filter.ranking_key
        needs = (key for key in rule_needs(options.filter.rule) if key != RESPONSE_LENGTH)
        keys |= {f"{ROOT}.filter.rule (needs {key})": key for key in needs}
    if options.allocator.enable:
        keys[f"{ROOT}.allocator.success_key"] = options.allocator.success_key
    return keys


def value_keys(options: PodsCeroOptions) -> tuple[str, ...]:
    """Return the names of all the values that a run reads of a rollout."""
    return tuple(dict.fromkeys((REWARD, OUTCOME, *required_keys(options).values())))
