from __future__ import annotations

import copy
import functools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verl_pods_cero.core import duals
from verl_pods_cero.core.duals import Constants, Duals, Plan
from verl_pods_cero.core.pass_rates import PassRates, informativeness
from verl_pods_cero.core.ranking import leaders
from verl_pods_cero.core.utility import best_total, greedy_optimum, utility
from verl_pods_cero.tools.simulation.worlds import DriftingWorld

quick = settings(max_examples=50)

PUBLISHED = Constants(num_prompts=8960, rounds=500, budget=64_000, capacity=132, n_max=2)
GROUP = 4


def play(state: Duals, pass_rates: np.ndarray, rng: np.random.Generator) -> Plan:
    """One round, with outcomes drawn from uniform numbers so that the trajectory is the same everywhere."""
    decided = duals.plan(state)
    n = decided.executed * GROUP
    draws = rng.random((len(n), state.constants.n_max * GROUP)) < pass_rates[decided.indices, None]
    wins = (draws & (np.arange(draws.shape[1]) < n[:, None])).sum(axis=1)
    duals.observe(state, decided.indices, wins, n - wins)
    duals.advance(state, decided)
    return decided


# --- the published run ---------------------------------------------------------------------------------------------


@functools.cache
def published_run(seed: int, drift: float) -> tuple[list[int], np.ndarray, Duals]:
    rng = np.random.default_rng(seed)
    world = DriftingWorld.drawn(8960, seed, drift=drift)
    state = duals.start(PUBLISHED, PassRates.start(8960), seed)
    exposures, sizes = np.zeros(8960, dtype=np.int64), []
    for k in range(PUBLISHED.rounds):
        decided = play(state, world.pass_rates(k / PUBLISHED.rounds), rng)
        exposures[decided.indices] += decided.executed
        sizes.append(int(decided.executed.sum()))
    return sizes, exposures, state


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_published_run_spends_its_budget_to_the_last_unit_in_the_last_round(seed: int) -> None:
    sizes, exposures, state = published_run(seed, drift=2.5)
    assert state.budget_left == 0 and sum(sizes) == 64_000
    assert sizes[-1] > 0
    assert 10 <= sizes.count(0) <= 16
    assert np.isin(exposures, [6, 8, 10]).mean() > 0.99


def test_published_run_follows_its_golden_trajectory() -> None:
    sizes, exposures, state = published_run(seed=0, drift=2.5)
    assert (sizes.index(0), sizes.count(0), sizes[-1]) == (120, 14, 104)
    assert np.bincount(exposures).tolist() == [0, 0, 0, 0, 0, 0, 5271, 0, 2258, 0, 1431]
    assert state.price == pytest.approx(0.5097827974, abs=1e-9)
    assert state.theta.mean() == pytest.approx(0.5273784949, abs=1e-9)


# --- the rule, against a second reading of the paper written as plainly as can be ---------------------------------


def plain_round(s: Duals, outcomes: Any) -> tuple[np.ndarray, np.ndarray]:
    """The specification line by line, with full sorts and branches; changes `s` in place."""
    c, m = s.constants, s.constants.num_prompts
    margin = s.theta - s.price
    planned, executed = np.zeros(m), np.zeros(m)
    room, funds = c.capacity, s.budget_left
    due = s.budget_left - c.capacity * (c.rounds - s.round - 1)
    if due > np.sum(margin > 0) * c.n_max:
        margin, room = np.ones(m), due
    for i in sorted(range(m), key=lambda i: (-s.theta[i], s.tie[i])):
        if margin[i] > 0 and room > 0:
            planned[i] = min(c.n_max, room)
            executed[i] = min(planned[i], max(funds, 0))
            room, funds = room - planned[i], funds - planned[i]
    wins, losses = outcomes(executed)
    for i in np.flatnonzero(executed):
        a0, b0 = s.rates.prior
        s.rates.a[i] = a0 + s.rates.rho * (s.rates.a[i] - a0) + wins[i]
        s.rates.b[i] = b0 + s.rates.rho * (s.rates.b[i] - b0) + losses[i]
    s.rates.q[:] = informativeness(s.rates.a, s.rates.b)
    unit_price = c.lam / c.share
    z = best_total(unit_price * s.theta, 4 * unit_price * s.rates.q, c.cap)
    s.theta[:] = np.clip(s.theta - c.step * (planned - z / c.rounds) / c.n_max, 0, 1)
    s.price = float(np.clip(s.price - c.step * (c.pace - planned.sum()) / c.price_scale, 0, 1))
    s.budget_left -= int(executed.sum())
    s.round += 1
    return planned, executed


