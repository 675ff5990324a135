"""Regret of CERO against the best split in hindsight, with utilities that never change, over growing horizons.

Prints, for the round schedule at the published ratio of capacity to pace and for the epoch schedule, the mean regret
over seeds in the units of the dual (R / lambda), its slope on log-log axes, and the slope between the last two
horizons. Run with `python benchmarks/regret.py [largest horizon]`; the default takes about a minute.
"""

from __future__ import annotations

import sys

import numpy as np

from verl_pods_cero.core import duals
from verl_pods_cero.core.duals import Constants
from verl_pods_cero.core.pass_rates import PassRates
from verl_pods_cero.core.utility import greedy_optimum, utility

PROMPTS, PACE, N_MAX, SEEDS = 64, 32, 2, 5


def regret(rounds: int, capacity: int, seed: int) -> float:
    """Utility lost by the end, in units of lambda / R."""
    rng = np.random.default_rng(seed)
    rates = PassRates.start(PROMPTS)
    seen, p = rng.integers(0, 60, PROMPTS), rng.random(PROMPTS)
    rates.a += seen * p
    rates.b += seen * (1.0 - p)
    rates.refresh()
    c = Constants(PROMPTS, rounds, rounds * PACE, capacity, N_MAX)
    state, z = duals.start(c, rates, seed), np.zeros(PROMPTS, dtype=np.int64)
    for _ in range(rounds):
        decided = duals.plan(state)
        z[decided.indices] += decided.executed
        duals.advance(state, decided)
    curvature = 4.0 * rates.q / c.share
    best = greedy_optimum(curvature, c.budget, c.cap)
    return float(utility(best, curvature).sum() - utility(z, curvature).sum()) * c.share


def main() -> None:
    """Print both tables."""
    largest = int(sys.argv[1]) if len(sys.argv) > 1 else 6400
    horizons = [25 * 2**i for i in range(20) if 25 * 2**i <= largest]
    for name, capacity in (("round", 33), ("epoch", PROMPTS * N_MAX)):
        mean = [np.mean([regret(k, capacity, seed) for seed in range(SEEDS)]) for k in horizons]
        (slope, _), covariance = np.polyfit(np.log(horizons), np.log(mean), 1, cov=True)
        last = np.log2(mean[-1] / mean[-2])
        print(f"{name}: slope {slope:.3f} +- {np.sqrt(covariance[0, 0]):.3f}, at the end {last:.3f}")
        for k, value in zip(horizons, mean, strict=True):
            print(f"  K={k:6d}  regret {value:8.2f}  / sqrt(K) {value / np.sqrt(k):.3f}")


if __name__ == "__main__":
    main()
