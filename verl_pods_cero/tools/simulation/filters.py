"""PODS on top of a run: what each rule keeps of its groups."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from verl_pods_cero.core.arrays import Floats, Ints
from verl_pods_cero.core.pods import select
from verl_pods_cero.tools.simulation.play import Groups

RULES = ("max_variance", "percentile", "random", "max_reward")

FILTER_MEASURES = {
    "variance_generated": "mean over groups of the variance of their outcomes",
    "variance_kept": "the same over the rollouts that were kept",
    "mixed_kept": "share of the groups with both outcomes that have both among what was kept",
    "updates_saved": "share of the rollouts that the policy is not updated on",
}


@dataclass(frozen=True)
class Filtered:
    """A rule's choice over all groups of a run, (G,) each: rollouts kept, the successes among them, and k."""

    kept: Ints
    wins: Ints
    top: Ints


def filter_groups(groups: Groups, rule: str, keep: int, seed: int) -> Filtered:
    """Keep `keep` rollouts of each group; all groups at once, for a rule reads no other group.

    Groups of as many rollouts and successes are alike to every rule but `random`: how many successes such a rule keeps
    does not depend on their places, so one of each kind is enough.
    """
    outcomes, exists, back = groups.outcomes, groups.exists, np.arange(len(groups.row))
    if rule != "random":
        kinds = groups.rollouts * (outcomes.shape[1] + 1) + groups.wins
        _, first, back = np.unique(kinds, return_index=True, return_inverse=True)
        outcomes, exists = outcomes[first], exists[first]
    chosen = select(outcomes.astype(np.float64), exists, keep, rule, np.random.default_rng([seed, keep]))
    counts = (chosen.kept.sum(axis=1), (outcomes & chosen.kept).sum(axis=1), chosen.top)
    return Filtered(*(np.asarray(count, dtype=np.int64)[back] for count in counts))


def filter_measures(groups: Groups, filtered: Filtered) -> dict[str, float]:
    """Compute `FILTER_MEASURES`."""
    if not len(groups.row):
        return dict.fromkeys(FILTER_MEASURES, np.nan)
    kept, mixed = variances(filtered.wins, filtered.kept), groups.mixed
    return {
        "variance_generated": float(variances(groups.wins, groups.rollouts).mean()),
        "variance_kept": float(kept.mean()),
        "mixed_kept": float((kept[mixed] > 0).mean()) if mixed.any() else np.nan,
        "updates_saved": 1.0 - float(filtered.kept.sum() / groups.rollouts.sum()),
    }


def variances(wins: Ints, count: Ints) -> Floats:
    """Variance of outcomes that are 0 or 1, by group: p (1 - p), p = wins / count."""
    p = wins / count
    return np.asarray(p * (1.0 - p))
