"""Time and memory of a round, without and with what it logs, against one pass over M numbers (`a + b`, a fresh array).

Run with `pytest benchmarks/test_allocation_benchmark.py -s`; the ratio and the bytes per prompt are printed and kept in
`extra_info`.
"""

from __future__ import annotations

import statistics
import timeit
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from verl_pods_cero.core import duals
from verl_pods_cero.core.allocators import create_allocator
from verl_pods_cero.core.budget import BudgetedAllocator
from verl_pods_cero.core.cero import Cero
from verl_pods_cero.core.duals import Constants, Duals
from verl_pods_cero.core.pass_rates import PassRates
from verl_pods_cero.core.prioritized import Prioritized
from verl_pods_cero.core.settings import AllocatorSettings

GROUP = 4


def one_round(state: Duals, wins: np.ndarray) -> None:
    decided = duals.plan(state)
    n = decided.executed * GROUP
    duals.observe(state, decided.indices, wins[: len(n)] * n // 8, n - wins[: len(n)] * n // 8)
    duals.advance(state, decided)


def running_state(num_prompts: int, fresh: bool) -> Duals:
    """A run just begun, all duals equal, or one in which every prompt has a history of its own."""
    rng = np.random.default_rng(0)
    # The published run at other sizes: its share of the budget for each prompt, and as many rounds as that fills.
    budget = int(num_prompts * 7.14)
    c = Constants(num_prompts, rounds=budget // 128, budget=budget, capacity=132, n_max=2)
    rates = PassRates.start(num_prompts)
    if not fresh:
        seen = rng.integers(0, 40, num_prompts)
        rates.a += rng.binomial(seen, rng.random(num_prompts))
        rates.b += np.maximum(0, seen + 2.0 - rates.a)
        rates.refresh()
    state = duals.start(c, rates, seed=0)
    if not fresh:
        state.theta *= rng.random(num_prompts)
    return state


@pytest.mark.parametrize("fresh", [True, False], ids=["first_round", "later_round"])
@pytest.mark.parametrize("num_prompts", [10_000, 100_000, 1_000_000])
def test_one_round_costs_a_few_passes_over_the_prompts(benchmark: Any, num_prompts: int, fresh: bool) -> None:
    state = running_state(num_prompts, fresh)
    wins = np.random.default_rng(1).integers(0, 9, 66)
    ratio = passes_of(benchmark, lambda: one_round(state, wins), state.rates)
    benchmark.extra_info.update(bytes_per_prompt=state.bytes_per_prompt)
    assert state.bytes_per_prompt <= 64
    if num_prompts >= 1_000_000:
        assert ratio <= 25


@pytest.mark.parametrize("fresh", [True, False], ids=["first_round", "later_round"])
@pytest.mark.parametrize("num_prompts", [10_000, 100_000, 1_000_000])
def test_one_round_of_priorities_costs_a_few_passes_over_the_prompts(
    benchmark: Any, num_prompts: int, fresh: bool
) -> None:
    settings = AllocatorSettings(num_prompts, budget=num_prompts * 28, rounds=num_prompts, batch_prompts=66)
    allocator, rng = Prioritized(settings), np.random.default_rng(0)
    rates = rng.random(num_prompts)
    if not fresh:
        rows = rng.permutation(num_prompts)[: num_prompts // 2]
        wins = rng.binomial(8, rates[rows]).astype(float)
        for number, part in enumerate(np.array_split(np.arange(len(rows)), 50)):
            allocator.beliefs.observe(rows[part], wins[part], 8 - wins[part], clock=number / 100)
        allocator._weight[:] = allocator._weights(np.arange(num_prompts))
        allocator._spent = num_prompts

    def a_round() -> None:
        given_out = allocator.plan()
        wins = given_out.rollouts * (rates[given_out.indices] > 0.5)
        allocator.observe(given_out.indices, wins, given_out.rollouts - wins)
        allocator.advance()

    ratio = passes_of(benchmark, a_round, allocator.rates)
    benchmark.extra_info.update(bytes_per_prompt=allocator.bytes_per_prompt)
    assert allocator.bytes_per_prompt <= 64
    if num_prompts >= 1_000_000:
        assert ratio <= 25


@pytest.mark.parametrize("name", ["cero", "greso", "prioritized", "thompson", "uniform"])
@pytest.mark.parametrize("num_prompts", [10_000, 100_000, 1_000_000])
def test_a_round_and_its_metrics(benchmark: Any, num_prompts: int, name: str) -> None:
    """Prints what `metrics()` adds to a round as a trainer takes it."""
    settings = AllocatorSettings(num_prompts, budget=num_prompts * 28, rounds=num_prompts, batch_prompts=66)
    allocator, rng = create_allocator(name, settings), np.random.default_rng(0)
    assert isinstance(allocator, BudgetedAllocator)
    rates = rng.random(num_prompts)
    rows = rng.permutation(num_prompts)[: num_prompts // 2]
    wins = rng.binomial(8, rates[rows])
    allocator.observe(rows, wins, 8 - wins)
    units = rng.poisson(5, num_prompts)
    allocator.exposures[:], allocator._spent = units, int(units.sum())
    logged: list[float] = []

    def plain_quantiles() -> None:
        for values in (allocator.exposures, allocator.rates.q):
            np.quantile(values, [0.1, 0.5, 0.9])

    def a_round() -> None:
        given_out = allocator.plan()
        wins = given_out.rollouts * (rates[given_out.indices] > 0.5)
        allocator.observe(given_out.indices, wins, given_out.rollouts - wins)
        allocator.advance()
        logged.append(timeit.timeit(allocator.metrics, number=1))

    passes_of(benchmark, a_round, allocator.rates)
    plain = timeit.repeat(plain_quantiles, number=1, repeat=10)
    own, numpys = (statistics.median(times) * 1e3 for times in (logged, plain))
    print(f"{name}: of which metrics() {own:.2f} ms; np.quantile of exposures and q alone {numpys:.2f} ms")
    benchmark.extra_info.update(metrics_ms=round(own, 2), quantile_ms=round(numpys, 2))


def passes_of(benchmark: Any, one_round: Callable[[], None], rates: PassRates) -> float:
    """Time rounds, and say how many passes over the prompts one takes."""
    passes: list[float] = []

    def one_pass() -> None:
        passes.append(timeit.timeit(lambda: rates.a + rates.b, number=1))

    # One pass before every round, so that what else the machine does hits both alike.
    benchmark.pedantic(one_round, setup=one_pass, rounds=40, warmup_rounds=2)
    median = benchmark.stats["median"]
    ratio = median / statistics.median(passes)
    benchmark.extra_info.update(ratio=round(ratio, 1))
    print(f"\nM={len(rates.a)}: {median * 1e3:.2f} ms, {ratio:.1f} passes of a + b")
    return ratio


def test_the_whole_allocator_takes_at_most_64_bytes_a_prompt() -> None:
    allocator = Cero(AllocatorSettings(num_prompts=1000, budget=8000, rounds=100, batch_prompts=20))
    held = sum(array.nbytes for array in allocator.state_dict().values() if array.size == 1000)
    assert allocator.bytes_per_prompt == 56.0
    # Saved: theta, a, b, tie, exposures. The rest follows from them.
    assert held == 1000 * 32


def test_priorities_take_at_most_64_bytes_a_prompt() -> None:
    allocator = Prioritized(AllocatorSettings(num_prompts=1000, budget=8000, rounds=100, batch_prompts=20))
    held = sum(array.nbytes for array in allocator.state_dict().values() if array.size == 1000)
    # Saved: a, b, exposures, the beliefs' mean, variance and clock, the weight. The tie ranks follow from the seed.
    assert (allocator.bytes_per_prompt, held) == (56, 1000 * 44)
