"""Common random numbers: a prompt's j-th rollout has the same luck, whoever asks for it."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from verl_pods_cero.core.arrays import Floats

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FACTORS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))


def luck(seed: int, rows: ArrayLike, trials: ArrayLike) -> Floats:
    """Numbers that decide rollouts: a trial of a prompt is a success where its number is below the pass rate.

    Two allocators played with one seed thus differ by what they choose, and a rollout that both ask for fails in
    the one and passes in the other only where the pass rate has moved past the number in between.

    Formula:
        SplitMix64's finaliser f, once for each part of the key: f(f(f(seed) + i g) + j g) / 2^64 with g the odd
        number next to 2^64 / the golden ratio.

    Args:
        seed: of the run, at least 0.
        rows: prompts i, integers; they broadcast with trials.
        trials: j, how many rollouts of the prompt came before in this run.

    Returns:
        Numbers in [0, 1), float64, evenly spread.

    Source:
        Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.

    >>> luck(0, [[0], [1]], [0, 1]).round(3).tolist()
    [[0.139, 0.971], [0.184, 0.625]]
    """
    key = _mixed(np.array([seed], dtype=np.uint64))
    key = _mixed(key + _GOLDEN * np.asarray(rows, dtype=np.uint64))
    bits = _mixed(key + _GOLDEN * np.asarray(trials, dtype=np.uint64))
    return np.asarray((bits >> np.uint64(11)) * 2.0**-53)


def _mixed(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    z = z + _GOLDEN
    z = (z ^ (z >> _SHIFTS[0])) * _FACTORS[0]
    z = (z ^ (z >> _SHIFTS[1])) * _FACTORS[1]
    return np.asarray(z ^ (z >> _SHIFTS[2]))
