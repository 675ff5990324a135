from __future__ import annotations

import sys
import types
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verl_pods_cero.core.allocators import KNOWN, Allocation, Allocator, create_allocator
from verl_pods_cero.core.budget import BudgetedAllocator
from verl_pods_cero.core.cero import Cero
from verl_pods_cero.core.greso import Greso
from verl_pods_cero.core.knapsack import fill_knapsack, group_values
from verl_pods_cero.core.settings import AllocatorSettings
from verl_pods_cero.core.walk import Walk
from verl_pods_cero.errors import OptionError
from verl_pods_cero.tools.simulation.worlds import DriftingWorld

quick = settings(max_examples=20)
NAMES = sorted(KNOWN)
PRICED = ["cero", "fixed_pacing", "random_matched"]

BASE = AllocatorSettings(num_prompts=40, budget=640, rounds=12, batch_prompts=8, n=8, unit=4)


def outcomes(given_out: Allocation, round_: int, pass_rates: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    wins = np.random.default_rng([7, round_]).binomial(given_out.rollouts, pass_rates[given_out.indices])
    return wins, given_out.rollouts - wins


def play(allocator: Allocator, round_: int, candidates: Any = None) -> Allocation:
    given_out = allocator.plan(candidates)
    wins, losses = outcomes(given_out, round_, np.linspace(0.0, 1.0, 40))
    allocator.observe(given_out.indices, wins, losses)
    allocator.advance()
    return given_out


@st.composite
def any_settings(draw: st.DrawFn) -> AllocatorSettings:
    unit = draw(st.sampled_from([2, 3, 4]))
    n = unit * draw(st.integers(1, 3))
    m, rounds = 40, draw(st.integers(1, 10))
    made = AllocatorSettings(
        num_prompts=m,
        budget=unit,
        rounds=rounds,
        batch_prompts=draw(st.integers(1, 12)),
        n=n,
        n_max=n + unit * draw(st.integers(0, 2)),
        unit=unit,
        rho=draw(st.sampled_from([0.5, 1.0])),
        schedule=draw(st.sampled_from(["round", "epoch"])),
        seed=draw(st.integers(0, 5)),
    )
    made = replace(made, capacity=draw(st.none() | st.integers(1, m * made.n_max_units).map(lambda u: u * unit)))
    return replace(made, budget=unit * draw(st.integers(1, rounds * made.capacity_units)))


# --- what holds for every allocator -------------------------------------------------------------------------------


@quick
@given(st.sampled_from(NAMES), any_settings(), st.booleans())
def test_no_allocator_exceeds_the_budget_the_batch_or_the_rollouts_of_a_prompt(
    name: str, s: AllocatorSettings, loader: bool
) -> None:
    allocator, spent = create_allocator(name, s), 0
    for k in range(s.rounds + 1):
        room = allocator.room
        rows = np.random.default_rng(k).permutation(40)[:15] if loader else None
        given_out = play(allocator, k, rows)
        spent += given_out.total
        assert given_out.total <= room <= s.capacity_units * s.unit
        assert (allocator.spent, allocator.remaining) == (spent, s.budget - spent)
        assert (given_out.rollouts > 0).all() and (given_out.rollouts <= s.n_max_units * s.unit).all()
        assert (given_out.rollouts % s.unit == 0).all()
        assert len(np.unique(given_out.indices)) == len(given_out)
        if loader:
            places = [rows.tolist().index(i) for i in given_out.indices]  # type: ignore[union-attr]
            assert places == sorted(places)
    assert spent <= s.budget and allocator.finished
    assert len(allocator.plan()) == 0 and allocator.room == 0


@settings(max_examples=300)
@given(st.sampled_from(NAMES), any_settings())
def test_exactly_the_budget_is_spent(name: str, s: AllocatorSettings) -> None:
    allocator = create_allocator(name, s)
    for k in range(s.rounds):
        play(allocator, k)
    assert allocator.remaining == 0 and allocator.finished


@pytest.mark.parametrize("name", NAMES)
def test_a_budget_beyond_n_for_every_prompt_is_spent_too(name: str) -> None:
    for s in (
        replace(BASE, schedule="epoch", rounds=1, n_max=16, budget=40 * 16),
        replace(BASE, rounds=2, capacity=40 * 12, n_max=16, budget=2 * 40 * 12),
    ):
        allocator = create_allocator(name, s)
        given_out = [play(allocator, k) for k in range(s.rounds)]
        assert sum(part.total for part in given_out) == s.budget
        assert max(part.rollouts.max() for part in given_out) <= 16


@pytest.mark.parametrize("name", NAMES)
def test_rounds_with_too_few_candidates_do_not_swell_a_later_one(name: str) -> None:
    s = AllocatorSettings(num_prompts=40, budget=32 * 20, rounds=20, batch_prompts=4, n=8)
    allocator = create_allocator(name, s)
    for k in range(12):
        assert play(allocator, k, [0]).total <= 8
    assert allocator.room == 32
    assert play(allocator, 12).total == 32


@quick
@given(st.sampled_from(NAMES), any_settings())
def test_a_seed_decides_the_whole_run(name: str, s: AllocatorSettings) -> None:
    first, second = create_allocator(name, s), create_allocator(name, s)
    for k in range(s.rounds):
        one, other = play(first, k), play(second, k)
        assert one.indices.tolist() == other.indices.tolist() and one.rollouts.tolist() == other.rollouts.tolist()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("loader", [False, True])
@pytest.mark.parametrize("stop", ["between rounds", "before the outcomes", "between two parts of a round"])
def test_a_resumed_run_hands_out_what_the_unbroken_run_does(name: str, loader: bool, stop: str) -> None:
    s = replace(BASE, n=4, n_max=8, batch_prompts=14)

    def rows(k: int, part: int) -> Any:
        return np.random.default_rng([k, part]).permutation(40)[:7] if loader else None

    def one_round(allocator: Allocator, k: int, resume: bool) -> tuple[list[Any], Allocator]:
        handed = [allocator.plan(rows(k, 0))]
        if resume and stop == "between two parts of a round":
            allocator = resumed(allocator)
        handed.append(allocator.plan(rows(k, 1)))
        if resume and stop == "before the outcomes":
            allocator = resumed(allocator)
        for given_out in handed:
            allocator.observe(given_out.indices, *outcomes(given_out, k, np.linspace(0.0, 1.0, 40)))
        allocator.advance()
        if resume and stop == "between rounds":
            allocator = resumed(allocator)
        return [(h.indices.tolist(), h.rollouts.tolist()) for h in handed], allocator

    def resumed(allocator: Allocator) -> Allocator:
        fresh = create_allocator(name, s)
        fresh.load_state_dict(allocator.state_dict())
        return fresh

    unbroken, broken = create_allocator(name, s), create_allocator(name, s)
    for k in range(s.rounds):
        expected, unbroken = one_round(unbroken, k, resume=False)
        handed, broken = one_round(broken, k, resume=True)
        assert handed == expected
    assert broken.metrics()["spent"] == unbroken.metrics()["spent"] > 0


@pytest.mark.parametrize("name", NAMES)
def test_a_state_is_plain_arrays_that_later_rounds_do_not_change(name: str) -> None:
    allocator = create_allocator(name, BASE)
    play(allocator, 0)
    state = allocator.state_dict()
    copies = {key: array.copy() for key, array in state.items()}
    play(allocator, 1)
    for key, array in state.items():
        assert isinstance(array, np.ndarray) and not array.dtype.hasobject
        assert np.array_equal(array, copies[key])


@pytest.mark.parametrize("name", NAMES)
def test_a_state_of_another_size_or_allocator_or_with_impossible_values_is_refused(name: str) -> None:
    allocator = create_allocator(name, BASE)
    state = allocator.state_dict()
    with pytest.raises(ValueError, match=r"another data set or allocator"):
        create_allocator(name, replace(BASE, num_prompts=41)).load_state_dict(state)
    with pytest.raises(ValueError, match="lacks array 'a'"):
        allocator.load_state_dict({key: array for key, array in state.items() if key != "a"})
    with pytest.raises(ValueError, match="unknown array 'zeta'"):
        allocator.load_state_dict(state | {"zeta": np.zeros(1)})
    with pytest.raises(ValueError, match="not positive"):
        allocator.load_state_dict(state | {"a": np.zeros(40)})
    with pytest.raises(ValueError, match="outside the budget of 160"):
        allocator.load_state_dict(state | {"spent": np.array(161)})


@pytest.mark.parametrize("name", NAMES)
def test_metrics_are_finite_numbers_about_the_round_just_closed(name: str) -> None:
    allocator = create_allocator(name, BASE)
    before = allocator.metrics()
    assert before["prompts"] == before["rollouts"] == before["round"] == 0.0
    assert "calibration_mae" not in before and "effective_groups" not in before
    given_out = allocator.plan()
    n = given_out.rollouts
    allocator.observe(given_out.indices, n, np.zeros(len(n)))
    allocator.advance()
    after = allocator.metrics()
    assert all(isinstance(v, float) and np.isfinite(v) for v in after.values())
    assert (after["prompts"], after["rollouts"]) == (len(given_out), given_out.total)
    assert (after["spent"], after["remaining"]) == (given_out.total, 640 - given_out.total)
    # Every prompt was thought to pass half the time, and always passed.
    assert after["calibration_mae"] == pytest.approx(0.5, abs=1e-12)
    assert after["calibration_brier"] == pytest.approx(0.25, abs=1e-12)
    assert after["effective_groups"] == 0.0
    assert after["exposures_p10"] <= after["exposures_p50"] <= after["exposures_p90"]


@pytest.mark.parametrize("name", NAMES)
def test_a_row_outside_the_data_set_is_refused(name: str) -> None:
    allocator = create_allocator(name, BASE)
    with pytest.raises(ValueError, match="prompt 40 is out of range"):
        allocator.plan([40])
    with pytest.raises(ValueError, match="prompt 41 is out of range"):
        allocator.observe([41], [1], [0])


# --- each allocator -------------------------------------------------------------------------------------------------


def test_uniform_changes_nothing_about_a_plain_run() -> None:
    allocator = create_allocator("uniform", replace(BASE, budget=8 * 8 * 12))
    rng = np.random.default_rng(0)
    for k in range(12):
        batch = rng.permutation(40)[:8]
        given_out = play(allocator, k, batch)
        assert given_out.indices.tolist() == batch.tolist()
        assert given_out.rollouts.tolist() == [8] * 8
    assert allocator.finished and allocator.remaining == 0


def test_uniform_serves_a_row_as_often_as_the_loader_brings_it() -> None:
    given_out = create_allocator("uniform", BASE).plan([3, 3, 5])
    assert given_out.indices.tolist() == [3, 3, 5]


def test_a_batch_is_filled_over_several_pulls() -> None:
    allocator = create_allocator("uniform", BASE)
    assert allocator.room == 64
    allocator.plan([0, 1, 2, 3, 4])
    assert allocator.room == 24
    assert allocator.plan([5, 6, 7, 8]).indices.tolist() == [5, 6, 7]
    assert allocator.room == 0 and len(allocator.plan([9])) == 0


def test_cero_matches_its_duals_in_memory_and_prices() -> None:
    allocator = create_allocator("cero", BASE)
    assert isinstance(allocator, Cero)
    assert allocator.bytes_per_prompt == 56.0
    play(allocator, 0)
    metrics = allocator.metrics()
    assert 0.0 <= metrics["theta_p10"] <= metrics["theta_p90"] <= 1.0 and 0.0 <= metrics["price"] <= 1.0


def test_fixed_pacing_keeps_its_price_at_zero_and_so_has_no_empty_round() -> None:
    allocator = create_allocator("fixed_pacing", BASE)
    sizes = [play(allocator, k).total for k in range(12)]
    assert allocator.metrics()["price"] == 0.0
    assert sizes == [64] * 10 + [0, 0]


def test_at_the_published_scale_the_control_has_the_rounds_of_cero_and_fewer_groups_that_teach() -> None:
    s = AllocatorSettings(num_prompts=8960, budget=256_000, rounds=500, batch_prompts=66, n=8, unit=4)
    world = DriftingWorld.drawn(s.num_prompts, seed=1)
    effective, empty = {}, {}
    for name in ("cero", "random_matched"):
        allocator, rng = create_allocator(name, s), np.random.default_rng(0)
        mixed = groups = 0
        for k in range(s.rounds):
            given_out = allocator.plan()
            pass_rates = world.pass_rates(k / s.rounds, given_out.indices)
            wins = (rng.random((len(given_out), 8)) < pass_rates[:, None]).sum(axis=1)
            wins = wins * given_out.rollouts // 8
            allocator.observe(given_out.indices, wins, given_out.rollouts - wins)
            allocator.advance()
            mixed += int(((wins > 0) & (wins < given_out.rollouts)).sum())
            groups += len(given_out)
        effective[name], empty[name] = mixed / groups, allocator.metrics()["empty_rounds"]
        assert allocator.remaining == 0
    assert min(empty.values()) >= 10 and max(empty.values()) <= 16
    # Published: 57.3 % and 52.7 %.
    assert effective["cero"] == pytest.approx(0.573, abs=0.02)
    assert effective["random_matched"] == pytest.approx(0.527, abs=0.02)


def test_random_matched_serves_other_prompts_than_cero_would() -> None:
    settings_ = replace(BASE, batch_prompts=10)
    plans = [create_allocator(name, settings_).plan() for name in ("cero", "random_matched")]
    assert plans[0].rollouts.tolist() == plans[1].rollouts.tolist()
    assert set(plans[0].indices) != set(plans[1].indices)


def test_random_matched_draws_by_seed_and_evenly() -> None:
    def first_draws(seed: int) -> list[int]:
        return create_allocator("random_matched", replace(BASE, seed=seed)).plan().indices.tolist()

    assert first_draws(1) == first_draws(1) != first_draws(2)
    drawn = np.bincount(np.concatenate([first_draws(seed) for seed in range(200)]), minlength=40)
    assert drawn.sum() == 1600 and drawn.min() > 15 and drawn.max() < 70


def test_greedy_marginal_prefers_the_uncertain_and_the_less_served_at_an_even_pace() -> None:
    allocator = create_allocator("greedy_marginal", replace(BASE, budget=480, batch_prompts=10))
    allocator.observe(np.arange(15), np.full(15, 60), np.zeros(15))
    first = allocator.plan()
    allocator.advance()
    second = allocator.plan()
    assert first.total == second.total == 40
    assert min(first.indices) >= 15 and min(second.indices) >= 15
    assert set(first.indices).isdisjoint(second.indices)


def test_knapsack_moves_rollouts_from_settled_prompts_to_those_that_teach() -> None:
    s = replace(BASE, n=8, n_max=16, batch_prompts=4, budget=320)
    allocator = create_allocator("knapsack", s)
    allocator.observe([0, 1, 2, 3], [60, 0, 3, 2], [0, 60, 3, 60])
    given_out = allocator.plan([0, 1, 2, 3])
    assert (given_out.indices.tolist(), given_out.rollouts.tolist()) == ([2, 3], [16, 16])


@quick
@given(
    st.lists(st.tuples(st.floats(0.5, 50.0), st.floats(0.5, 50.0)), min_size=1, max_size=4),
    st.integers(1, 4),
    st.integers(0, 8),
    st.integers(2, 4),
)
def test_the_knapsack_is_solved_exactly(counts: list[tuple[float, float]], cap: int, total: int, unit: int) -> None:
    total = min(total, cap * len(counts))
    a, b = np.array(counts).T
    values = group_values(a, b, cap, unit)
    k = fill_knapsack(values, total)
    grid = np.indices((cap + 1,) * len(counts)).reshape(len(counts), -1).T

    def worth(split: np.ndarray) -> Any:
        return np.take_along_axis(values, np.atleast_2d(split).T, axis=1).sum(axis=0)

    assert k.sum() == total and k.min() >= 0 and k.max() <= cap
    assert worth(k)[0] == pytest.approx(worth(grid[grid.sum(axis=1) == total]).max(), abs=1e-12)


def test_the_value_of_a_group_is_the_published_one_where_the_pass_rate_is_known() -> None:
    p, size = np.array([0.1, 0.5, 0.9]), 10.0**9
    values = group_values(p * size, (1 - p) * size, cap=3, unit=4)
    for k in (0, 4, 8, 12):
        published = p * (1 - p) ** 2 * (1 - p**k - (1 - p) ** k) if k else np.zeros(3)
        assert values[:, k // 4] == pytest.approx(published, abs=1e-7)


def test_the_value_of_a_group_averages_over_what_the_pass_rate_may_be() -> None:
    p = np.linspace(0.0, 1.0, 100_001)
    density = p**2 * (1 - p)
    mixed = (density * (1 - p**8 - (1 - p) ** 8)).sum() / density.sum()
    assert group_values(np.array([3.0]), np.array([2.0]), cap=2, unit=4)[0, 2] == pytest.approx(0.6 * 0.4**2 * mixed)


def test_greso_skips_a_prompt_more_surely_the_longer_it_gave_no_signal() -> None:
    skipped = {}
    for streak in (0, 1, 6):
        allocator = Greso(replace(BASE, budget=640 * 3, rounds=60))
        for _ in range(streak):
            allocator.observe([5], [8], [0])
        kept = 0
        for _ in range(40):
            kept += len(allocator.plan([5]))
            allocator.advance()
        skipped[streak] = 40 - kept
    assert skipped[0] == 0 < skipped[1] < skipped[6]


def test_greso_streaks_end_with_a_mixed_group_and_exploration_adjusts() -> None:
    allocator = Greso(BASE)
    allocator.observe([0, 1, 2], [8, 0, 4], [0, 8, 4])
    allocator.observe([0, 1], [8, 0], [0, 8])
    assert allocator.streak[:3].tolist() == [2, -2, 0]
    allocator.observe([0], [0], [8])
    assert allocator.streak[0] == -3
    allocator.observe([0, 1], [1, 1], [7, 7])
    assert not allocator.streak.any()
    allocator.advance()
    # 2 of 8 groups all passed (at least 1/12), 3 of 8 all failed (at least 1/6): explore both less.
    metrics = allocator.metrics()
    assert metrics["explore_easy"] == pytest.approx(0.49) and metrics["explore_hard"] == pytest.approx(0.49)
    allocator.observe([3], [1], [7])
    allocator.advance()
    assert allocator.metrics()["explore_easy"] == pytest.approx(0.5)


def test_greso_fills_the_batch_with_skipped_prompts_when_a_whole_pass_keeps_too_few() -> None:
    allocator = Greso(BASE)
    for _ in range(30):
        allocator.observe(np.arange(40), np.zeros(40), np.full(40, 8))
    assert allocator.plan().total == 64


def test_a_walk_meets_every_row_once_a_pass_and_continues_where_it_was() -> None:
    walk = Walk(10, seed=4)
    met: list[int] = []
    for _ in range(10):
        rows = walk.next_rows(4)
        assert len(set(rows.tolist())) == 4
        walk.step_past(int(rows[-1]))
        met += rows.tolist()
        again = Walk(10, seed=4)
        again.visited = walk.visited
        assert again.next_rows(10).tolist() == walk.next_rows(10).tolist()
    assert np.bincount(met).min() >= 3


# --- names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_every_known_name_builds_an_allocator(name: str) -> None:
    assert create_allocator(name, BASE).remaining == 640


def test_an_unknown_name_is_refused_with_the_nearest_known_one() -> None:
    with pytest.raises(ValueError, match=r"^name must be a known name .*got 'cerro'\. Fix: did you mean 'cero'"):
        create_allocator("cerro", BASE)


def test_an_allocator_of_ones_own_is_found_by_its_path(monkeypatch: pytest.MonkeyPatch) -> None:
    class FirstCome(BudgetedAllocator):
        def _choose(self, candidates: Any) -> Any:
            rows = np.arange(2) if candidates is None else candidates[:2]
            return rows, np.ones(len(rows), dtype=np.int64)

    class Half:
        def __init__(self, settings: AllocatorSettings) -> None: ...
        def plan(self, candidates: Any = None) -> None: ...

    module = types.ModuleType("my_allocators")
    module.FirstCome = FirstCome  # type: ignore[attr-defined]
    module.Half = Half  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "my_allocators", module)
    allocator = create_allocator("my_allocators:FirstCome", BASE)
    assert allocator.plan([7, 8, 9]).indices.tolist() == [7, 8]
    with pytest.raises(OptionError, match=r"lacks advance, finished, load_state_dict.* got 'my_allocators:Half'\. Fix"):
        create_allocator("my_allocators:Half", BASE)
    with pytest.raises(ValueError, match=r"^name .*'my_allocators:Second'"):
        create_allocator("my_allocators:Second", BASE)


@pytest.mark.parametrize("name", ["no_such_module:Class", ":Class", "verl_pods_cero.core.cero:"])
def test_a_path_that_leads_nowhere_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"^name must name a class that can be imported"):
        create_allocator(name, BASE)


