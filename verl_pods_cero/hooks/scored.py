"""Rollouts whose scorer gave every value that the run needs."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import numpy as np

from verl_pods_cero.core.arrays import Mask
from verl_pods_cero.errors import LOGGER
from verl_pods_cero.hooks import rows
from verl_pods_cero.hooks.rollouts import Rollouts
from verl_pods_cero.options.scorer import REWARD, check_key

logger = logging.getLogger(LOGGER)


def scored(rollouts: Rollouts, required: Mapping[str, str]) -> Mask:
    """Return which sessions have every value that the run needs, shape (S,).

    verl takes a scorer that raises for a failed rollout and trains on; one that returns no number once in a night
    is no more than that. It is a mistake in the options, or in the scorer, where no rollout of a step has the value.

    Args:
        rollouts: of the step.
        required: keys of the scorer's result by the option that names them; the reward is always needed.

    Raises:
        OptionError: no rollout has a value under a key that is needed.
        ValueError: no reward is a finite number that float32 can hold; the message names a prompt.
    """
    needed = {"the reward": REWARD, **required}
    for option, key in needed.items():
        if not rollouts.usable([key]).any():
            _refuse(rollouts, option, key)
    usable = rollouts.usable(needed.values())
    if bad := np.count_nonzero(~usable):
        first = rollouts.keys[rollouts.index.final_row[usable.argmin()]]
        names = " or ".join(dict.fromkeys(needed.values()))
        logger.warning("%d of %d rollouts (%s is the first) have no finite %s: failed", bad, len(usable), first, names)
    return usable


def _refuse(rollouts: Rollouts, option: str, key: str) -> None:
    row = rollouts.keys[rollouts.index.final_row[0]]
    info, about = rows.describe(row)
    check_key(option, key, (REWARD, *info))
    count, prompts, first = len(rollouts), len(rollouts.index.uids), rollouts.values[key][0]
    raise ValueError(
        f"the scorer returned no finite {key} for any of {count} rollouts of {prompts} prompts (first: {first} for "
        f"rollout {row}{about}). Fix: make the reward function return finite numbers, which float32 can hold."
    )