@st.composite
def constants(draw: st.DrawFn) -> Constants:
    m, n_max, rounds = draw(st.integers(1, 30)), draw(st.integers(1, 4)), draw(st.integers(1, 12))
    capacity = draw(st.integers(1, m * n_max))
    return Constants(
        num_prompts=m,
        rounds=rounds,
        budget=draw(st.integers(1, rounds * capacity)),
        capacity=draw(st.sampled_from([capacity, m * n_max])),
        n_max=n_max,
        lam=draw(st.sampled_from([0.3, 1.0, 2.5])),
    )


@quick
@given(constants(), st.integers(0, 99), st.sampled_from([0.0, 0.7, 1.0]))
def test_a_round_is_what_the_specification_says_line_by_line(c: Constants, seed: int, rho: float) -> None:
    fast = duals.start(c, PassRates.start(c.num_prompts, rho=rho), seed)
    slow = duals.start(c, PassRates.start(c.num_prompts, rho=rho), seed)
    p = np.random.default_rng(seed).random(c.num_prompts)
    for k in range(c.rounds):

        def outcomes(executed: np.ndarray, k: int = k) -> tuple[np.ndarray, np.ndarray]:
            n = (executed * GROUP).astype(int)
            wins = np.random.default_rng([seed, k]).binomial(n, p)
            return wins, n - wins

        decided = duals.plan(fast)
        executed = np.zeros(c.num_prompts)
        executed[decided.indices] = decided.executed
        wins, losses = outcomes(executed)
        duals.observe(fast, decided.indices, wins[decided.indices], losses[decided.indices])
        duals.advance(fast, decided)
        planned, plain_executed = plain_round(slow, outcomes)
        assert decided.planned.tolist() == planned[decided.indices].tolist()
        assert decided.planned.sum() == planned.sum()
        assert executed.tolist() == plain_executed.tolist()
        np.testing.assert_allclose(fast.theta, slow.theta, rtol=1e-12, atol=1e-15)
        assert fast.price == pytest.approx(slow.price, abs=1e-15)
        # Equal up to rounding, then equal: otherwise a later tie could break either way.
        slow.theta[:], slow.price = fast.theta, fast.price


@quick
@given(constants(), st.integers(0, 99))
def test_the_budget_is_spent_and_never_exceeded_and_every_number_stays_in_its_range(c: Constants, seed: int) -> None:
    rng = np.random.default_rng(seed)
    state = duals.start(c, PassRates.start(c.num_prompts), seed)
    p, spent = rng.random(c.num_prompts), 0
    for k in range(c.rounds):
        decided = play(state, p, rng)
        spent += int(decided.executed.sum())
        assert spent + state.budget_left == c.budget and state.budget_left >= 0 and state.round == k + 1
        assert ((decided.executed >= 0) & (decided.executed <= decided.planned)).all()
        assert ((decided.planned > 0) & (decided.planned <= c.n_max)).all()
        assert decided.planned.sum() <= c.capacity
        assert len(np.unique(decided.indices)) == len(decided.indices)
        assert state.theta.min() >= 0.0 and state.theta.max() <= 1.0 and 0.0 <= state.price <= 1.0
    assert state.budget_left == 0


@pytest.mark.parametrize("seed", range(5))
def test_the_price_of_a_run_ends_where_it_began(seed: int) -> None:
    # The price steps by gamma (B_bar - sum N~) / G_B, so the sum over the rounds telescopes while no step is
    # clipped, and with the whole budget planned nothing is left of it.
    c = Constants(num_prompts=50, rounds=60, budget=1200, capacity=21, n_max=2)
    rng = np.random.default_rng(seed)
    state, planned = duals.start(c, PassRates.start(50), seed), 0
    pass_rates = rng.random(50)
    for _ in range(c.rounds):
        planned += int(play(state, pass_rates, rng).planned.sum())
        assert 0.0 < state.price < 1.0
    assert planned == c.budget
    assert state.price == pytest.approx(0.5)


@quick
@given(constants(), st.integers(0, 99))
def test_permuting_the_prompts_permutes_the_plan(c: Constants, seed: int) -> None:
    rng = np.random.default_rng(seed)
    state = duals.start(c, PassRates.start(c.num_prompts), seed)
    for _ in range(min(4, c.rounds)):
        play(state, rng.random(c.num_prompts), rng)
    moved = copy.deepcopy(state)
    order = rng.permutation(c.num_prompts)
    rates = moved.rates
    for array in (moved.theta, moved.tie, moved.log_top, moved.reach, rates.a, rates.b, rates.q):
        array[:] = array[order]
    here, there = duals.plan(state), duals.plan(moved)
    assert order[there.indices].tolist() == here.indices.tolist()
    assert there.planned.tolist() == here.planned.tolist()
    duals.advance(state, here)
    duals.advance(moved, there)
    assert moved.theta.tolist() == state.theta[order].tolist()


