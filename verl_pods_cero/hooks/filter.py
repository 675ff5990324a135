"""PODS in a trainer: which rollouts of a step the policy is updated on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from verl_pods_cero.core.arrays import Ints, Mask
from verl_pods_cero.core.groups import zero_variance
from verl_pods_cero.core.pods import RESPONSE_LENGTH, keep_count, resolve_rule, rule_needs, select
from verl_pods_cero.errors import option_names
from verl_pods_cero.hooks.rollouts import Rollouts
from verl_pods_cero.options.names import FILTER_NAMES
from verl_pods_cero.options.schema import FilterOptions


@dataclass(frozen=True)
class Kept:
    """What is kept of a step, and why the rest was dropped.

    Attributes:
        sessions: kept sessions, shape (S,).
        top: rollouts taken from the high end of each group, shape (B,).
        degenerate: groups of one ranking value, shape (B,).
        dropped_degenerate: groups that were dropped because nothing in them could teach, shape (B,).
        dropped_single: groups that were dropped because one rollout has none to be compared with, shape (B,).
    """

    sessions: Mask
    top: Ints
    degenerate: Mask
    dropped_degenerate: Mask
    dropped_single: Mask


class PodsFilter:
    """Keeps m of each prompt's rollouts.

    Args:
        options: validated options.
        n: rollouts generated per prompt.
        tolerance: values of a prompt count as equal within this share of the step's largest.
    """

    @option_names(FILTER_NAMES)
    def __init__(self, options: FilterOptions, n: int, tolerance: float) -> None:
        self.options = options
        self.keep = keep_count(n, options.keep, options.keep_fraction)
        self._tolerance = tolerance
        self._rule = resolve_rule(options.rule)

    @option_names(FILTER_NAMES)
    def __call__(self, rollouts: Rollouts, step: int) -> Kept:
        """Choose the rollouts of one step: S sessions in B groups of at most n.

        Args:
            rollouts: everything that was generated, with every value that the options name.
            step: the training step; with the seed it fixes the random rule's choice, on resume too.
        """
        ranking, mask = rollouts.index.grouped(rollouts.values[self.options.ranking_key])
        degenerate = zero_variance(ranking, mask, self._tolerance)
        # A rule that sees the rounding errors of equal values would choose by them.
        ranking = np.where(degenerate[:, None], 0.0, ranking)
        rng = np.random.default_rng([self.options.seed, step])
        columns = {**rollouts.values, RESPONSE_LENGTH: rollouts.response_tokens}
        values = {name: rollouts.index.grouped(columns[name])[0] for name in rule_needs(self._rule)}
        selection = select(ranking, mask, self.keep, self._rule, rng, values)
        single = rollouts.index.sizes == 1
        useless = self._useless(rollouts, selection.kept, single)
        kept = selection.kept & ~(single | useless)[:, None]
        return Kept(rollouts.index.sessions(kept), selection.top, degenerate, useless, single)

    def _useless(self, rollouts: Rollouts, kept: Mask, single: Mask) -> Mask:
        """Return which groups to drop because their advantages are all 0, shape (B,).

        Advantages compare the rewards of what was kept, or of all, whatever rollouts were ranked by.
        """
        if not self.options.drop_zero_variance:
            return np.zeros_like(single)
        rewards, mask = rollouts.index.grouped(rollouts.rewards)
        compared = kept if self.options.advantage_stats == "subset" else mask
        drop = zero_variance(rewards, compared, self._tolerance) & ~single
        missing = self.options.min_prompts - int((~drop & ~single).sum())
        drop[np.flatnonzero(drop)[: max(0, missing)]] = False
        return drop


def whole_groups(rollouts: Rollouts, _step: int) -> Kept:
    """Keep every rollout but those that are alone: what an allocator without a filter updates on."""
    single = rollouts.index.sizes == 1
    none = np.zeros_like(single)
    return Kept(~single[rollouts.index.group_of_session], none.astype(np.int64), none, none, single)
