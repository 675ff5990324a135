"""Priorities from beliefs that drift, and posterior sampling."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verl_pods_cero.core.allocators import Allocator, create_allocator
from verl_pods_cero.core.logit_beliefs import LogitBeliefs, logistic, posterior
from verl_pods_cero.core.mixed_groups import MixedGroups
from verl_pods_cero.core.prioritized import Prioritized
from verl_pods_cero.core.settings import AllocatorSettings
from verl_pods_cero.core.steps import Steps
from verl_pods_cero.core.thompson import Thompson

quick = settings(max_examples=50)
BASE = AllocatorSettings(num_prompts=40, budget=64 * 40, rounds=40, batch_prompts=8, n=8, unit=4)
RATES = np.random.default_rng(3).beta(0.4, 0.4, 40)


def run(allocator: Allocator, rounds: int, rates: np.ndarray = RATES, begin: int = 0) -> list[list[int]]:
    """Play rounds with outcomes that depend on the prompt's pass rate and the round alone."""
    served = []
    for k in range(begin, begin + rounds):
        given_out = allocator.plan()
        luck = np.random.default_rng([11, k]).random((40, 16))
        passed = luck[given_out.indices] < rates[given_out.indices, None]
        wins = (passed & (np.arange(16) < given_out.rollouts[:, None])).sum(axis=1)
        allocator.observe(given_out.indices, wins, given_out.rollouts - wins)
        allocator.advance()
        served.append(given_out.indices.tolist())
    return served


# --- beliefs -------------------------------------------------------------------------------------------------------


@quick
@given(st.floats(-8, 8), st.floats(0.05, 30), st.integers(0, 64), st.integers(0, 64))
def test_a_posterior_has_the_moments_of_prior_times_likelihood(
    mean: float, variance: float, wins: int, losses: int
) -> None:
    x = np.linspace(-70.0, 70.0, 70_001)
    log = -wins * np.logaddexp(0, -x) - losses * np.logaddexp(0, x) - (x - mean) ** 2 / (2 * variance)
    density = np.exp(log - log.max())
    density /= density.sum()
    expected = (density * x).sum()
    spread = (density * (x - expected) ** 2).sum()
    got, variances = posterior(*(np.array([float(value)]) for value in (mean, variance, wins, losses)))
    assert got[0] == pytest.approx(expected, abs=0.01 * spread**0.5)
    assert variances[0] == pytest.approx(spread, rel=0.02)


@pytest.mark.parametrize("n", [2, 8, 64])
@pytest.mark.parametrize(("mean", "sd"), [(0.0, 0.0), (1.23, 2.17), (-4.44, 0.33), (-9.0, 5.0), (2.05, 0.05)])
def test_the_table_of_mixed_groups_is_the_integral(n: int, mean: float, sd: float) -> None:
    z = np.linspace(-8.0, 8.0, 4001)
    weights = np.exp(-(z**2) / 2) / np.exp(-(z**2) / 2).sum()
    p = logistic(mean + sd * z)
    got = MixedGroups(n)(np.array([mean]), np.array([sd]))[0]
    assert got == pytest.approx(((1 - p**n - (1 - p) ** n) * weights).sum(), abs=2e-3)


def test_beyond_the_table_of_mixed_groups_its_border_counts() -> None:
    mixed = MixedGroups(8)
    assert mixed(np.array([-99.0, 99.0]), np.array([0.0, 0.0])) == pytest.approx(
        mixed(np.array([-14.0, 14.0]), np.zeros(2))
    )
    assert mixed(np.array([0.0]), np.array([50.0])) == pytest.approx(mixed(np.array([0.0]), np.array([6.0])))


def test_the_prior_and_the_common_drift_are_learnt_from_the_run() -> None:
    m, rng = 2000, np.random.default_rng(0)
    logits = rng.normal(-1.5, 2.0, m)
    beliefs = LogitBeliefs.start(m, noise=0.03)
    bias = []
    for step in range(80):
        rows, clock = np.arange(step * 100, step * 100 + 100) % m, step / 20
        truth = logistic(logits[rows] + 0.7 * clock)
        bias.append((beliefs.predict(rows, clock).pass_rate - truth).mean())
        wins = rng.binomial(8, truth).astype(float)
        beliefs.observe(rows, wins, 8 - wins, clock)
    mean, variance = beliefs.prior
    # The prior is that of first outcomes, which came half an epoch into the drift on average.
    assert mean == pytest.approx(-1.5 + 0.35, abs=0.2) and variance**0.5 == pytest.approx(2.0, abs=0.3)
    assert beliefs.drift == pytest.approx(0.7, abs=0.15)
    assert abs(np.mean(bias[60:])) < 0.02


def test_what_is_believed_of_a_prompt_grows_uncertain_with_time_and_moves_with_the_drift() -> None:
    beliefs = LogitBeliefs.start(2, noise=0.5)
    beliefs.observe(np.array([0]), np.array([4.0]), np.array([4.0]), clock=1.0)
    beliefs.drift = 1.0
    now, later = beliefs.predict(np.array([0]), 1.0), beliefs.predict(np.array([0]), 3.0)
    assert later.mean[0] - now.mean[0] == pytest.approx(2.0)
    assert later.sd[0] ** 2 - now.sd[0] ** 2 == pytest.approx(1.0)