def test_planning_changes_nothing_and_gives_the_same_plan_again() -> None:
    state = duals.start(PUBLISHED, PassRates.start(8960), seed=3)
    before = copy.deepcopy(state)
    first, second = duals.plan(state), duals.plan(state)
    assert first.indices.tolist() == second.indices.tolist()
    assert state.theta.tolist() == before.theta.tolist() and state.price == before.price
    assert state.budget_left == before.budget_left


def test_the_tie_permutation_comes_from_the_seed_alone() -> None:
    plans = [duals.plan(duals.start(PUBLISHED, PassRates.start(8960), seed)) for seed in (1, 1, 2)]
    assert plans[0].indices.tolist() == plans[1].indices.tolist() != plans[2].indices.tolist()


# --- single rules ---------------------------------------------------------------------------------------------------


def small(theta: list[float], price: float = 0.5, **changes: int) -> Duals:
    settings = {"rounds": 16, "budget": 32, "capacity": 4, "n_max": 2} | changes
    c = Constants(num_prompts=len(theta), **settings)
    state = duals.start(c, PassRates.start(len(theta)), seed=0, price=price)
    state.theta[:] = theta
    return state


def test_largest_margins_come_first_and_no_margin_no_rollouts() -> None:
    decided = duals.plan(small([0.6, 0.5, 0.9, 0.7]))
    assert decided.indices.tolist() == [2, 3]
    assert duals.plan(small([0.5, 0.4])).indices.tolist() == []


def test_what_later_rounds_could_not_spend_goes_to_the_next_largest_margins_whatever_the_price() -> None:
    state = small([0.6, 0.8, 0.9, 0.7], price=0.75, rounds=2, budget=7, capacity=7)
    state.round = 1
    decided = duals.plan(state)
    assert (decided.indices.tolist(), decided.planned.tolist()) == ([2, 1, 3, 0], [2, 2, 2, 1])
    # The same in two parts: what the first part planned is no longer due in the second.
    first = duals.plan(state, [0, 1])
    second = duals.plan(state, [2, 3], so_far=first)
    assert first.planned.tolist() == [2, 2] and second.planned.sum() == 3


def test_what_is_due_after_rounds_with_too_few_candidates_fits_into_a_round() -> None:
    state = small([0.6, 0.8, 0.9, 0.7], price=0.75, rounds=4, budget=20, capacity=5)
    for _ in range(3):
        duals.advance(state, duals.plan(state, candidates=[0]))
    assert (duals.due(state), state.budget_left) == (14, 14)
    assert duals.plan(state).planned.sum() == 5
    first = duals.plan(state, [0, 1])
    assert first.planned.sum() + duals.plan(state, [2, 3], so_far=first).planned.sum() == 5


def test_the_last_prompt_gets_what_is_left_of_the_capacity() -> None:
    decided = duals.plan(small([0.6, 0.8, 0.9, 0.7], capacity=5))
    assert (decided.indices.tolist(), decided.planned.tolist()) == ([2, 1, 3], [2, 2, 1])


def test_a_short_budget_clips_what_is_executed_but_not_what_the_duals_see() -> None:
    state = small([0.6, 0.8, 0.9, 0.7])
    state.budget_left = 3
    decided = duals.plan(state)
    assert (decided.planned.tolist(), decided.executed.tolist()) == ([2, 2], [2, 1])
    full, clipped = copy.deepcopy(state), state
    duals.advance(clipped, decided)
    duals.advance(full, Plan(decided.indices, decided.planned, decided.planned))
    assert clipped.theta.tolist() == full.theta.tolist() and clipped.price == full.price
    assert (clipped.budget_left, full.budget_left) == (0, -1)


def test_an_empty_round_lowers_the_price_and_leaves_saturated_duals_alone() -> None:
    state = small([0.9, 0.8], price=0.95)
    decided = duals.plan(state)
    duals.advance(state, decided)
    assert len(decided.indices) == 0
    assert state.price == pytest.approx(0.95 - 0.25 * 2 / 2)
    # Both duals lie above 4 q = 2/3, so neither prompt wants anything: z* = 0.
    assert state.theta.tolist() == [0.9, 0.8]


def test_the_epoch_schedule_serves_everyone_above_the_price() -> None:
    state = small([0.6, 0.4, 0.9, 0.51], capacity=8)
    decided = duals.plan(state)
    assert sorted(decided.indices.tolist()) == [0, 2, 3] and set(decided.planned.tolist()) == {2}


def test_a_held_price_does_not_move() -> None:
    c = Constants(num_prompts=2, rounds=4, budget=8, capacity=2, n_max=2, price_moves=False)
    state = duals.start(c, PassRates.start(2), seed=0, price=0.0)
    duals.advance(state, duals.plan(state))
    assert state.price == 0.0


