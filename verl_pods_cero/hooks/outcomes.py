"""What an allocator learns from: successes and failures of each prompt."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from verl_pods_cero.errors import OptionError
from verl_pods_cero.hooks.generation.worker import SUCCESS
from verl_pods_cero.hooks.rollouts import Rollouts
from verl_pods_cero.hooks.row_index import Ints, Mask
from verl_pods_cero.options.schema import AllocatorOptions


def successes(rollouts: Rollouts, options: AllocatorOptions) -> Mask:
    """Return which sessions succeeded, shape (S,).

    Raises:
        OptionError: no threshold is set, and the values are no outcomes (0 or 1, or -1 or 1).
    """
    values = rollouts.values[:, SUCCESS]
    if options.success_threshold is not None:
        return np.asarray(values >= options.success_threshold)
    odd = values[~np.isin(values, (-1.0, 0.0, 1.0))]
    if len(odd):
        raise OptionError(
            "pods_cero.allocator.success_threshold",
            f"must be given, since {options.success_key} is no outcome but a score with values such as {odd[0]:g}: "
            "CERO counts successes and failures",
            None,
            "set it to the value from which a rollout counts as a success, or let the reward function return "
            "a dict with acc (0 or 1) beside its score",
        )
    return np.asarray(values > 0)


def outcome_counts(rollouts: Rollouts, success: Mask, row_of_uid: Mapping[str, int]) -> tuple[Ints, Ints, Ints]:
    """Count outcomes by prompt.

    Args:
        rollouts: the step's rollouts.
        success: shape (S,).
        row_of_uid: position in the data set of each prompt that was submitted.

    Returns:
        Positions, successes and failures of the prompts that came back with a rollout, each (B,).
    """
    index = rollouts.index
    wins = np.bincount(index.group_of_session, weights=success, minlength=len(index.uids)).astype(np.int64)
    rows = np.array([row_of_uid[uid] for uid in index.uids], dtype=np.int64)
    return rows, wins, index.sizes - wins
