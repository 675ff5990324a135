"""What a run is judged by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from verl_pods_cero.core.allocators import Allocator
from verl_pods_cero.core.arrays import Floats, Ints
from verl_pods_cero.core.budget import spread
from verl_pods_cero.core.settings import AllocatorSettings
from verl_pods_cero.core.utility import utility
from verl_pods_cero.tools.simulation.filters import Filtered, filter_groups, filter_measures
from verl_pods_cero.tools.simulation.oracles import curvature
from verl_pods_cero.tools.simulation.play import Groups, Play

MEASURES = {
    "rollouts": "rollouts handed out",
    "steps": "training steps taken",
    "empty_rounds": "rounds in which no prompt got rollouts",
    "groups": "groups sampled: a prompt in a step",
    "mixed_groups": "groups with a success and a failure",
    "effective_prompt_ratio": "mixed groups / groups",
    "mixed_per_1000": "mixed groups / rollouts, times 1000",
    "effective_rollout_ratio": "rollouts in mixed groups / rollouts",
    "mixed_prompts": "distinct prompts with a mixed group",
    "mixed_prompts_share": "the same, as a share of the prompts that are neither always solved nor never",
    "effective_number": "prompts by rollouts r in mixed groups: (sum r)^2 / sum r^2",
    "effective_number_share": "the same, as a share of all prompts",
    "utility": "sum over prompts of 1 - exp(-c z), c from the true mean of p (1 - p) over the run, z units had",
    "utility_share": "utility / the most that any split of the whole budget could have",
    "coverage": "share of the prompts that had a rollout",
    "exposures_p10": "first decile over prompts of the rollouts that a prompt had",
    "exposures_p50": "median of the same",
    "exposures_p90": "last decile of the same",
    "calibration_mae": "mean over groups of |predicted - observed pass rate|",
    "calibration_true_mae": "mean over groups of |predicted - true pass rate|",
    "calibration_bias": "mean over groups of predicted - true pass rate",
    "rollouts_to_target": "rollouts handed out by the end of the step that reached the target of mixed groups",
}

DIFFICULTY = (0.0, 0.02, 0.1, 0.25, 0.5, 0.75, 0.9, 0.98, 1.0)
"""Edges of the classes of prompts, by mean true pass rate over the run."""

CALIBRATION_BINS = 10
# A mean of p (1 - p) that rounding alone makes of a prompt with p = 0 or 1 throughout.
_CERTAIN = 1e-12


@dataclass(frozen=True)
class Binned:
    """Sums over the members of each bin: how many, and what they add up to."""

    counts: Floats
    sums: dict[str, Floats]

    @classmethod
    def pooled(cls, several: Sequence[Binned]) -> Binned:
        """Add up the bins of several runs."""
        sums = {name: np.sum([one.sums[name] for one in several], axis=0) for name in several[0].sums}
        return cls(np.sum([one.counts for one in several], axis=0), sums)

    def mean(self, name: str) -> Floats:
        """Mean by bin, NaN without members."""
        return ratio(self.sums[name], self.counts)


def ratio(part: Floats, whole: Floats) -> Floats:
    """Divide, NaN where the whole is 0."""
    return np.asarray(np.divide(part, whole, out=np.full(np.shape(whole), np.nan), where=whole > 0))


@dataclass(frozen=True)
class Result:
    """What is kept of a run.

    Shapes:
        spent, groups, mixed: (steps,), cumulative. difficulty: by `DIFFICULTY`, prompts and their rollouts.
        calibration: by predicted pass rate in ten bins, groups and their predicted and observed rates.
        filters: (rule, keep) to `FILTER_MEASURES`.
    """

    player: str
    seed: int
    numbers: dict[str, float]
    spent: Floats
    groups: Floats
    mixed: Floats
    difficulty: Binned
    calibration: Binned
    filters: dict[tuple[str, int], dict[str, float]] = field(default_factory=dict)


def judge(
    played: Play,
    allocator: Allocator,
    means: tuple[Floats, Floats],
    best: float,
    player: str,
    seed: int,
    choices: dict[tuple[str, int], Filtered],
) -> Result:
    """Compute every measure of a run but the one that needs other runs.

    Args:
        played: the run.
        allocator: as the run left it.
        means: true means over the run of p and of p (1 - p), (M,) each.
        best: utility of the best split of the budget.
        player: its label.
        seed: of the run.
        choices: what each rule of the filter kept.
    """
    groups = played.groups
    had = np.bincount(groups.row, weights=groups.rollouts, minlength=len(means[0])).astype(np.float64)
    sampled = played.per_step()
    return Result(
        player,
        seed,
        {
            "rollouts": float(groups.rollouts.sum()),
            "steps": float(played.steps),
            "empty_rounds": allocator.metrics().get("empty_rounds", np.nan),
            **_mixed(groups),
            **_breadth(groups, means[1]),
            **_utility(played.settings, had, means[1], best),
            "coverage": float((had > 0).mean()),
            **spread("exposures", had),
            **_calibration(groups),
        },
        spent=np.cumsum(played.per_step(groups.rollouts)),
        groups=np.cumsum(sampled),
        mixed=np.cumsum(played.per_step(groups.mixed)),
        difficulty=_by_difficulty(means[0], had),
        calibration=_by_prediction(groups),
        filters={key: filter_measures(groups, choice) for key, choice in choices.items()},
    )


def choices(groups: Groups, rules: Sequence[str], keeps: Sequence[int], seed: int) -> dict[tuple[str, int], Filtered]:
    """Let every rule choose at every number of rollouts kept."""
    return {(rule, keep): filter_groups(groups, rule, keep, seed) for rule in rules for keep in keeps}


def rollouts_to(result: Result, target: float) -> float:
    """Rollouts handed out by the end of the step that reached `target` mixed groups; infinity if none did."""
    step = int(np.searchsorted(result.mixed, target))
    return float(result.spent[step]) if step < len(result.mixed) else np.inf


def _mixed(groups: Groups) -> dict[str, float]:
    count, rollouts = float(len(groups.row)) or np.nan, float(groups.rollouts.sum()) or np.nan
    mixed = float(groups.mixed.sum())
    return {
        "groups": float(len(groups.row)),
        "mixed_groups": mixed,
        "effective_prompt_ratio": mixed / count,
        "mixed_per_1000": 1000.0 * mixed / rollouts,
        "effective_rollout_ratio": float(groups.rollouts[groups.mixed].sum()) / rollouts,
    }


def _breadth(groups: Groups, variance: Floats) -> dict[str, float]:
    """Say over how many prompts the mixed groups are spread.

    Formula:
        (sum r_i)^2 / sum r_i^2 with r_i rollouts of prompt i in mixed groups: a mean over prompts with weights r_i has
        the variance of a plain mean over so many (Kish's effective sample size, the inverse of Simpson's index).
    """
    mixed = groups.mixed
    had = np.bincount(groups.row[mixed], weights=groups.rollouts[mixed], minlength=len(variance))
    distinct, possible = float((had > 0).sum()), float((variance > _CERTAIN).sum())
    squares = float((had**2).sum())
    effective = float(had.sum()) ** 2 / squares if squares else 0.0
    return {
        "mixed_prompts": distinct,
        "mixed_prompts_share": distinct / possible if possible else np.nan,
        "effective_number": effective,
        "effective_number_share": effective / len(variance),
    }


def _utility(settings: AllocatorSettings, had: Floats, q: Floats, best: float) -> dict[str, float]:
    reached = float(utility(had / settings.unit, curvature(settings, q)).sum())
    return {"utility": reached, "utility_share": reached / best if best else np.nan}


def _calibration(groups: Groups) -> dict[str, float]:
    if not len(groups.row) or np.isnan(groups.predicted).any():
        return dict.fromkeys(("calibration_mae", "calibration_true_mae", "calibration_bias"), np.nan)
    error = groups.predicted - groups.true_rate
    return {
        "calibration_mae": float(np.abs(groups.predicted - groups.wins / groups.rollouts).mean()),
        "calibration_true_mae": float(np.abs(error).mean()),
        "calibration_bias": float(error.mean()),
    }


def _by_difficulty(rates: Floats, had: Floats) -> Binned:
    bins = np.clip(np.searchsorted(DIFFICULTY, rates, side="right") - 1, 0, len(DIFFICULTY) - 2)
    return _binned(bins, len(DIFFICULTY) - 1, {"rollouts": had})


def _by_prediction(groups: Groups) -> Binned:
    known = ~np.isnan(groups.predicted)
    predicted = groups.predicted[known]
    observed = groups.wins[known] / groups.rollouts[known]
    bins = np.minimum((predicted * CALIBRATION_BINS).astype(np.int64), CALIBRATION_BINS - 1)
    return _binned(bins, CALIBRATION_BINS, {"predicted": predicted, "observed": observed})


def _binned(bins: Ints, count: int, values: dict[str, Floats]) -> Binned:
    def per_bin(weights: Floats | None = None) -> Floats:
        return np.bincount(bins, weights=weights, minlength=count).astype(np.float64)

    return Binned(per_bin(), {name: per_bin(value) for name, value in values.items()})