# --- prioritized ---------------------------------------------------------------------------------------------------


def visits(focus: float, rates: np.ndarray = RATES, rounds: int = 40) -> np.ndarray:
    return np.bincount(np.concatenate(run(Prioritized(replace(BASE, focus=focus)), rounds, rates)), minlength=40)


def test_without_focus_every_prompt_is_served_equally_often() -> None:
    assert visits(0.0).tolist() == [8] * 40


def test_the_larger_the_focus_the_more_rollouts_go_to_mixed_groups_and_none_is_forgotten() -> None:
    worth = 1 - RATES**8 - (1 - RATES) ** 8
    shares = [(visits(focus) * worth).sum() / 320 for focus in (0.0, 1.0, 2.0, 4.0)]
    assert shares == sorted(shares) and shares[2] > 1.3 * shares[0]
    assert visits(2.0).min() >= 1


def test_prompts_are_met_in_proportion_to_the_power_of_their_score() -> None:
    allocator = Prioritized(replace(BASE, rounds=400, budget=64 * 400))
    served = run(allocator, 400, np.repeat([0.5, 0.1], 20))
    counts = np.bincount(np.concatenate(served[200:]), minlength=40)
    believed = allocator._weight[:20].mean() / allocator._weight[20:].mean()
    assert believed == pytest.approx((0.992 / 0.57) ** 2, rel=0.2)
    assert counts[:20].sum() / counts[20:].sum() == pytest.approx(believed, rel=0.1)


def test_prompts_that_no_one_met_come_before_those_that_were_just_met() -> None:
    served = run(Prioritized(BASE), 5)
    assert sorted(row for batch in served for row in batch) == list(range(40))


def test_priorities_follow_the_formula() -> None:
    allocator = Prioritized(BASE)
    run(allocator, 9)
    clock = 9 * 64 / (40 * 8)
    now = allocator.beliefs.predict(np.arange(40), clock)
    z = np.linspace(-8.0, 8.0, 2001)
    weights = np.exp(-(z**2) / 2) / np.exp(-(z**2) / 2).sum()
    p = logistic(now.mean[:, None] + now.sd[:, None] * z)
    priority = ((1 - p**8 - (1 - p) ** 8) @ weights) ** 2 * (clock - allocator.beliefs.clock)
    assert set(allocator.plan().indices.tolist()) == set(np.argsort(-priority)[:8].tolist())


@pytest.mark.parametrize("name", ["prioritized", "thompson"])
def test_a_pool_and_a_loader_that_brings_every_row_give_the_same_prompts(name: str) -> None:
    one, other = create_allocator(name, BASE), create_allocator(name, BASE)
    run(one, 7), run(other, 7)
    assert sorted(one.plan().indices.tolist()) == other.plan(np.arange(40)).indices.tolist()


def test_permuting_the_prompts_permutes_the_allocations() -> None:
    order = np.random.default_rng(5).permutation(40)
    straight, permuted = Prioritized(BASE), Prioritized(BASE)
    permuted._tie = straight._tie[order]
    for k in range(20):
        one, other = straight.plan(), permuted.plan()
        assert one.indices.tolist() == order[other.indices].tolist()
        wins = np.random.default_rng([2, k]).binomial(one.rollouts, RATES[one.indices])
        for allocator, rows in ((straight, one.indices), (permuted, other.indices)):
            allocator.observe(rows, wins, one.rollouts - wins)
            allocator.advance()


def test_the_last_prompt_of_a_round_or_of_the_budget_gets_what_is_left() -> None:
    allocator = Prioritized(replace(BASE, capacity=60, budget=60 + 20, rounds=2))
    assert allocator.plan().rollouts.tolist() == [8] * 7 + [4]
    allocator.advance()
    assert allocator.plan().rollouts.tolist() == [8, 8, 4]


@pytest.mark.parametrize("name", ["prioritized", "thompson"])
def test_an_epoch_has_its_even_share_so_that_there_is_something_to_choose(name: str) -> None:
    s = replace(BASE, schedule="epoch", rounds=4, budget=4 * 160, n_max=16)
    allocator = create_allocator(name, s)
    served = run(allocator, 4)
    assert [len(rows) for rows in served] == [20] * 4 and allocator.remaining == 0


def test_outcomes_of_a_prompt_that_come_in_two_parts_count_as_one_visit() -> None:
    whole, parts = Prioritized(BASE), Prioritized(BASE)
    whole.observe([3], [5], [3])
    parts.observe([3, 3], [2, 3], [2, 1])
    assert whole.beliefs.mean[3] == parts.beliefs.mean[3] != 0
    empty = Prioritized(BASE)
    empty.observe([3], [0], [0])
    assert empty.beliefs.first[0] == 0


