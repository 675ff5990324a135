"""What is believed about each prompt's pass rate while the policy moves: a normal distribution of its logit."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from verl_pods_cero.core.arrays import Floats, Ints, Mask

# Sums over evenly spaced points replace integrals over a normal distribution; for functions as smooth as the logistic
# one they are exact to 1e-4. A posterior has a longer tail than a normal distribution, so its points reach further.
_POINTS = np.linspace(-4.5, 4.5, 25)
_WEIGHTS = np.exp(-(_POINTS**2) / 2) / np.exp(-(_POINTS**2) / 2).sum()
_FAR_POINTS = np.linspace(-8.0, 8.0, 65)

# Prior of the prior: as much as so many prompts of N(0, 4) would say.
_PSEUDO_PROMPTS, _PSEUDO_VARIANCE = 30.0, 4.0
_LEAST_PRIOR, _MOST_PRIOR = 0.25, 30.0
_DRIFT_PRECISION = 4.0
_LEAST_VARIANCE = 1e-3
# A clock before every other: such prompts have had no outcome, and their age is the run's and one epoch more.
NEVER = -1.0
# The clock of outcomes from before the run: nothing has drifted since, and yet no prompt was met in it.
BEFORE = float(np.nextafter(0.0, NEVER))


@dataclass(frozen=True)
class Prediction:
    """Normal distributions of logits at one moment, (k,) each, and what they rest on.

    age: epochs since the prompt's last outcome, or since first outcomes came in on average where it has had none.
    met: whether it has had one.
    """

    mean: Floats
    sd: Floats
    age: Floats
    met: Mask

    @property
    def pass_rate(self) -> Floats:
        """Expected pass rates E sigmoid(x), (k,)."""
        return np.asarray(logistic(self.points) @ _WEIGHTS)

    @property
    def points(self) -> Floats:
        """Points at which expectations are summed, (k, 25)."""
        return self.mean[:, None] + self.sd[:, None] * _POINTS


@dataclass(slots=True)
class LogitBeliefs:
    """Beliefs about the logits of M pass rates, with a prior and a common drift that are learnt on the way.

    Formula:
        logit x_i ~ N(m_i, v_i) after the outcomes of prompt i at clock t_i.
        Predict at clock t, a = t - t_i: N(m_i + r a, v_i + Q a). A prompt without outcomes: m_i = mu, v_i = s2 and
        t_i the mean clock of first outcomes.
        Update on S passes of n: the normal distribution with mean and variance of N(m, v) Bin(S | n, sigmoid(x)).
        mu, s2: mean and variance of x over posteriors after first outcomes and 30 pseudo-prompts of N(0, 4); s2 is
        kept within 0.25 and 30.
        r, by recursive least squares over prompts met again, with residual e = S - n E p, slope h = n E[p (1 - p)] a
        and variance V = n E[p (1 - p)] + n^2 Var p:
        I <- exp(-k / M) I + sum h^2 / V;  r <- r + (sum h e / V) / (4 + I), k prompts in the update.

    Shapes and units:
        mean, variance: (M,) float32, logits and their squares. clock: (M,) float64, epochs of M n rollouts spent when
        the prompt's last outcomes were taken in; NEVER where it had none, BEFORE where they are from before the run.
        noise Q: logits^2 an epoch. drift r: logits an epoch; information I: epochs^2 / logits^2. first: (4,) number
        of prompts met, and the sums of m, of m^2 + v and of clocks at their first outcomes.

    Source:
        Assumed-density filtering of a logistic-normal state, as in West, Harrison and Migon (1985), "Dynamic
        generalized linear models and Bayesian forecasting"; the shared drift and the fitted prior are settled here.

    >>> beliefs = LogitBeliefs.start(num_prompts=3, noise=0.03)
    >>> beliefs.observe(np.array([0, 2]), np.array([8.0, 4.0]), np.array([0.0, 4.0]), clock=0.5)
    >>> beliefs.predict(np.arange(3), clock=0.5).pass_rate.round(2).tolist()
    [0.91, 0.51, 0.5]
    """

    mean: NDArray[np.float32]
    variance: NDArray[np.float32]
    clock: Floats
    noise: float
    drift: float = 0.0
    information: float = 0.0
    first: Floats = field(default_factory=lambda: np.zeros(4))

    @classmethod
    def start(cls, num_prompts: int, noise: float) -> LogitBeliefs:
        """No prompt has had an outcome."""
        nothing = np.zeros(num_prompts, dtype=np.float32)
        return cls(nothing, nothing.copy(), np.full(num_prompts, NEVER), noise)

    @property
    def prior(self) -> tuple[float, float]:
        """Mean mu and variance s2 of the logits of prompts that have had no outcome."""
        count, total, squares = self.first[:3]
        weight = count + _PSEUDO_PROMPTS
        mean = total / weight
        variance = (squares + _PSEUDO_PROMPTS * _PSEUDO_VARIANCE) / weight - mean**2
        return float(mean), float(np.clip(variance, _LEAST_PRIOR, _MOST_PRIOR))

    def predict(self, rows: Ints, clock: float) -> Prediction:
        """Say what is believed now of the prompts at `rows`, (k,)."""
        mean, variance = self.prior
        met = self.clock[rows] != NEVER
        # Before the first outcome nothing is known of a drift, and the age is 0.
        since = self.first[3] / self.first[0] if self.first[0] else clock
        age = clock - np.where(met, self.clock[rows], since)
        centre = np.where(met, self.mean[rows], mean) + self.drift * age
        spread = np.where(met, self.variance[rows], variance) + self.noise * np.maximum(age, 0.0)
        return Prediction(centre, np.sqrt(spread), age, met)

    def observe(self, rows: Ints, wins: Floats, losses: Floats, clock: float) -> None:
        """Take in the outcomes of distinct prompts, (k,) each, in rollouts; each has at least one."""
        prior = self.predict(rows, clock)
        self._learn_drift(prior, wins, wins + losses)
        mean, variance = posterior(prior.mean, prior.sd**2, wins, losses)
        new = ~prior.met
        self.first += [new.sum(), mean[new].sum(), (variance + mean**2)[new].sum(), new.sum() * clock]
        self.mean[rows], self.variance[rows], self.clock[rows] = mean, variance, clock

    def _learn_drift(self, prior: Prediction, wins: Floats, n: Floats) -> None:
        p = logistic(prior.points)
        rate, binomial = p @ _WEIGHTS, (p * (1.0 - p)) @ _WEIGHTS
        slope = np.where(prior.met, n * binomial * prior.age, 0.0)
        variance = n * binomial + n**2 * ((p**2) @ _WEIGHTS - rate**2)
        self.information *= math.exp(-len(n) / len(self.mean))
        self.information += float((slope**2 / variance).sum())
        self.drift += float((slope * (wins - n * rate) / variance).sum()) / (_DRIFT_PRECISION + self.information)


def posterior(mean: Floats, variance: Floats, wins: Floats, losses: Floats) -> tuple[Floats, Floats]:
    """Mean and variance of a logit after passes and failures, by sums over points around the mode.

    Formula:
        moments of N(x; mean, variance) sigmoid(x)^wins (1 - sigmoid(x))^losses, (k,) each, variance at least 0.001.

    >>> mean, variance = posterior(np.zeros(1), np.full(1, 4.0), np.array([8.0]), np.array([0.0]))
    >>> mean.round(2).tolist(), variance.round(2).tolist()
    ([2.81], [1.37])
    """
    n = wins + losses
    low, high = mean - variance * losses, mean + variance * wins  # the slope of the log density changes sign in between
    for _ in range(40):
        mode = (low + high) / 2
        rising = wins - n * logistic(mode) > (mode - mean) / variance
        low, high = np.where(rising, mode, low), np.where(rising, high, mode)
    p = logistic(mode)
    x = mode[:, None] + _FAR_POINTS / np.sqrt(1.0 / variance + n * p * (1.0 - p))[:, None]
    log = -wins[:, None] * np.logaddexp(0.0, -x) - losses[:, None] * np.logaddexp(0.0, x)
    log -= (x - mean[:, None]) ** 2 / (2.0 * variance[:, None])
    density = np.exp(log - log.max(axis=1, keepdims=True))
    density /= density.sum(axis=1, keepdims=True)
    centre = (density * x).sum(axis=1)
    spread = (density * (x - centre[:, None]) ** 2).sum(axis=1)
    return centre, np.maximum(spread, _LEAST_VARIANCE)


def logistic(x: Floats) -> Floats:
    """1 / (1 + exp(-x)), without overflow.

    >>> logistic(np.array([-1000.0, 0.0])).tolist()
    [0.0, 0.5]
    """
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * x)))
