"""What is believed about each prompt's pass rate: a Beta posterior with forgetting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from verl_pods_cero.core.arrays import Floats, Ints


def informativeness(a: ArrayLike, b: ArrayLike) -> Floats:
    r"""Expected Bernoulli variance of a prompt under its Beta(a, b) posterior.

    Formula:
        q = E[p (1 - p)] = a b / ((a + b) (a + b + 1)), always below 1/4.

    Args:
        a: Pseudo-counts of success, > 0, any shape.
        b: Pseudo-counts of failure, > 0, the same shape.

    Returns:
        q, the same shape, float64, in units of a variance of a 0/1 reward.

    Source:
        CERO, arXiv 2606.05606, the section on informativeness and utility.

    >>> float(informativeness(1.0, 1.0))
    0.16666666666666666
    >>> informativeness([1, 5], [1, 5]).round(3).tolist()
    [0.167, 0.227]
    """
    a = np.asarray(a, dtype=np.float64)
    b = np.asarray(b, dtype=np.float64)
    total = a + b
    # Two quotients instead of one product below the line: a + b may be large enough to overflow squared.
    return np.asarray((a / total) * (b / (total + 1.0)))


@dataclass(frozen=True)
class Calibration:
    """How well the pass rates predicted before an observation met what was observed.

    Formula:
        mean absolute error = mean over prompts of |predicted - S / (S + F)|;
        Brier score = mean over rollouts of (predicted - outcome)^2.

    Shapes and units:
        Sums over the prompts and rollouts seen so far; add two of them to pool them.

    >>> c = Calibration.of(predicted=np.array([0.5]), successes=np.array([3.0]), failures=np.array([1.0]))
    >>> c.mean_absolute_error, c.brier
    (0.25, 0.25)
    """

    absolute_error: float = 0.0
    squared_error: float = 0.0
    prompts: int = 0
    rollouts: float = 0.0

    @classmethod
    def of(cls, predicted: Floats, successes: Floats, failures: Floats) -> Calibration:
        """Compare predictions (k,) with outcomes (k,); prompts without any rollout are left out."""
        n = successes + failures
        seen = n > 0
        p, s, f, n = predicted[seen], successes[seen], failures[seen], n[seen]
        return cls(
            absolute_error=float(np.abs(p - s / n).sum()),
            squared_error=float((s * (1.0 - p) ** 2 + f * p**2).sum()),
            prompts=len(n),
            rollouts=float(n.sum()),
        )

    def __add__(self, other: Calibration) -> Calibration:
        return Calibration(
            self.absolute_error + other.absolute_error,
            self.squared_error + other.squared_error,
            self.prompts + other.prompts,
            self.rollouts + other.rollouts,
        )

    @property
    def mean_absolute_error(self) -> float:
        """Mean over prompts of |predicted - observed pass rate|; 0 when nothing was observed."""
        return self.absolute_error / self.prompts if self.prompts else 0.0

    @property
    def brier(self) -> float:
        """Mean over rollouts of the squared error of the prediction; 0 when nothing was observed."""
        return self.squared_error / self.rollouts if self.rollouts else 0.0


@dataclass(slots=True)
class PassRates:
    """Beta posteriors of the pass rates of M prompts.

    Formula:
        on observing S successes and F failures of a prompt,
        a <- a0 + rho (a - a0) + S and b <- b0 + rho (b - b0) + F; other prompts keep their posterior.

    Shapes and units:
        a, b: (M,) float64, pseudo-counts of rollouts; q: (M,) float64, expected variance of one reward;
        prior (a0, b0) > 0; 0 <= rho <= 1.

    Source:
        CERO, arXiv 2606.05606 (posterior), 2610.09679 (forgetting factor rho).

    >>> rates = PassRates.start(num_prompts=3)
    >>> _ = rates.observe(np.array([2]), np.array([3]), np.array([1]))
    >>> rates.a.tolist(), rates.b.tolist(), rates.mean.round(3).tolist()
    ([1.0, 1.0, 4.0], [1.0, 1.0, 2.0], [0.5, 0.5, 0.667])
    """

    a: Floats
    b: Floats
    q: Floats
    prior: tuple[float, float]
    rho: float

    @classmethod
    def start(cls, num_prompts: int, prior: tuple[float, float] = (1.0, 1.0), rho: float = 1.0) -> PassRates:
        """Every prompt at the prior."""
        a = np.full(num_prompts, prior[0], dtype=np.float64)
        b = np.full(num_prompts, prior[1], dtype=np.float64)
        return cls(a, b, informativeness(a, b), prior, rho)

    @property
    def mean(self) -> Floats:
        """Posterior mean a / (a + b), (M,)."""
        return self.a / (self.a + self.b)

    def refresh(self) -> None:
        """Bring q in line after a and b were set from outside."""
        self.q[:] = informativeness(self.a, self.b)

    def predict(self, indices: ArrayLike) -> Floats:
        """Posterior mean of the prompts at `indices` only, (k,)."""
        rows = checked_indices(len(self.a), indices)
        a = self.a[rows]
        return a / (a + self.b[rows])

    def observe(self, indices: ArrayLike, successes: ArrayLike, failures: ArrayLike) -> Ints:
        """Take in outcomes; a prompt that is named twice forgets once and has its outcomes summed.

        Args:
            indices: Prompts, (k,) integers in [0, M).
            successes: Rollouts that passed, (k,), >= 0.
            failures: Rollouts that did not, (k,), >= 0.

        Returns:
            The distinct prompts whose posterior changed, ascending; one with no rollout at all is left alone.

        Raises:
            ValueError: Lengths differ, a prompt is out of range, or a count is negative or not finite.
        """
        indices, successes, failures = checked_outcomes(len(self.a), indices, successes, failures)
        unique, wins, losses = summed_outcomes(indices, successes, failures)
        a0, b0 = self.prior
        self.a[unique] = a0 + self.rho * (self.a[unique] - a0) + wins
        self.b[unique] = b0 + self.rho * (self.b[unique] - b0) + losses
        self.q[unique] = informativeness(self.a[unique], self.b[unique])
        return unique


def summed_outcomes(rows: Ints, wins: Floats, losses: Floats) -> tuple[Ints, Floats, Floats]:
    """Outcomes of each prompt that has any, once and summed, in ascending order.

    >>> [part.tolist() for part in summed_outcomes(np.array([5, 2, 5]), np.array([1.0, 0, 2]), np.array([0.0, 0, 1]))]
    [[5], [3.0], [1.0]]
    """
    seen = wins + losses > 0
    unique, place = np.unique(rows[seen], return_inverse=True)
    passed = np.bincount(place, weights=wins[seen], minlength=len(unique)).astype(np.float64)
    failed = np.bincount(place, weights=losses[seen], minlength=len(unique)).astype(np.float64)
    return unique, passed, failed


def checked_outcomes(
    num_prompts: int, indices: ArrayLike, successes: ArrayLike, failures: ArrayLike
) -> tuple[Ints, Floats, Floats]:
    """Outcomes as arrays of one length, or a ValueError that names what is wrong.

    >>> checked_outcomes(3, [5], [1], [0])
    Traceback (most recent call last):
    ValueError: prompt 5 is out of range: this allocator was set up for 3 prompts (0..2)
    """
    rows = checked_indices(num_prompts, indices)
    wins = np.asarray(successes, dtype=np.float64)
    losses = np.asarray(failures, dtype=np.float64)
    if not rows.shape == wins.shape == losses.shape:
        shapes = f"{rows.shape}, {wins.shape}, {losses.shape}"
        raise ValueError(f"indices, successes and failures must have one shape, got {shapes}")
    for name, counts in (("successes", wins), ("failures", losses)):
        bad = ~(np.isfinite(counts) & (counts >= 0))
        if bad.any():
            culprit = f"{counts[bad][0]} for prompt {rows[bad][0]}"
            raise ValueError(f"{name} must be finite and >= 0, got {culprit}")
    return rows, wins, losses


def checked_indices(num_prompts: int, indices: ArrayLike) -> Ints:
    """Prompts as a flat int64 array, or a ValueError that names the culprit.

    >>> checked_indices(3, [2, 0]).tolist()
    [2, 0]
    """
    given: NDArray[Any] = np.asarray(indices)
    if given.ndim != 1:
        raise ValueError(f"prompt indices must be a flat array, got shape {given.shape}")
    if given.size and not np.issubdtype(given.dtype, np.integer):
        raise ValueError(f"prompt indices must be integers, got dtype {given.dtype}")
    rows = given.astype(np.int64)
    bad = (rows < 0) | (rows >= num_prompts)
    if bad.any():
        raise ValueError(
            f"prompt {rows[bad][0]} is out of range: this allocator was set up for {num_prompts} prompts"
            f" (0..{num_prompts - 1})"
        )
    return rows
