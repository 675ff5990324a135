"""A made-up policy that reacts: its ability moves by the gradient of the groups that an allocator had it sample."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from verl_pods_cero.core.arrays import Floats, Ints
from verl_pods_cero.core.logit_beliefs import logistic

UPDATES = ("sgd", "adam")

_SKILLS = 16
_SPREAD = 3.0
# Learning rates with which 15 visits a prompt take a run of the default sizes about half of its way.
_RATES = {"sgd": 0.1, "adam": 0.02}
_DECAYS = (0.9, 0.999)


@dataclass(frozen=True)
class Learner:
    """How the made-up policy learns, and how hard its data is.

    update: sgd or adam. noise: length of the noise in the gradient of a mixed group of n, whose signal has a length of
    sqrt(p (1 - p)). difficulty: mean of the prompts', in logits. transfer: share of a prompt's loading (squared) that
    others have too, 0 to 1.
    """

    update: str = "sgd"
    noise: float = 0.0
    difficulty: float = 2.0
    transfer: float = 1.0


class LearnerWorld:
    """Prompts of an item-response model, answered by a policy that is trained on what was sampled.

    Formula:
        p_i = sigmoid(a_i . s - d_i): abilities s, 0 at first; d_i ~ Normal(difficulty, 3^2);
        a_i = sqrt(T / 2) e_0 + sqrt(T / 2) e_k + sqrt(1 - T) e_i': one ability that all prompts need, one of 16 skills,
        and one that this prompt alone needs (what is learnt by heart); T is `transfer`.
        A group with S passes of r has the gradient sqrt(y (1 - y)) a_i, y = S / r: what advantages (reward - mean) /
        deviation make of d log p / dx. A step takes the mean over its R rollouts,
        g = sum r_i sqrt(y_i (1 - y_i)) a_i / R.
        sgd: s <- s + lr g.
        adam: s <- s + lr m / sqrt(v), m and v the running means of g and of |g|^2 + N, 0.9 and 0.999 kept in a step,
        corrected for their start; N = noise^2 n sum of r_i over mixed groups / R^2.
        With less transfer lr is larger, so that an epoch of equal groups moves the mean logit as far.

    Why N only lengthens v:
        a language model has millions of weights that no prompt of the data depends on. Noise there moves no pass rate,
        but Adam divides by it. It has one v for all coordinates, as abilities are spread over all weights.

    Args:
        num_prompts: M.
        n: rollouts of a group that `noise` is said of.
        seed: of the prompts.
        learner: how it learns.

    Source:
        the item-response model of Rasch (1960), with several abilities; the rest is made here.

    >>> world = LearnerWorld(num_prompts=100, n=8, seed=0, learner=Learner())
    >>> before = world.pass_rates(0.0).mean(); world.learn(np.arange(100), np.full(100, 8), np.full(100, 4))
    >>> bool(world.pass_rates(0.0).mean() > before), len(world.accuracy)
    (True, 2)
    """

    def __init__(self, num_prompts: int, n: int, seed: int, learner: Learner) -> None:
        rng = np.random.default_rng([seed, 2])
        self.num_prompts = num_prompts
        self._skill: Ints = rng.integers(0, _SKILLS, num_prompts)
        self._difficulty: Floats = rng.standard_normal(num_prompts) * _SPREAD + learner.difficulty
        self._n = n
        self._learner = learner
        self._shared, self._own = math.sqrt(learner.transfer / 2.0), math.sqrt(1.0 - learner.transfer)
        alike = (1.0 + 1.0 / _SKILLS) / 2.0  # mean of a_i . a_j with full transfer
        self._lr = _RATES[learner.update]
        if learner.update == "sgd":
            self._lr *= alike / (learner.transfer * alike + (1.0 - learner.transfer) / num_prompts)
        # The common ability, the skills, and what is known by heart.
        self._ability = np.zeros(1 + _SKILLS + num_prompts)
        self._momentum = np.zeros_like(self._ability)
        self._power = 0.0
        self._sums = np.zeros((2, num_prompts))
        self._rates = self._all_rates()
        self.accuracy = [float(self._rates.mean())]

    def pass_rates(self, progress: float, rows: Ints | slice = slice(None)) -> Floats:  # noqa: ARG002
        """True pass rates now, (k,), wherever the run is."""
        return np.asarray(self._rates[rows])

    def means(self) -> tuple[Floats, Floats]:
        """Mean over the steps so far of each prompt's pass rate p and of p (1 - p), (M,) each."""
        steps = max(1, len(self.accuracy) - 1)
        return self._sums[0] / steps, self._sums[1] / steps

    def learn(self, rows: Ints, rollouts: Ints, wins: Ints) -> None:
        """Take one step on groups of distinct prompts, (k,) each."""
        self._sums += self._rates, self._rates * (1.0 - self._rates)
        total = float(rollouts.sum())
        rate = wins / rollouts
        push = rollouts / total * np.sqrt(rate * (1.0 - rate))
        gradient = np.zeros_like(self._ability)
        gradient[0] = self._shared * push.sum()
        gradient[1 : 1 + _SKILLS] = self._shared * np.bincount(self._skill[rows], push, _SKILLS)
        gradient[1 + _SKILLS + rows] = self._own * push
        mixed = float(rollouts[push > 0].sum())
        self._ability += self._change(gradient, self._learner.noise**2 * self._n * mixed / total**2)
        self._rates = self._all_rates()
        self.accuracy.append(float(self._rates.mean()))

    def _change(self, gradient: Floats, noise: float) -> Floats:
        if self._learner.update == "sgd":
            return self._lr * gradient
        first, second = _DECAYS
        self._momentum = first * self._momentum + (1.0 - first) * gradient
        self._power = second * self._power + (1.0 - second) * (float(gradient @ gradient) + noise)
        step = len(self.accuracy)
        length = math.sqrt(self._power / (1.0 - second**step)) or 1.0
        return np.asarray(self._lr * self._momentum / (1.0 - first**step) / length)

    def _all_rates(self) -> Floats:
        common, skills, own = np.split(self._ability, [1, 1 + _SKILLS])
        return logistic(self._shared * (common + skills[self._skill]) + self._own * own - self._difficulty)