def test_predictions_are_those_of_the_beliefs_and_judged_before_they_move() -> None:
    allocator = Prioritized(BASE)
    run(allocator, 20)
    told = allocator.predict(np.arange(40))
    assert np.abs(told - RATES).mean() < np.abs(0.5 - RATES).mean() / 2
    row = [int(np.argmax(told))]
    allocator.observe(row, [0], [8])
    allocator.advance()
    assert allocator.metrics()["calibration_mae"] == pytest.approx(told.max())
    assert {"drift", "prior_mean", "prior_sd"} <= allocator.metrics().keys()


def resumed(allocator: Allocator, name: str, s: AllocatorSettings) -> Allocator:
    fresh = create_allocator(name, s)
    fresh.load_state_dict({key: array.copy() for key, array in allocator.state_dict().items()})
    return fresh


@pytest.mark.parametrize("name", ["prioritized", "thompson"])
@pytest.mark.parametrize("schedule", ["round", "epoch"])
def test_a_run_killed_after_any_round_goes_on_bit_for_bit(name: str, schedule: str) -> None:
    s = replace(BASE, schedule=schedule, rounds=12, budget=64 * 10 + 4, batch_prompts=2, capacity=64, n=4, n_max=8)
    unbroken, broken = create_allocator(name, s), create_allocator(name, s)
    for k in range(12):
        assert run(broken, 1, begin=k) == run(unbroken, 1, begin=k)
        broken = resumed(broken, name, s)
        left, right = broken.state_dict(), unbroken.state_dict()
        assert all(left[key].tobytes() == right[key].tobytes() for key in left)
    assert broken.remaining == 0


@pytest.mark.parametrize("name", ["prioritized", "thompson"])
@pytest.mark.parametrize("schedule", ["round", "epoch"])
def test_a_run_killed_inside_a_round_takes_the_same_steps(name: str, schedule: str) -> None:
    s = replace(BASE, schedule=schedule, rounds=6, budget=6 * 64 * 2, capacity=128 if schedule == "round" else None)
    unbroken = Steps(create_allocator(name, s), s)
    broken = Steps(create_allocator(name, s), s)
    for k in range(40):
        for planner in (unbroken, broken):
            planner.prepare()
        if unbroken.exhausted:
            break
        one, other = unbroken.take(), broken.take()
        assert one.indices.tolist() == other.indices.tolist()
        assert one.rollouts.tolist() == other.rollouts.tolist()
        wins = np.random.default_rng([1, k]).binomial(one.rollouts, RATES[one.indices])
        for planner in (unbroken, broken):
            planner.observe(one.indices, wins, one.rollouts - wins)
        restored = Steps(create_allocator(name, s), s)
        restored.load_state_dict(broken.state_dict())
        broken = restored
    assert unbroken.exhausted and broken.allocator.remaining == 0


@pytest.mark.parametrize("noise", [0.0, 100.0])
@pytest.mark.parametrize("focus", [0.5, 100.0])
def test_a_long_run_on_extreme_pass_rates_stays_finite(focus: float, noise: float) -> None:
    s = replace(BASE, n=64, budget=40 * 64 * 40, batch_prompts=40, focus=focus, drift_noise=noise)
    allocator = Prioritized(s)
    for _ in range(40):
        given_out = allocator.plan()
        wins = np.where(given_out.indices % 2, given_out.rollouts, 0)
        allocator.observe(given_out.indices, wins, given_out.rollouts - wins)
        allocator.advance()
    assert all(np.isfinite(array).all() for array in allocator.state_dict().values())
    assert all(np.isfinite(value) for value in allocator.metrics().values())
    assert allocator.remaining == 0 and ((allocator.predict([0, 1]) - [0, 1]) ** 2 < 0.01).all()


# --- thompson ------------------------------------------------------------------------------------------------------


def test_posterior_sampling_prefers_prompts_that_pass_half_the_time() -> None:
    counts = np.bincount(np.concatenate(run(Thompson(replace(BASE, rho=0.5)), 40)), minlength=40)
    near = np.abs(RATES - 0.5) < 0.2
    assert counts[near].mean() > 2 * counts[~near].mean() and counts.min() >= 0


def test_posterior_sampling_draws_anew_in_every_round_and_by_the_seed() -> None:
    def first(seed: int) -> list[int]:
        return Thompson(replace(BASE, seed=seed)).plan().indices.tolist()

    assert first(1) == first(1) != first(2)
    allocator = Thompson(BASE)
    one = allocator.plan().indices.tolist()
    allocator.advance()
    assert allocator.plan().indices.tolist() != one


def test_forgetting_keeps_posterior_sampling_open_to_change() -> None:
    def spread(rho: float) -> Any:
        allocator = Thompson(replace(BASE, rho=rho))
        for _ in range(20):
            allocator.observe([0], [8], [0])
        return allocator.rates.a[0]

    assert spread(1.0) == 161.0 and spread(0.5) == pytest.approx(17.0, abs=0.01)
