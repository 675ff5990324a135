"""Runs of several seeds as means with their spread, and pairs of allocators seed by seed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from verl_pods_cero.core.arrays import Floats
from verl_pods_cero.tools.reports.spread import half_width
from verl_pods_cero.tools.simulation.measures import Result, ratio

REFERENCES = ("uniform", "random_matched")
# Share of the reference's gain in accuracy that rollouts are counted up to.
GAIN = 0.8


@dataclass(frozen=True)
class Spread:
    """A mean over seeds; the spread is the standard deviation over seeds (of one run, not of the mean).

    interval is half the width of the 95 % confidence interval of the mean.

    >>> spread = Spread.of([1.0, 2.0, 3.0])
    >>> spread.mean, spread.deviation, round(spread.interval, 3), spread.seeds
    (2.0, 1.0, 2.484, 3)
    """

    mean: float
    deviation: float
    interval: float
    lowest: float
    highest: float
    seeds: int

    @classmethod
    def of(cls, values: ArrayLike) -> Spread:
        """Of one value a seed; NaN for the deviation of a single one, and of values that are not all finite."""
        numbers = np.asarray(values, dtype=np.float64)
        alike = len(numbers) > 1 and bool(np.isfinite(numbers).all())
        deviation = float(numbers.std(ddof=1)) if alike else np.nan
        interval = float(half_width(numbers)) if alike else np.nan
        return cls(float(numbers.mean()), deviation, interval, float(numbers.min()), float(numbers.max()), len(numbers))


@dataclass(frozen=True)
class Summary:
    """All results: by player in the order given, by seed within a player.

    Attributes:
        results: of each player.
        target: mixed groups that `rollouts_to_target` counts up to.
    """

    results: dict[str, list[Result]]
    target: int

    @property
    def references(self) -> list[str]:
        """The players that others are compared with: uniform and random_matched, else the first."""
        return [name for name in REFERENCES if name in self.results] or [next(iter(self.results))]

    def values(self, player: str, measure: str) -> list[float]:
        """One value a seed."""
        return [result.numbers[measure] for result in self.results[player]]

    def spread(self, player: str, measure: str) -> Spread:
        """Mean and spread of a measure."""
        return Spread.of(self.values(player, measure))

    def differences(self, player: str, reference: str, measure: str) -> list[float]:
        """The player's value less the reference's at the same seed, one a seed."""
        pairs = zip(self.values(player, measure), self.values(reference, measure), strict=True)
        return [mine - other if np.isfinite(mine) and np.isfinite(other) else np.nan for mine, other in pairs]


def summarise(results: Iterable[Result], players: Sequence[str], target: int | None) -> Summary:
    """Sort results and fill in how many rollouts the target took.

    Args:
        results: one a player and seed, in any order.
        players: labels, in the order of the tables.
        target: mixed groups; by default half of what the first reference has at its end, in the mean.
    """
    by_player: dict[str, list[Result]] = {player: [] for player in players}
    for result in results:
        by_player[result.player].append(result)
    for found in by_player.values():
        found.sort(key=lambda result: result.seed)
    reference = Summary(by_player, 0).references[0]
    if target is None:
        target = max(1, int(Summary(by_player, 0).spread(reference, "mixed_groups").mean / 2))
    complete = {
        player: [_compared(one, other, target) for one, other in zip(found, by_player[reference], strict=True)]
        for player, found in by_player.items()
    }
    return Summary(complete, target)


def _compared(result: Result, reference: Result, target: int) -> Result:
    """Fill in what needs other runs, the reference's at the same seed among them."""
    start, end, ratios = (
        [one.numbers[name] for one in (result, reference)]
        for name in ("accuracy_start", "accuracy", "effective_rollout_ratio")
    )
    accuracy = start[1] + GAIN * (end[1] - start[1])
    mine, other = rollouts_to_accuracy(result, accuracy), rollouts_to_accuracy(reference, accuracy)
    own = {
        "rollouts_to_target": rollouts_to(result, target),
        "mixed_over_reference": ratios[0] / ratios[1] if ratios[1] else np.nan,
        "rollouts_to_accuracy": mine,
        "speed_up": other / mine if mine else np.nan,
    }
    return replace(result, numbers={**result.numbers, **own})


def rollouts_to(result: Result, target: float) -> float:
    """Rollouts handed out by the end of the step that reached `target` mixed groups; infinity if none did."""
    step = int(np.searchsorted(result.mixed, target))
    return float(result.spent[step]) if step < len(result.mixed) else np.inf


def rollouts_to_accuracy(result: Result, target: float) -> float:
    """Rollouts until an accuracy was reached, linear within a step; infinity if it never was, NaN without any."""
    if not len(result.accuracy):
        return np.nan
    reached = np.flatnonzero(result.accuracy >= target)
    if not len(reached):
        return np.inf
    spent, after = np.concatenate([[0.0], result.spent]), int(reached[0])
    if not after:
        return 0.0
    low, high = result.accuracy[after - 1 : after + 1]
    return float(spent[after - 1] + (spent[after] - spent[after - 1]) * (target - low) / (high - low))


def curve(results: Sequence[Result], edges: Floats) -> tuple[Floats, Floats]:
    """Return, by seed and stretch of the budget, the effective prompt ratio, and the mixed groups by its end.

    Args:
        results: of one player.
        edges: rollouts, (E + 1,), rising from 0. A step belongs to the stretch in which it ends.

    Returns:
        Two arrays (seeds, E): the ratio within a stretch, NaN where no step ends in it; and the count at the stretch's
        last rollout, NaN beyond the run's end.
    """
    ratios, counts = [], []
    for result in results:
        last = np.searchsorted(result.spent, edges, side="right") - 1
        groups, mixed = (
            np.where(last >= 0, values[np.maximum(last, 0)], 0.0) if len(values) else np.zeros(len(edges))
            for values in (result.groups, result.mixed)
        )
        ratios.append(ratio(np.diff(mixed), np.diff(groups)))
        end = result.spent[-1] if len(result.spent) else 0.0
        counts.append(np.where(edges[:-1] < end, mixed[1:], np.nan))
    return np.array(ratios), np.array(counts)
