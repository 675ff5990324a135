"""Does every allocator spend the budget that it is given, to the last rollout, or refuse it before the run?

    python -m benchmarks.equal_budget [5000]

Draws configurations, sensible and not: sizes, groups, budgets, capacities, schedules. Each is played to its end by one
allocator, the allocators taking turns, with outcomes drawn at random; every prompt is there to choose from. Prints how
many were spent exactly and how many refused, and ends with status 1 and the configuration if one was neither.
"""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

import numpy as np

from verl_pods_cero.core.allocators import KNOWN, create_allocator, resolve_allocator
from verl_pods_cero.core.settings import AllocatorSettings
from verl_pods_cero.core.steps import Steps
from verl_pods_cero.errors import OptionError

NAMES = sorted(KNOWN)
SPENT, REFUSED = "spent exactly", "refused"


class BudgetError(AssertionError):
    """An allocator spent more or less than its budget, or more in a round than it holds."""


def configuration(number: int) -> tuple[str, dict[str, Any]]:
    """Draw an allocator and the arguments of `AllocatorSettings.of_run`; four in ten do not fit together."""
    rng = np.random.default_rng(number)
    unit = int(rng.integers(2, 5))
    n = unit * int(rng.integers(1, 5))
    prompts, steps = int(rng.integers(1, 60)), int(rng.integers(1, 30))
    batch = int(rng.integers(1, prompts + 1 + prompts // 8))
    plain = steps * batch * n
    name = NAMES[number % len(NAMES)]
    drawn: dict[str, Any] = {
        "num_prompts": prompts,
        "batch_prompts": batch,
        "n": n,
        "steps": steps,
        "n_max": [None, n, n + unit, 2 * n, n + 1][rng.choice(5, p=[0.4, 0.2, 0.2, 0.15, 0.05])],
        "unit": [None, unit][rng.integers(2)],
        "budget": [None, unit * int(rng.integers(1, 2 * plain // unit + 2))][rng.integers(2)],
        "capacity": [None, unit * int(rng.integers(1, prompts * n // unit + 2))][rng.choice(2, p=[0.7, 0.3])],
        "schedule": ["round", "epoch"][rng.integers(2)],
        "headroom": getattr(resolve_allocator(name), "headroom", 1.0),
        "rho": float(rng.choice([0.0, 0.5, 1.0])),
        "lam": float(rng.choice([0.1, 1.0, 10.0])),
        "focus": float(rng.choice([0.0, 2.0, 8.0])),
        "price": float(rng.choice([0.0, 0.5, 1.0])),
        "seed": number,
    }
    return name, drawn


def outcome(name: str, drawn: dict[str, Any]) -> str:
    """Play a configuration to its end and say what became of it.

    Raises:
        BudgetError: it was neither spent exactly nor refused.
    """
    try:
        settings = AllocatorSettings.of_run(**drawn)
        allocator = create_allocator(name, settings)
    except OptionError:
        return REFUSED
    rng = np.random.default_rng(settings.seed)
    rates = rng.choice([0.0, 0.02, 0.5, 0.9, 1.0], settings.num_prompts)
    steps, spent, limit = Steps(allocator, settings), 0, settings.capacity_units * settings.unit
    while True:
        steps.prepare()
        if steps.exhausted:
            break
        step = steps.take()
        spent += step.total
        if step.total > limit or step.rollouts.max() > settings.n_max_units * settings.unit:
            raise BudgetError(f"{name} exceeds a round or n_max with {drawn}")
        wins = rng.binomial(step.rollouts, rates[step.indices])
        steps.observe(step.indices, wins, step.rollouts - wins)
    if not spent == allocator.spent == settings.budget:
        raise BudgetError(f"{name} spent {spent} of {settings.budget} with {drawn}")
    return SPENT


def counts(configurations: int) -> dict[str, Counter[str]]:
    """Play so many configurations; what became of them, by allocator."""
    found: dict[str, Counter[str]] = {name: Counter() for name in NAMES}
    for number in range(configurations):
        name, drawn = configuration(number)
        found[name][outcome(name, drawn)] += 1
    return found


def main() -> int:
    """Print the counts."""
    try:
        found = counts(int(sys.argv[1]) if len(sys.argv) > 1 else 5000)
    except BudgetError as error:
        print(error)
        return 1
    for name, counted in found.items():
        print(f"{name:16} {counted[SPENT]:5} {SPENT}  {counted[REFUSED]:5} {REFUSED}")
    total = sum(found.values(), Counter[str]())
    print(f"{'all':16} {total[SPENT]:5} {SPENT}  {total[REFUSED]:5} {REFUSED}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
