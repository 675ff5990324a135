r"""The worth of rollouts: a saturating utility, its conjugate, and the best allocation in hindsight.

Throughout, ``c`` is a prompt's curvature per unit of rollouts (0 for a prompt that teaches nothing), ``cap``
the most units that it may get over the run, and ``theta`` a price per unit. All are float64 and broadcast
together.
"""

from __future__ import annotations

import heapq

import numpy as np
from numpy.typing import ArrayLike

from verl_pods_cero.core.arrays import Floats, Ints

_BISECTIONS = 100


def utility(z: ArrayLike, c: ArrayLike) -> Floats:
    """Worth of z units of rollouts.

    Formula:
        U(z) = 1 - exp(-c z), in [0, 1).

    Source:
        CERO, arXiv 2606.05606, utility of cumulative rollouts (there c = eta q).

    >>> utility([0, 1, 2], 0.5).round(3).tolist()
    [0.0, 0.393, 0.632]
    """
    return np.asarray(-np.expm1(-np.asarray(c, dtype=np.float64) * np.asarray(z, dtype=np.float64)))


def marginal_gain(level: ArrayLike, c: ArrayLike) -> Floats:
    """Worth of one unit more for a prompt that already has `level` units.

    Formula:
        U(level + 1) - U(level) = (1 - exp(-c)) exp(-c level).

    >>> marginal_gain([0, 1], 0.5).round(3).tolist()
    [0.393, 0.239]
    """
    c = np.asarray(c, dtype=np.float64)
    return np.asarray(-np.expm1(-c) * np.exp(-c * np.asarray(level, dtype=np.float64)))


def best_total(theta: ArrayLike, c: ArrayLike, cap: float) -> Floats:
    """Total number of units that a prompt would buy at price theta.

    Formula:
        z* = argmax over 0 <= z <= cap of U(z) - theta z: 0 when theta >= c (or c = 0), cap when
        theta <= c exp(-c cap), (1/c) log(c / theta) in between.

    Args:
        theta: Price, >= 0, in utility per unit.
        c: Curvature, >= 0, per unit.
        cap: Most units a prompt may get, >= 0.

    Returns:
        z*, float64, in [0, cap].

    Source:
        CERO, arXiv 2606.05606, Fenchel-dual reformulation; 2610.09679, the three branches.

    >>> best_total([2.0, 0.5, 0.0], 1.0, cap=3).round(3).tolist()
    [0.0, 0.693, 3.0]
    """
    theta, c = np.broadcast_arrays(np.asarray(theta, dtype=np.float64), np.asarray(c, dtype=np.float64))
    buys = theta < c
    safe_c = np.where(buys, c, 1.0)
    # The lower branch is the clip at cap: log c - log theta >= c cap says theta <= c exp(-c cap) and cannot
    # underflow, which exp(-c cap) does beyond c cap = 745. log(0) = -inf then lands on cap, as it should.
    with np.errstate(divide="ignore", over="ignore"):
        wanted = (np.log(safe_c) - np.log(theta)) / safe_c
    return np.asarray(np.where(buys, np.clip(wanted, 0.0, cap), 0.0))


def conjugate(theta: ArrayLike, c: ArrayLike, cap: float) -> Floats:
    """Surplus of a prompt at price theta: what its utility exceeds its bill by, at best.

    Formula:
        max over 0 <= z <= cap of U(z) - theta z, >= 0, falling and convex in theta.

    Source:
        CERO, arXiv 2606.05606, Fenchel-dual reformulation (there as the conjugate of -U).

    >>> conjugate([2.0, 0.5], 1.0, cap=3).round(3).tolist()
    [0.0, 0.153]
    """
    z = best_total(theta, c, cap)
    return np.asarray(utility(z, c) - np.asarray(theta, dtype=np.float64) * z)


