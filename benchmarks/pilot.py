"""What a pilot brings on data that is seen once, against one size of group for all: made-up pass rates, no training.

    python -m benchmarks.pilot [--seeds 20]

A step has 128 rollouts. `uniform 8` gives 8 to each of 16 prompts, `uniform 4` 4 to each of 32, and `pilot 4` (or 2)
as many of the 8 first, and the rest where they disagree, up to 16 (or 32) of a prompt. Per 1,000 rollouts: groups with
both outcomes; the share of rollouts that are in one; and the signal, the sum over groups of size * p (1 - p) of what
was seen, to which the squared length of GRPO's gradient is proportional where responses are alike.
"""

from __future__ import annotations

import argparse

import numpy as np

from verl_pods_cero.core.arrays import Floats, Ints
from verl_pods_cero.core.pilot import committed, pilot_of

ROLLOUTS, STEPS, UNIT = 128, 200, 2
WORLDS = {"even, Beta(1, 1)": (1.0, 1.0), "extremes, Beta(0.3, 0.3)": (0.3, 0.3), "hard, Beta(0.2, 2)": (0.2, 2.0)}
# Rollouts of a prompt as planned, those that come first, and the most.
ARMS = {"uniform 8": (8, 8, 8), "uniform 4": (4, 4, 4), "pilot 4 of 8": (8, 4, 16), "pilot 2 of 8": (8, 2, 32)}


def step(rates: Floats, first: int, most: int, planned: int, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Return the sizes of a step's groups, and the successes in each."""
    plan = np.full(len(rates), planned)
    begun = pilot_of(plan, first)
    wins = rng.binomial(begun, rates)
    more = committed(plan, begun, wins, begun - wins, np.full(len(rates), 0.5), most, UNIT)
    return begun + more, wins + rng.binomial(more, rates)


def measured(world: tuple[float, float], arm: tuple[int, int, int], seed: int) -> list[float]:
    """Return mixed groups, the share of rollouts in them in percent, and the signal, per 1,000 rollouts."""
    planned, first, most = arm
    rng = np.random.default_rng(seed)
    totals = np.zeros(3)
    for _ in range(STEPS):
        sizes, wins = step(rng.beta(*world, ROLLOUTS // planned), first, most, planned, rng)
        mixed = (wins > 0) & (wins < sizes)
        rates = wins / sizes
        totals += mixed.sum(), sizes[mixed].sum(), (sizes * rates * (1.0 - rates)).sum()
    groups, inside, signal = totals * 1000 / (ROLLOUTS * STEPS)
    return [groups, inside / 10, signal]


def main() -> None:
    """Print a table for each world."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    seeds = range(parser.parse_args().seeds)
    for name, world in WORLDS.items():
        print(f"| {name} | mixed groups | rollouts in them, % | signal |\n|---|---|---|---|")
        for arm, sizes in ARMS.items():
            found = np.array([measured(world, sizes, seed) for seed in seeds])
            means, errors = found.mean(axis=0), found.std(axis=0, ddof=1) / np.sqrt(len(seeds))
            print(f"| {arm} |" + "|".join(f" {m:.1f} ± {e:.1f} " for m, e in zip(means, errors, strict=True)) + "|")
        print()


if __name__ == "__main__":
    main()
