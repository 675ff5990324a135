"""A step's rollouts, as the few numbers that selection and allocation read: no verl, no TransferQueue, no tokens."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from verl_pods_cero.core.arrays import Floats, Ints, Mask
from verl_pods_cero.hooks.row_index import RowIndex
from verl_pods_cero.options.scorer import OUTCOME, REWARD

# verl keeps rewards as float32: what is beyond it would be infinite there, and its advantage NaN.
LARGEST = float(np.finfo(np.float32).max)


def rollout_values(reward: float, info: Mapping[str, Any], keys: Iterable[str]) -> list[float]:
    """Return the numbers that a run reads of one rollout.

    Args:
        reward: the scorer's total.
        info: the scorer's `reward_extra_info`.
        keys: the names of the numbers.

    Returns:
        A number for each key; NaN where there is none, for the driver to find.

    >>> rollout_values(1.25, {"acc": True, "pred": "18"}, ("reward", "acc", "pred", "tags"))
    [1.25, 1.0, nan, nan]
    """
    known = {**info, REWARD: reward}
    return [_number(known.get(key)) for key in keys]


def _number(value: Any) -> float:
    if isinstance(value, str):  # an answer, not a measure, also where it reads as a number
        return math.nan
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):  # raised, it would count as a failed rollout
        return math.nan


@dataclass(frozen=True)
class Rollouts:
    """The rollouts (sessions) of a step, S in B groups, however long their responses.

    Attributes:
        keys: verl's key of each row.
        index: rows, sessions and groups.
        values: the scorer's numbers by name, shape (S,) each, NaN where it gave none; `reward` is its total.
        prompt_length: tokens, shape (rows,).
        response_length: tokens, shape (rows,).
        turns: conversation turns, shape (rows,).
    """

    keys: list[str]
    index: RowIndex
    values: Mapping[str, Floats]
    prompt_length: Ints
    response_length: Ints
    turns: Ints

    def __len__(self) -> int:
        return len(self.index.group_of_session)

    @property
    def rewards(self) -> Floats:
        """Total reward of each session, shape (S,)."""
        return self.values[REWARD]

    @property
    def response_tokens(self) -> Floats:
        """Tokens of each session's responses, shape (S,)."""
        tokens = np.bincount(self.index.session_of_row, self.response_length, minlength=len(self))
        return tokens.astype(np.float64)

    @property
    def outcomes(self) -> Floats | None:
        """Success of each session (`acc`), shape (S,), or None where the scorer reports none."""
        outcomes = self.values.get(OUTCOME)
        return None if outcomes is None or np.isnan(outcomes).any() else outcomes

    def usable(self, keys: Iterable[str]) -> Mask:
        """Return which sessions have every one of these values as a number that verl's float32 can hold, shape (S,)."""
        usable = np.ones(len(self), dtype=bool)
        for key in keys:
            usable &= np.abs(self.values[key]) <= LARGEST
        return usable

    def only(self, sessions: Mask) -> Rollouts:
        """Return some of the sessions, shape (S,), as if the others had not come back."""
        rows = np.flatnonzero(sessions[self.index.session_of_row])
        keys = [self.keys[row] for row in rows]
        values = {name: column[sessions] for name, column in self.values.items()}
        lengths = (column[rows] for column in (self.prompt_length, self.response_length, self.turns))
        return Rollouts(keys, RowIndex.from_keys(keys, self.index.uids), values, *lengths)
