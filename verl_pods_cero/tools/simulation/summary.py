"""Runs of several seeds as means with their spread, and pairs of allocators seed by seed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from verl_pods_cero.core.arrays import Floats
from verl_pods_cero.tools.simulation.measures import Result, ratio, rollouts_to

REFERENCES = ("uniform", "random_matched")


@dataclass(frozen=True)
class Spread:
    """A mean over seeds; the spread is the standard deviation over seeds (of one run, not of the mean).

    >>> Spread.of([1.0, 2.0, 3.0])
    Spread(mean=2.0, deviation=1.0, lowest=1.0, highest=3.0, seeds=3)
    """

    mean: float
    deviation: float
    lowest: float
    highest: float
    seeds: int

    @classmethod
    def of(cls, values: ArrayLike) -> Spread:
        """Of one value a seed; NaN for the deviation of a single one, and of values that are not all finite."""
        numbers = np.asarray(values, dtype=np.float64)
        alike = len(numbers) > 1 and bool(np.isfinite(numbers).all())
        deviation = float(numbers.std(ddof=1)) if alike else np.nan
        return cls(float(numbers.mean()), deviation, float(numbers.min()), float(numbers.max()), len(numbers))


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
    complete = {player: [_with_target(one, target) for one in found] for player, found in by_player.items()}
    return Summary(complete, target)


def _with_target(result: Result, target: int) -> Result:
    return replace(result, numbers={**result.numbers, "rollouts_to_target": rollouts_to(result, target)})


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
