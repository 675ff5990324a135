"""Pilot and commit inside a step: a few rollouts of each prompt first, the rest where they disagree."""

from __future__ import annotations

import numpy as np

from verl_pods_cero.core.arrays import Floats, Ints


def pilot_of(planned: Ints, pilot: int) -> Ints:
    """Return the rollouts of each prompt that come first: `pilot`, or its plan where that is less, (k,)."""
    return np.minimum(planned, pilot)


def committed(
    planned: Ints, first: Ints, successes: Ints, failures: Ints, expected: Floats, n_max: int, unit: int
) -> Ints:
    """Give the rest of a step's rollouts to the prompts whose first ones disagree.

    Formula:
        R = sum(planned - first) is left. A prompt with a success and a failure can take up to n_max - first more, and
        these rise together; what does not divide goes to those nearest to half of each. What they cannot take goes to
        the others, planned - first each, the largest p (1 - p) of the expected pass rate first. All of R is given.

    Args:
        planned: rollouts of each prompt, (k,), multiples of `unit`, at most n_max.
        first: those of them that were generated first, (k,), multiples of `unit`.
        successes: among the first, (k,).
        failures: among the first, (k,); both together are fewer than `first` where some did not come back.
        expected: pass rates expected before, (k,).
        n_max: most rollouts of a prompt.
        unit: rollouts that are handed out together.

    Returns:
        Rollouts to come, (k,), with the sum R; 0 for a prompt that is stopped.

    Source:
        Settled here; successive rejects, Audibert and Bubeck (2010), "Best arm identification in multi-armed bandits",
        stops arms in the same manner, after rounds of equal size.

    >>> plan, four = np.array([8, 8, 8]), np.array([4, 4, 4])
    >>> halves = np.array([0.5, 0.5, 0.5])
    >>> committed(plan, four, np.array([4, 1, 0]), np.array([0, 3, 4]), halves, n_max=16, unit=4).tolist()
    [0, 12, 0]
    """
    left = int((planned - first).sum()) // unit
    mixed = (successes > 0) & (failures > 0)
    room = np.where(mixed, n_max - first, planned - first) // unit
    seen = np.maximum(successes + failures, 1)
    given = np.zeros(len(planned), dtype=np.int64)
    nearest = np.argsort(np.abs(successes / seen - 0.5), kind="stable")
    order = nearest[mixed[nearest]]
    given[order] = _risen_together(room[order], left)
    left -= int(given.sum())
    others = np.argsort(-expected * (1.0 - expected), kind="stable")
    others = others[~mixed[others]]
    before = np.cumsum(room[others]) - room[others]
    given[others] = np.clip(left - before, 0, room[others])
    return given * unit


def _risen_together(room: Ints, total: int) -> Ints:
    """Split units evenly under limits; of equals the first get what does not divide.

    >>> _risen_together(np.array([5, 1, 5]), 8).tolist()
    [4, 1, 3]
    """
    total = min(total, int(room.sum()))
    low, high = 0, int(room.max(initial=0))
    while low < high:  # the highest level that all can rise to
        level = (low + high + 1) // 2
        low, high = (level, high) if int(np.minimum(room, level).sum()) <= total else (low, level - 1)
    given = np.minimum(room, low)
    more = np.flatnonzero(room > low)[: total - int(given.sum())]
    given[more] += 1
    return given
