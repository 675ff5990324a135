"""Worlds to play in: the pass rate of every prompt at every moment of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from verl_pods_cero.core.arrays import Floats, Ints
from verl_pods_cero.tools.simulation.recording import Recording

# Moments of a run over which a prompt's means are taken.
_MOMENTS = 100


class World(Protocol):
    """Pass rates of a run. But for the learner's, they change with its progress and nothing else: no policy reacts."""

    @property
    def num_prompts(self) -> int:
        """Number of prompts M."""

    def pass_rates(self, progress: float, rows: Ints | slice = ...) -> Floats:
        """True pass rates of some prompts when a share `progress` of the budget is spent, in [0, 1]."""


@dataclass(frozen=True)
class DriftingWorld:
    """A made-up data set that a policy learns: normal log-odds, all rising alike.

    Formula:
        p_i(t) = sigmoid(x_i + drift t), x_i ~ Normal(centre, spread^2), t in [0, 1].

    Source:
        made here: with the defaults, the share of mixed groups under CERO and under its random control are those
        published in arXiv 2610.09679.

    >>> world = DriftingWorld.drawn(num_prompts=3, seed=0)
    >>> world.pass_rates(0.0).round(3).tolist()
    [0.237, 0.01, 0.016]
    >>> world.pass_rates(1.0).round(3).tolist()
    [0.791, 0.105, 0.166]
    """

    log_odds: Floats
    drift: float = 2.5

    @classmethod
    def drawn(
        cls, num_prompts: int, seed: int, *, centre: float = -1.5, spread: float = 3.2, drift: float = 2.5
    ) -> DriftingWorld:
        """Draw the prompts of a seed."""
        normal = np.random.default_rng([seed, 1]).standard_normal(num_prompts)
        return cls(normal * spread + centre, drift)

    @property
    def num_prompts(self) -> int:
        """Number of prompts M."""
        return len(self.log_odds)

    def pass_rates(self, progress: float, rows: Ints | slice = slice(None)) -> Floats:
        """True pass rates, (k,)."""
        return np.asarray(1.0 / (1.0 + np.exp(-(self.log_odds[rows] + self.drift * progress))))


@dataclass(frozen=True)
class RecordedWorld:
    """Pass rates as a training run measured them, smoothed over neighbouring visits.

    Formula:
        visit k of V took place at t_k = (k + 1/2) / V. p_i(t) = sum_k w_k y_k / sum_k w_k with weights
        w_k = exp(-(V (t - t_k) / smoothing)^2 / 2); with smoothing 0, linear between visits and held at the ends.
        Computed on a grid of moments, and linear between them.

    Why it is smoothed:
        a visit of 8 rollouts measures p with a standard error of up to 0.18. Taken as the truth, the error is
        drawn a second time: many a prompt of p = 0.05 would have p = 0.

    Shapes and units:
        grid: (G, M) float64, pass rates at G evenly spaced moments from 0 to 1.

    Source:
        the kernel estimate of Nadaraya (1964) and Watson (1964).

    >>> world = RecordedWorld.of(Recording(["a"], [np.array([0.0, 1.0])]), smoothing=0)
    >>> [world.pass_rates(t).round(2).tolist() for t in (0.1, 0.5, 0.9)]
    [[0.0], [0.5], [1.0]]
    """

    grid: Floats

    @classmethod
    def of(cls, recording: Recording, smoothing: float) -> RecordedWorld:
        """Smooth a recording; `smoothing` is the kernel's standard deviation, in visits."""
        longest = max(len(visits) for visits in recording.visits)
        moments = np.linspace(0.0, 1.0, max(101, 2 * longest + 1))
        return cls(np.stack([_smoothed(visits, moments, smoothing) for visits in recording.visits], axis=1))

    @property
    def num_prompts(self) -> int:
        """Number of prompts M."""
        return int(self.grid.shape[1])

    def pass_rates(self, progress: float, rows: Ints | slice = slice(None)) -> Floats:
        """True pass rates, (k,)."""
        place = min(max(progress, 0.0), 1.0) * (len(self.grid) - 1)
        before = min(int(place), len(self.grid) - 2)
        part = place - before
        return np.asarray((1.0 - part) * self.grid[before, rows] + part * self.grid[before + 1, rows])


def _smoothed(visits: Floats, moments: Floats, smoothing: float) -> Floats:
    """Pass rates of one prompt at the moments, (G,)."""
    count = len(visits)
    times = (np.arange(count) + 0.5) / count
    if smoothing == 0:
        return np.asarray(np.interp(moments, times, visits))
    distance = (count * (moments[:, None] - times) / smoothing) ** 2 / 2.0
    # Relative to the nearest visit, so that a narrow kernel does not lose them all.
    weights = np.exp(distance.min(axis=1, keepdims=True) - distance)
    # A mean of ones may exceed 1 by rounding.
    return np.asarray(np.minimum(weights @ visits / weights.sum(axis=1), 1.0))


def means_over_time(world: World) -> tuple[Floats, Floats]:
    """Mean over the run of each prompt's pass rate p and of its outcomes' variance p (1 - p), (M,) each."""
    moments = (np.arange(_MOMENTS) + 0.5) / _MOMENTS
    rate, variance = np.zeros(world.num_prompts), np.zeros(world.num_prompts)
    for moment in moments:
        p = world.pass_rates(float(moment))
        rate += p
        variance += p * (1.0 - p)
    return rate / _MOMENTS, variance / _MOMENTS