def test_candidates_are_the_only_ones_served_and_set_the_order() -> None:
    state = small([0.6, 0.8, 0.9, 0.7, 0.3])
    decided = duals.plan(state, candidates=[4, 0, 3, 0, 1])
    assert decided.indices.tolist() == [3, 1]
    assert duals.plan(state, candidates=[]).indices.tolist() == []


def test_a_round_planned_in_parts_keeps_to_one_capacity_one_budget_and_one_turn_each() -> None:
    state = small([0.6, 0.8, 0.9, 0.7], capacity=6)
    state.budget_left = 5
    first = duals.plan(state, candidates=[0, 2])
    second = duals.plan(state, candidates=[2, 3, 1], so_far=first)
    whole = first.joined(second)
    assert whole.indices.tolist() == [0, 2, 1]
    assert whole.planned.tolist() == [2, 2, 2] and whole.executed.tolist() == [2, 2, 1]
    assert duals.plan(state, so_far=whole).indices.tolist() == []


def test_a_candidate_that_is_no_row_is_refused() -> None:
    with pytest.raises(ValueError, match="prompt 9 is out of range"):
        duals.plan(small([0.6, 0.8]), candidates=[9])


def test_state_takes_at_most_64_bytes_a_prompt() -> None:
    assert duals.start(PUBLISHED, PassRates.start(8960), seed=0).bytes_per_prompt == 52.0


# --- selection --------------------------------------------------------------------------------------------------------


@quick
@given(
    st.lists(st.sampled_from([0.1, 0.2, 0.5, 0.9]), max_size=40),
    st.integers(0, 45),
    st.sampled_from([-1.0, 0.1, 0.3, 0.9]),
    st.integers(0, 99),
)
def test_leaders_equal_the_head_of_a_full_sort(values: list[float], count: int, floor: float, seed: int) -> None:
    ranks = np.random.default_rng(seed).permutation(len(values)).astype(np.int32)
    order = [i for i in np.lexsort((ranks, -np.array(values))) if values[i] > floor]
    assert leaders(np.array(values), ranks, floor, count).tolist() == order[:count]


@pytest.mark.parametrize("kind", ["ties", "few", "distinct", "sorted", "best where no sample looks"])
@pytest.mark.parametrize("count", [1, 66, 30_000])
def test_leaders_are_right_whatever_the_sample_of_a_large_data_set_shows(kind: str, count: int) -> None:
    rng = np.random.default_rng(0)
    m = 100_000
    values = {
        "ties": np.full(m, 0.66),
        "few": rng.integers(0, 20, m) / 20,
        "distinct": rng.random(m),
        "sorted": np.arange(m) / m,
        "best where no sample looks": np.where(np.arange(m) % 7, 0.9, 0.1),
    }[kind]
    ranks = rng.permutation(m).astype(np.int32)
    expected = np.lexsort((ranks, -values))[:count]
    assert leaders(values, ranks, 0.0, count).tolist() == expected.tolist()


# --- regret -----------------------------------------------------------------------------------------------------------


def regret(rounds: int, seed: int) -> float:
    """Lost utility against the best split in hindsight, with utilities that never change.

    In the units of the dual, R / lambda: the budget grows with the rounds, and with it the rollouts that the same
    utility stands for; measured in utility the regret would fall.
    """
    rng = np.random.default_rng(seed)
    m, pace, capacity = 64, 32, 33
    rates = PassRates.start(m)
    seen, p = rng.integers(0, 60, m), rng.random(m)
    rates.a += seen * p
    rates.b += seen * (1.0 - p)
    rates.refresh()
    c = Constants(num_prompts=m, rounds=rounds, budget=rounds * pace, capacity=capacity, n_max=2)
    state, z = duals.start(c, rates, seed), np.zeros(m, dtype=np.int64)
    for _ in range(rounds):
        decided = duals.plan(state)
        z[decided.indices] += decided.executed
        duals.advance(state, decided)
    curvature = 4.0 * rates.q / c.share
    best = greedy_optimum(curvature, c.budget, c.cap)
    return float(utility(best, curvature).sum() - utility(z, curvature).sum()) * c.share


def test_regret_with_fixed_utilities_grows_no_faster_than_the_root_of_the_rounds() -> None:
    rounds = [25, 50, 100, 200, 400, 800, 1600]
    mean = [np.mean([regret(k, seed) for seed in range(2)]) for k in rounds]
    (slope, _), covariance = np.polyfit(np.log(rounds), np.log(mean), 1, cov=True)
    assert slope <= 0.5 + np.sqrt(covariance[0, 0])
