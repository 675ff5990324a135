"""The PODS filter: which rollouts of a step the policy is updated on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from verl_pods_cero.core.groups import zero_variance
from verl_pods_cero.core.pods import keep_count, select
from verl_pods_cero.errors import option_names
from verl_pods_cero.hooks.generation.worker import RANKING
from verl_pods_cero.hooks.rollouts import Rollouts
from verl_pods_cero.hooks.row_index import Ints, Mask
from verl_pods_cero.options.names import FILTER_NAMES
from verl_pods_cero.options.schema import FilterOptions


@dataclass(frozen=True)
class Kept:
    """What the filter kept of a step, and why it dropped the rest.

    Attributes:
        sessions: kept sessions, shape (S,).
        top: rollouts taken from the high end of each group, shape (B,).
        degenerate: groups of one ranking value, shape (B,).
        dropped_degenerate: of these, the ones that were dropped for it, shape (B,).
        dropped_single: groups that were dropped because one rollout has none to be compared with, shape (B,).
    """

    sessions: Mask
    top: Ints
    degenerate: Mask
    dropped_degenerate: Mask
    dropped_single: Mask


class RolloutFilter:
    """Keeps m of each prompt's rollouts.

    Args:
        options: validated options.
        rollouts: n, the rollouts generated for a prompt.
    """

    @option_names(FILTER_NAMES)
    def __init__(self, options: FilterOptions, rollouts: int) -> None:
        self.options = options
        self.keep = keep_count(rollouts, options.keep, options.keep_fraction)

    @option_names(FILTER_NAMES)
    def __call__(self, rollouts: Rollouts, step: int) -> Kept:
        """Choose the rollouts of one step: S sessions in B groups of at most n.

        Args:
            rollouts: everything that was generated.
            step: the training step; with the seed it fixes the random rule's choice, on resume too.

        Returns:
            Masks and counts of shape (S,) and (B,).
        """
        ranking, mask = rollouts.index.grouped(rollouts.values[:, RANKING])
        rng = np.random.default_rng([self.options.seed, step])
        selection = select(ranking, mask, self.keep, rule=self.options.rule, rng=rng)
        single = mask.sum(axis=1) == 1
        degenerate = zero_variance(ranking, mask)
        dropped = self._drop(degenerate & ~single, single)
        kept = selection.kept & ~(single | dropped)[:, None]
        return Kept(rollouts.index.sessions(kept), selection.top, degenerate, dropped, single)

    def _drop(self, degenerate: Mask, single: Mask) -> Mask:
        """Return which of the degenerate groups to drop, shape (B,)."""
        if not self.options.drop_zero_variance:
            return np.zeros_like(degenerate)
        drop = degenerate.copy()
        missing = self.options.min_prompts - int((~drop & ~single).sum())
        drop[np.flatnonzero(drop)[: max(0, missing)]] = False
        return drop