# --- settings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"num_prompts": 0}, "num_prompts must be a whole number, at least 1, got 0"),
        ({"budget": 0}, "budget must be a whole number, at least 1, got 0"),
        (
            {"budget": 642},
            r"budget must be a multiple of unit \(4\), got 642. Fix: use 640 or 644",
        ),
        ({"budget": 2}, "budget must be a multiple .* got 2. Fix: use 4"),
        ({"budget": 772}, r"budget must be at most rounds \* capacity \(12 \* 64 = 768\), got 772. Fix: use 768"),
        ({"rounds": 0}, "rounds must be a whole number, at least 1, got 0"),
        ({"rounds": 2.5}, "rounds must be a whole number, at least 1, got 2.5"),
        ({"rounds": True}, "rounds must be a whole number, at least 1, got True"),
        ({"batch_prompts": 41}, r"batch_prompts must be at most num_prompts \(40\)"),
        ({"n": 6}, "n must be a multiple"),
        ({"n_max": 4}, r"n_max must be at least n \(8\), got 4"),
        ({"n_max": 10}, "n_max must be a multiple"),
        ({"n_max": -8}, "n_max must be a whole number, at least 1, got -8"),
        ({"unit": 1}, "unit must be at least 2 .* got 1"),
        ({"unit": 0}, "unit must be a whole number, at least 1, got 0"),
        ({"capacity": 30}, "capacity must be a multiple"),
        ({"capacity": 328}, r"capacity must be at most num_prompts \* n_max \(320\)"),
        ({"rho": 1.5}, "rho must lie between 0 and 1, got 1.5"),
        ({"rho": float("nan")}, "rho must lie between 0 and 1, got nan"),
        ({"rho": "high"}, "rho must be a number, got 'high'"),
        ({"price": -0.1}, "price must lie between 0 and 1, got -0.1"),
        ({"lam": 0.0}, "lam must be positive and finite, got 0.0"),
        ({"lam": float("inf")}, "lam must be positive and finite, got inf"),
        ({"prior_successes": 0}, "prior_successes must be positive and finite, got 0"),
        ({"prior_failures": -1.0}, "prior_failures must be positive and finite, got -1.0"),
        ({"focus": -0.5}, "focus must lie between 0 and 100, got -0.5"),
        ({"focus": float("inf")}, "focus must lie between 0 and 100, got inf"),
        ({"drift_noise": -0.01}, "drift_noise must lie between 0 and 100, got -0.01"),
        ({"drift_noise": True}, "drift_noise must be a number, got True"),
        ({"schedule": "rounds"}, "schedule must be one of round, epoch, got 'rounds'. Fix: did you mean 'round'?"),
        ({"seed": -1}, "seed must be a whole number, at least 0, got -1"),
    ],
)
def test_a_setting_that_breaks_a_rule_is_refused_by_name_with_a_way_out(
    changes: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(OptionError, match="^" + complaint.replace("?", r"\?")):
        replace(BASE, **changes)


def test_numpy_integers_are_whole_numbers_too() -> None:
    s = replace(BASE, num_prompts=np.int64(40), rho=np.float32(0.5))
    assert type(s.num_prompts) is int and s.as_dict()["num_prompts"] == 40


def test_capacity_follows_the_schedule_unless_given() -> None:
    assert replace(BASE, n_max=12).capacity_units == 16
    assert replace(BASE, n_max=12, schedule="epoch").capacity_units == 120
    assert replace(BASE, capacity=56).capacity_units == 14


@pytest.mark.parametrize(
    ("given", "budget", "rounds", "unit", "n_max"),
    [
        ({"steps": 25}, 2000, 25, 4, 8),
        ({"epochs": 3}, 2400, 30, 4, 8),
        ({"steps": 25, "epochs": 99}, 2000, 25, 4, 8),
        ({"steps": 25, "schedule": "epoch"}, 2000, 3, 4, 8),
        ({"epochs": 3, "schedule": "epoch"}, 2400, 3, 4, 8),
        ({"steps": 25, "n": 6}, 1500, 25, 6, 6),
        ({"steps": 25, "n": 6, "n_max": 9}, 1500, 25, 3, 9),
        ({"steps": 25, "n_max": 12}, 2000, 25, 4, 12),
        ({"steps": 25, "unit": 8, "budget": 800, "rounds": 20}, 800, 20, 8, 8),
    ],
)
def test_sizes_that_are_not_given_follow_from_a_plain_run(
    given: dict[str, Any], budget: int, rounds: int, unit: int, n_max: int
) -> None:
    s = AllocatorSettings.of_run(**{"num_prompts": 100, "batch_prompts": 10, "n": 8, "seed": 3, **given})
    assert (s.budget, s.rounds, s.unit, s.n_max, s.seed) == (budget, rounds, unit, n_max, 3)


def test_a_batch_of_more_prompts_than_there_are_is_refused_and_not_cut() -> None:
    with pytest.raises(OptionError, match=r"^batch_prompts must be at most num_prompts \(5\), got 10"):
        AllocatorSettings.of_run(num_prompts=5, batch_prompts=10, n=8, steps=2)


def test_an_allocator_whose_constructor_fails_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("my_allocators")
    module.Broken = lambda settings: settings.absent  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "my_allocators", module)
    with pytest.raises(OptionError, match=r"^name must name a class that can be built \(AttributeError: .*absent.*\)"):
        create_allocator("my_allocators:Broken", BASE)
