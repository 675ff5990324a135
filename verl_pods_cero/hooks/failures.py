"""Rollouts that fail: how many a run may lose before it is ended."""

from __future__ import annotations

import logging

from verl_pods_cero.errors import LOGGER, PluginError
from verl_pods_cero.hooks.step import Step

logger = logging.getLogger(LOGGER)

FAILED_STEPS = 3
"""So many steps in a row that lose too many of their rollouts end the run."""

_SEE = "The errors of the agent loop and of the scorer are above"


class Failures:
    """Counts steps in a row that lost too many of their rollouts.

    A rollout has failed where it did not come back, or lacks a value that the run needs. A step loses too many where
    failed / submitted > most, or where all of them failed.

    Args:
        most: `pods_cero.max_failed_fraction`.
    """

    def __init__(self, most: float) -> None:
        self._most = most
        self._in_a_row = 0
        self._all_in_a_row = 0

    def count(self, number: int, step: Step) -> None:
        """Take in a step, and say what failed in it.

        Raises:
            PluginError: it is the last of three in a row that lost too many.
        """
        scored = step.returned - step.unscored
        failed, all_failed = step.submitted_rollouts - scored, not scored
        if lost := step.submitted_rollouts - step.returned:
            said = "%d of %d rollouts of step %d did not come back. %s"
            logger.warning(said, lost, step.submitted_rollouts, number, _SEE)
        too_many = all_failed or failed > self._most * step.submitted_rollouts
        self._in_a_row = self._in_a_row + 1 if too_many else 0
        self._all_in_a_row = self._all_in_a_row + 1 if all_failed else 0
        if self._in_a_row == FAILED_STEPS:
            raise PluginError(
                f"{FAILED_STEPS} steps in a row lost all of their rollouts, or more than "
                f"pods_cero.max_failed_fraction={self._most:g} of them; in step {number} {failed} of "
                f"{step.submitted_rollouts} failed ({step.returned} came back, {scored} with every value). {_SEE}. "
                "Fix: mend what fails, and resume from the last checkpoint"
            )

    def check_end(self) -> None:
        """Refuse to call a run done whose last steps taught nothing.

        Raises:
            PluginError: every rollout of its last step failed.
        """
        if self._all_in_a_row:
            raise PluginError(
                f"every rollout of the run's last {self._all_in_a_row} steps failed: the policy was not updated in "
                f"them. {_SEE}. Fix: mend what fails, and resume from a checkpoint of before"
            )