def water_filling(c: ArrayLike, budget: float, cap: float) -> Floats:
    """Best split of a budget in fractions of units: every prompt served is left with the same marginal worth.

    Formula:
        maximise sum_i U_i(z_i) with sum_i z_i <= budget and 0 <= z_i <= cap: z_i = z*(theta; c_i) at the
        price theta for which the budget is just used up.

    Args:
        c: Curvatures, (M,), >= 0.
        budget: Units in all, >= 0.
        cap: Most units for one prompt.

    Returns:
        z, (M,) float64. The whole budget is used unless every prompt with c > 0 is at its cap.

    Source:
        The continuous offline benchmark of CERO's regret, arXiv 2606.05606; textbook water-filling.

    >>> water_filling([1.0, 2.0], budget=2.0, cap=5).round(3).tolist()
    [1.102, 0.898]
    """
    c = np.asarray(c, dtype=np.float64)
    useful = c > 0
    z = np.zeros_like(c)
    if useful.sum() * cap <= budget:
        z[useful] = cap
        return z
    k = c[useful]
    z[useful] = _demand(_clearing_price(np.log(k), k, budget, cap, whole=False), np.log(k), k, cap, whole=False)
    return z


def _demand(log_price: float, log_first: Floats, c: Floats, cap: float, whole: bool) -> Floats:
    """Units, fractional or whole, whose worth exp(log_first - c l) is at or above a price, in [0, cap]."""
    # A curvature near the smallest float demands infinitely much, which the cap makes finite.
    with np.errstate(over="ignore"):
        demand = (log_first - log_price) / c
    return np.asarray(np.clip(np.floor(demand) + 1.0 if whole else demand, 0.0, cap))


def _clearing_price(log_first: Floats, c: Floats, budget: float, cap: float, whole: bool) -> float:
    """Log of the lowest price found at which the demand is within the budget.

    The search is in log price because demand is piecewise linear in it, and the price itself may underflow.
    """
    low, high = float((log_first - c * cap).min()) - 1.0, float(log_first.max()) + 1.0
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2.0
        if _demand(middle, log_first, c, cap, whole).sum() > budget:
            low = middle
        else:
            high = middle
    return high


def greedy_optimum(c: ArrayLike, budget: int, cap: int) -> Ints:
    """Best split of a budget in whole units, exactly.

    Formula:
        maximise sum_i U_i(z_i) over integers 0 <= z_i <= cap with sum_i z_i <= budget. U is concave, so
        taking the largest marginal gains (1 - exp(-c_i)) exp(-c_i (l - 1)), l = 1..cap, is optimal; ties go
        to the lower index.

    Args:
        c: Curvatures, (M,), >= 0.
        budget: Units in all, >= 0.
        cap: Most units for one prompt.

    Returns:
        z, (M,) int64, with sum min(budget, M cap); prompts with c = 0 come last.

    Source:
        The offline benchmark of CERO's regret, arXiv 2606.05606.

    >>> greedy_optimum([1.0, 0.1, 0.0], budget=4, cap=3).tolist()
    [2, 2, 0]
    """
    c = np.asarray(c, dtype=np.float64)
    z = np.zeros(len(c), dtype=np.int64)
    useful = c > 0
    if useful.any():
        # All units that are worth more than the clearing price at once; a heap settles the few at the price.
        k = c[useful]
        log_first = np.log(-np.expm1(-k))
        price = _clearing_price(log_first, k, budget, cap, whole=True)
        z[useful] = _demand(price, log_first, k, cap, whole=True).astype(np.int64)
    left = min(budget, cap * len(c)) - int(z.sum())
    gains = marginal_gain(z, c)
    heap = [(-float(gain), i) for i, gain in enumerate(gains) if z[i] < cap]
    heapq.heapify(heap)
    while left > 0:
        _, i = heap[0]
        z[i] += 1
        left -= 1
        if z[i] < cap:
            heapq.heapreplace(heap, (-float(marginal_gain(z[i], c[i])), i))
        else:
            heapq.heappop(heap)
    return z
