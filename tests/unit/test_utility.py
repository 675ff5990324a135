from __future__ import annotations

import heapq
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verl_pods_cero.core.utility import (
    best_total,
    conjugate,
    greedy_optimum,
    marginal_gain,
    utility,
    water_filling,
)

quick = settings(max_examples=50)

curvatures = st.lists(st.floats(0.0, 3.0), min_size=1, max_size=4)


def test_marginal_gains_add_up_to_the_utility() -> None:
    assert marginal_gain(np.arange(7), 0.3).sum() == pytest.approx(float(utility(7, 0.3)))


def test_gains_of_a_tiny_curvature_keep_their_digits() -> None:
    assert float(marginal_gain(0, 1e-18)) == pytest.approx(1e-18)
    assert float(utility(1, 1e-18)) == pytest.approx(1e-18)


@pytest.mark.parametrize(
    ("theta", "c", "expected"),
    [
        (0.5, 0.5, 0.0),
        (0.6, 0.5, 0.0),
        (0.5, 0.0, 0.0),
        (0.0, 0.0, 0.0),
        (0.0, 0.5, 10.0),
        (0.5 * np.exp(-5.0) * 0.999, 0.5, 10.0),
        (0.5 * np.exp(-1.0), 0.5, 2.0),
        (1e-300, 400.0, np.log(400.0 / 1e-300) / 400.0),
        (0.0, 1e-320, 10.0),
    ],
)
def test_best_total_takes_the_branch_of_its_price(theta: float, c: float, expected: float) -> None:
    assert float(best_total(theta, c, cap=10)) == pytest.approx(expected)


def test_best_total_is_right_where_the_lower_threshold_underflows() -> None:
    # exp(-c cap) = exp(-2000) is 0 in float64, and 0 < theta would look like the interior with log(c / 0).
    assert float(best_total(5e-324, 1.0, cap=2000)) == pytest.approx(744.4, rel=1e-3)
    assert float(best_total(0.0, 1.0, cap=2000)) == 2000.0


@quick
@given(st.floats(0.0, 2.0), st.floats(0.0, 2.0), st.integers(1, 50))
def test_no_total_has_a_larger_surplus_than_the_best_total(theta: float, c: float, cap: int) -> None:
    best = float(conjugate(theta, c, cap))
    grid = np.linspace(0.0, cap, 401)
    assert best >= (utility(grid, c) - theta * grid).max() - 1e-12
    assert 0.0 <= float(best_total(theta, c, cap)) <= cap


@quick
@given(st.floats(0.01, 2.0), st.floats(0.0, 1.0))
def test_utility_is_the_conjugate_of_its_conjugate(c: float, part: float) -> None:
    z = 10.0 * part
    price = c * np.exp(-c * z)
    assert float(conjugate(price, c, 10.0) + price * z) == pytest.approx(float(utility(z, c)), abs=1e-12)


@quick
@given(curvatures, st.integers(0, 9), st.integers(1, 3))
def test_greedy_optimum_is_the_best_of_all_whole_splits(c: list[float], budget: int, cap: int) -> None:
    z = greedy_optimum(c, budget, cap)
    assert z.sum() == min(budget, cap * len(c)) and z.min() >= 0 and z.max() <= cap
    splits = [s for s in itertools.product(range(cap + 1), repeat=len(c)) if sum(s) <= budget]
    best = max(float(utility(np.array(s), c).sum()) for s in splits)
    assert float(utility(z, c).sum()) == pytest.approx(best, abs=1e-12)


def test_greedy_optimum_equals_taking_one_unit_at_a_time_where_rounding_matters_most() -> None:
    # One flat prompt among many steep ones: there the whole optimum lies far from the fractional one, rounded.
    c = np.array([0.03] + [4.0] * 30)
    z = np.zeros(len(c), dtype=np.int64)
    heap = [(-float(marginal_gain(0, k)), i) for i, k in enumerate(c)]
    heapq.heapify(heap)
    for _ in range(60):
        _, i = heapq.heappop(heap)
        z[i] += 1
        heapq.heappush(heap, (-float(marginal_gain(z[i], c[i])), i))
    assert greedy_optimum(c, budget=60, cap=100).tolist() == z.tolist()


@quick
@given(st.lists(st.floats(0.01, 3.0), min_size=2, max_size=6), st.floats(0.0, 20.0))
def test_water_filling_leaves_every_served_prompt_at_one_marginal_worth(c: list[float], budget: float) -> None:
    cap = 5.0
    k = np.array(c)
    z = water_filling(k, budget, cap)
    assert z.sum() == pytest.approx(min(budget, cap * len(k)), abs=1e-9)
    worth = k * np.exp(-k * z)
    inside = (z > 1e-9) & (z < cap - 1e-9)
    if inside.any():
        price = worth[inside].mean()
        assert worth[inside] == pytest.approx(price)
        assert (worth[z <= 1e-9] <= price + 1e-9).all() and (worth[z >= cap - 1e-9] >= price - 1e-9).all()


def test_water_filling_bounds_every_whole_split_from_above() -> None:
    c = np.random.default_rng(0).random(50)
    fractional = utility(water_filling(c, 120, 8), c).sum()
    whole = utility(greedy_optimum(c, 120, 8), c).sum()
    assert 0.0 <= fractional - whole < 0.2


def test_a_budget_beyond_need_fills_every_useful_prompt_and_no_other() -> None:
    assert water_filling([0.5, 0.0], budget=100, cap=3).tolist() == [3.0, 0.0]
    assert greedy_optimum([0.5, 0.0], budget=100, cap=3).tolist() == [3, 3]
    assert greedy_optimum([0.0], budget=0, cap=3).tolist() == [0]
