"""CERO in a trainer: which prompts come next, and what their rollouts taught."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

import numpy as np

from verl_pods_cero.core.allocators import Allocation, Allocator
from verl_pods_cero.core.arrays import Floats, Ints, Mask
from verl_pods_cero.core.budget import BudgetedAllocator
from verl_pods_cero.core.state import StateHeader
from verl_pods_cero.core.steps import Steps
from verl_pods_cero.errors import OptionError
from verl_pods_cero.hooks.rollouts import Rollouts
from verl_pods_cero.metric_names import allocation_metrics
from verl_pods_cero.options.schema import AllocatorOptions


def new_uid(row: int) -> str:
    """Return a name for one visit of a prompt, which tells its row of the data set wherever a rollout turns up.

    >>> row_of(new_uid(17))
    17
    """
    return f"{uuid.uuid4()}-{row}"  # verl splits names at underscores


def row_of(uid: str) -> int:
    """Return the row of the data set that a prompt's name tells."""
    return int(uid.rpartition("-")[2])


class AllocatedPrompts:
    """Prompts that an allocator chooses, with the rollouts that each of them gets.

    The plan of a step is made at the end of the one before it: a trainer settles at the start of a step whether it is
    the last one, and only the plan knows when the budget ends.

    Args:
        steps: hands the allocator's rounds out as training steps.
        options: say what a success is.
        tolerance: values count as equal within this share of what they are compared with.
        header: says what a saved state belongs to.
    """

    def __init__(self, steps: Steps, options: AllocatorOptions, tolerance: float, header: StateHeader) -> None:
        self.header = header
        self._steps, self._options, self._tolerance = steps, options, tolerance
        self._step = Allocation.empty()
        self._learnt: Mapping[str, float] = {}

    @property
    def allocator(self) -> Allocator:
        """The allocator itself."""
        return self._steps.allocator

    @property
    def ended_early(self) -> bool:
        """Whether the budget ended with a step that was not known to be the last."""
        return self._steps.exhausted and len(self._step) > 0

    def plan(self, step: int, last: int) -> int:
        """Plan a step, and end the run where the budget or the rounds end."""
        self._steps.prepare()
        if self._steps.exhausted:
            return min(last, step - 1)
        return min(last, step) if self._steps.last else last

    def next(self) -> Allocation:
        """Return the rows of the step that was planned, and their rollouts."""
        self._step = self._steps.take()
        return self._step

    def observe(self, rollouts: Rollouts | None) -> None:
        """Count each prompt's successes and failures.

        Raises:
            OptionError: no threshold is set, and the values are no outcomes (0 or 1, or -1 or 1).
        """
        if rollouts is None:
            none = np.zeros(0, dtype=np.int64)
            self._steps.observe(none, none, none)
        else:
            self._steps.observe(*self.outcomes(rollouts))
        self._learnt = self.allocator.metrics()

    def outcomes(self, rollouts: Rollouts) -> tuple[Ints, Ints, Ints]:
        """Count each prompt's successes and failures, as `outcome_counts` does, and learn nothing.

        Raises:
            OptionError: as `observe`.
        """
        return outcome_counts(rollouts, successes(rollouts, self._options, self._tolerance))

    def expected(self, rows: Ints) -> Floats:
        """Return the pass rates that the allocator expects of rows, (k,); 1/2 each of one that expects nothing."""
        known = self.allocator.predict(rows) if isinstance(self.allocator, BudgetedAllocator) else None
        return np.full(len(rows), 0.5) if known is None else known

    def reassign(self, given: Allocation) -> None:
        """Tell the allocator who got the rollouts of this step, where it keeps count of that."""
        self._step = given
        if isinstance(self.allocator, BudgetedAllocator):
            self.allocator.reassign(given.indices, given.rollouts)

    def metrics(self) -> dict[str, float]:
        """Return the `cero/...` metrics, and `training/epoch` as plain GRPO would count it from the rollouts."""
        settings = self._steps.settings
        own = {"prompts": float(len(self._step)), "rollouts": float(self._step.total)}
        before = self._steps.rollouts_taken - self._step.total
        epoch = before // (settings.num_prompts * settings.n)
        return {**allocation_metrics({**self._learnt, **own}), "training/epoch": epoch}

    def state_dict(self) -> dict[str, np.ndarray]:
        """Return the allocator's state and the steps of the open round that are still to come."""
        return self._steps.state_dict()

    def load_state_dict(self, state: dict[str, np.ndarray], added: int = 0) -> None:
        """Go on from a saved state, with so many rollouts more in the budget than it was saved with."""
        self._steps.load_state_dict(state, added)


def successes(rollouts: Rollouts, options: AllocatorOptions, tolerance: float = 0.0) -> Mask:
    """Return which sessions succeeded, shape (S,).

    Raises:
        OptionError: no threshold is set, and the values are no outcomes (0 or 1, or -1 or 1).
    """
    values, threshold = rollouts.values[options.success_key], options.success_threshold
    if threshold is not None:
        return np.asarray(values >= threshold - tolerance * abs(threshold))
    odd = values[np.abs(values[:, None] - (-1.0, 0.0, 1.0)).min(axis=1) > tolerance]
    if len(odd):
        raise OptionError(
            "pods_cero.allocator.success_threshold",
            f"must be given, since {options.success_key} is no outcome but a score with values such as {odd[0]:g}: "
            "CERO counts successes and failures",
            None,
            "set it to the value from which a rollout counts as a success, or let the reward function return "
            "a dict with acc (0 or 1) beside its score",
        )
    return np.asarray(values > tolerance)


def outcome_counts(rollouts: Rollouts, success: Mask) -> tuple[Ints, Ints, Ints]:
    """Count outcomes by prompt.

    Args:
        rollouts: of prompts that are named by `new_uid`.
        success: shape (S,).

    Returns:
        Rows of the data set, successes and failures of the prompts that came back with a rollout, each (B,).
    """
    index = rollouts.index
    wins = np.bincount(index.group_of_session, weights=success, minlength=len(index.uids)).astype(np.int64)
    return np.array([row_of(uid) for uid in index.uids], dtype=np.int64), wins, index.sizes - wins
