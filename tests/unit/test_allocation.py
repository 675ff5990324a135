"""Rounds of an allocator become steps of a trainer, and outcomes find their way back."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

from tests.unit.test_rollouts import make_rollouts
from verl_pods_cero.core.allocators import KNOWN, Allocation, create_allocator, resolve_allocator
from verl_pods_cero.core.cero import Cero
from verl_pods_cero.core.settings import AllocatorSettings
from verl_pods_cero.core.steps import Steps, group_sizes, most_steps
from verl_pods_cero.errors import OptionError
from verl_pods_cero.hooks.prompts import new_uid, outcome_counts, successes
from verl_pods_cero.options.allocator import allocator_settings
from verl_pods_cero.options.checks import validate
from verl_pods_cero.options.names import ALLOCATOR_NAMES, FILTER_NAMES
from verl_pods_cero.options.schema import AllocatorOptions

ALLOCATOR = "pods_cero.allocator."


class OwnCero(Cero):
    """CERO by another name."""


class Own:
    """One that says nothing of its groups."""


def make_planner(name: str = "cero", loader: bool = False, **overrides: object) -> Steps:
    values = {"num_prompts": 32, "budget": 8 * 8 * 8, "rounds": 10, "batch_prompts": 8, "n": 8, "unit": 4}
    settings = AllocatorSettings(**{**values, **overrides})
    stream = iter(np.arange(10**6).reshape(-1, 8) % 32)
    return Steps(create_allocator(name, settings), settings, (lambda: next(stream)) if loader else None)


def play(planner: Steps, seed: int = 0, steps: int = 10**6) -> list[Allocation]:
    """Run to the end of the budget on fixed pass rates."""
    taken = []
    rates = np.random.default_rng(seed).beta(0.5, 0.5, planner.settings.num_prompts)
    planner.prepare()
    while not planner.exhausted and len(taken) < steps:
        last = planner.last
        step = planner.take()
        taken.append(step)
        rng = np.random.default_rng([seed, len(taken)])
        wins = rng.binomial(step.rollouts, rates[step.indices])
        planner.observe(step.indices, wins, step.rollouts - wins)
        planner.prepare()
        assert not (last and not planner.exhausted), "a last step is followed by none"
    return taken


@pytest.mark.parametrize("name", ["cero", "uniform", "random_matched", "greso", "knapsack", "prioritized", "thompson"])
@pytest.mark.parametrize("loader", [False, True], ids=["pool", "loader"])
def test_a_run_ends_and_never_overspends(name, loader):
    planner = make_planner(name, loader)
    steps = play(planner)
    assert sum(step.total for step in steps) == planner.allocator.spent
    # Of the loader's prompts CERO and GRESO may find too few that they want; any row will do where they may choose.
    if loader and name in ("cero", "random_matched", "greso"):
        assert planner.allocator.spent <= planner.settings.budget
    else:
        assert planner.allocator.remaining == 0
    assert len(steps) <= most_steps(planner.settings)
    assert all(len(step) for step in steps), "no step without a prompt"


@pytest.mark.parametrize("name", sorted(KNOWN))
@pytest.mark.parametrize("schedule", ["round", "epoch"])
def test_a_run_ends_within_the_steps_that_the_learning_rate_is_laid_over(name, schedule):
    settings = AllocatorSettings(
        num_prompts=30,
        budget=20 * 6 * 8,
        rounds=4 if schedule == "epoch" else 20,
        batch_prompts=6,
        n=8,
        n_max=12,
        schedule=schedule,
    )
    steps = play(Steps(create_allocator(name, settings), settings))
    assert len(steps) <= most_steps(settings, group_sizes(name, settings)[0]) <= most_steps(settings)


def test_an_allocator_of_ones_own_says_its_group_sizes_or_inherits_them():
    settings = AllocatorSettings(num_prompts=8, budget=64, rounds=4, batch_prompts=2, n=8, n_max=16, unit=4)
    assert group_sizes("tests.unit.test_allocation:OwnCero", settings) == (16, 16)
    assert group_sizes("tests.unit.test_allocation:Own", settings) == (4, 16)
    assert {name: group_sizes(name, settings) for name in ("uniform", "knapsack")} == {
        "uniform": (8, 8),
        "knapsack": (4, 16),
    }


def test_an_allocator_that_cannot_be_built_is_refused():
    with pytest.raises(OptionError, match=r"^name must name a class that can be built"):
        create_allocator("tests.unit.test_allocation:Own", AllocatorSettings(8, 64, 4, 2))


def test_more_prompts_than_were_planned_are_refused():
    planner = make_planner("uniform")
    planner.prepare()
    planner.take()
    with pytest.raises(RuntimeError, match="does not refill"):
        planner.take()


def test_uniform_over_the_loader_is_plain_grpo_in_verls_order():
    steps = play(make_planner("uniform", loader=True, rounds=8))
    assert [step.indices.tolist() for step in steps] == [
        [(8 * number + i) % 32 for i in range(8)] for number in range(8)
    ]
    assert all((step.rollouts == 8).all() for step in steps)


def test_empty_rounds_take_no_step_and_move_the_price():
    planner = make_planner(price=1.0, rounds=40)
    planner.prepare()
    assert planner.allocator.empty_rounds > 0
    assert planner.take().total > 0


def test_rounds_without_a_taker_end_the_run_and_do_not_circle():
    planner = make_planner(price=1.0, rounds=3, budget=64, lam=1e-6)
    planner.prepare()
    if not planner.exhausted:
        play(planner)
    assert planner.exhausted
    with pytest.raises(RuntimeError, match="no step is left"):
        planner.take()


@pytest.mark.parametrize("name", ["cero", "greso", "knapsack", "prioritized", "random_matched", "thompson"])
def test_a_row_is_served_once_a_round_where_the_loader_begins_anew(name):
    stream = iter(np.arange(10**6).reshape(-1, 8) % 20)
    settings = AllocatorSettings(num_prompts=20, budget=8 * 8 * 8, rounds=12, batch_prompts=8, n=8, unit=4)
    planner = Steps(create_allocator(name, settings), settings, lambda: next(stream))
    for step in play(planner):
        assert len(set(step.indices.tolist())) == len(step)
        assert step.rollouts.max() <= 8


def test_an_allocator_that_never_finishes_ends_with_the_rounds():
    class Idle:
        finished, remaining, room, spent = False, 8, 0, 0

        def plan(self, _candidates=None):
            return Allocation.empty()

        def advance(self):
            pass

    planner = Steps(Idle(), make_planner().settings)
    planner.prepare()
    assert planner.exhausted


@pytest.mark.parametrize("option", ["budget", "rounds", "n_max", "unit"])
def test_a_zero_is_refused_and_not_taken_for_a_default(configure, option):
    config = configure(**{"trainer.total_training_steps": 10})
    with pytest.raises(ValueError, match=rf"pods_cero\.allocator\.{option}"):
        allocator_settings(config, AllocatorOptions(enable=True, **{option: 0}), num_prompts=64)


def test_a_round_of_an_epoch_is_split_into_batches_that_mix_the_data():
    planner = make_planner(schedule="epoch", rounds=2, budget=2 * 32 * 8)
    planner.prepare()
    sizes, rows = [], []
    for _ in range(4):
        step = planner.take()
        sizes.append(len(step))
        rows.extend(step.indices.tolist())
        planner.observe(step.indices, step.rollouts // 2, step.rollouts // 2)
        planner.prepare()
    assert sizes == [8, 8, 8, 8]
    assert sorted(rows) == list(range(32))
    assert rows != sorted(rows)


@pytest.mark.parametrize("schedule", ["round", "epoch"])
@pytest.mark.parametrize("stop", [1, 3])
def test_a_restored_planner_takes_the_steps_of_an_uninterrupted_one(schedule, stop):
    sizes = {"schedule": schedule, **({"rounds": 3} if schedule == "epoch" else {})}
    whole = play(make_planner(**sizes))
    first = make_planner(**sizes)
    rates = np.random.default_rng(0).beta(0.5, 0.5, 32)
    second = make_planner(**sizes)
    for number in range(1, len(whole) + 1):
        planner = first if number <= stop else second
        if number == stop + 1:
            second.load_state_dict(first.state_dict())
        planner.prepare()
        step = planner.take()
        assert step.indices.tolist() == whole[number - 1].indices.tolist()
        assert step.rollouts.tolist() == whole[number - 1].rollouts.tolist()
        wins = np.random.default_rng([0, number]).binomial(step.rollouts, rates[step.indices])
        planner.observe(step.indices, wins, step.rollouts - wins)


def test_the_budget_is_what_plain_grpo_would_spend_unless_given(configure):
    config = configure(**{"trainer.total_training_steps": 10})
    settings = allocator_settings(config, AllocatorOptions(enable=True), num_prompts=64)
    assert (settings.budget, settings.rounds, settings.unit) == (10 * 16 * 8, 10, 4)
    given = allocator_settings(config, AllocatorOptions(enable=True, budget=640, unit=2), num_prompts=64)
    assert (given.budget, given.unit) == (640, 2)
    epoch = allocator_settings(config, AllocatorOptions(enable=True, schedule="epoch"), num_prompts=64)
    assert epoch.rounds == 3


def test_outcomes_are_counted_by_row_of_the_data_set():
    rollouts = make_rollouts({new_uid(7): [1.0, 0.0, 1.0], new_uid(3): [0.0, 0.0]})
    rows, wins, losses = outcome_counts(rollouts, successes(rollouts, AllocatorOptions()))
    assert rows.tolist() == [7, 3]
    assert wins.tolist() == [2, 0]
    assert losses.tolist() == [1, 2]


def test_a_shaped_score_is_no_outcome_without_a_threshold():
    rollouts = make_rollouts({"p": [1.0, 0.0]})
    rollouts.values["acc"][:] = [0.3, 1.2]
    with pytest.raises(OptionError, match=r"success_threshold must be given, since acc is no outcome.*0\.3"):
        successes(rollouts, AllocatorOptions())
    assert successes(rollouts, AllocatorOptions(success_threshold=1.0)).tolist() == [False, True]


def test_a_rounding_error_below_the_threshold_is_a_success_all_the_same():
    rollouts = make_rollouts({"p": [1.0, 0.0, 1.0]})
    rollouts.values["acc"][:] = [0.8 - 1e-12, 0.8, 0.79]
    passed = successes(rollouts, AllocatorOptions(success_threshold=0.8), tolerance=1e-6)
    assert passed.tolist() == [True, True, False]
    rollouts.values["acc"][:] = [1.0 - 1e-12, 1e-12, -1.0]
    assert successes(rollouts, AllocatorOptions(), tolerance=1e-6).tolist() == [True, False, False]


BAD = [
    ("unknown allocator", {"name": "crro"}, ["pods_cero.allocator.name", "'cero'"]),
    ("unknown schedule", {"schedule": "rounds"}, ["pods_cero.allocator.schedule", "'round'"]),
    ("unknown candidates", {"candidates": "pol"}, ["pods_cero.allocator.candidates", "'pool'"]),
    ("epoch of a loader", {"schedule": "epoch", "candidates": "loader"}, ["candidates", "schedule=epoch"]),
    ("shaped success", {"success_key": "reward"}, ["pods_cero.allocator.success_key", "success_threshold"]),
    ("ragged unit", {"unit": 3}, ["actor_rollout_ref.rollout.n must be a multiple of pods_cero.allocator.unit (3)"]),
    (
        "few rollouts",
        {"n_max": 4},
        ["pods_cero.allocator.n_max must be at least actor_rollout_ref.rollout.n (8), got 4"],
    ),
    ("no class", {"name": "nowhere:Class"}, ["pods_cero.allocator.name must name a class that can be imported"]),
    (
        "budget beyond reach",
        {"budget": 10**6, "rounds": 1},
        ["pods_cero.allocator.budget", "1000000", "raise pods_cero.allocator.rounds or data."],
    ),
    ("bad rho", {"rho": 1.5}, ["pods_cero.allocator.rho", "1.5"]),
]


@pytest.mark.parametrize(("options", "words"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_bad_allocator_options_are_refused_before_ray_starts(configure, options, words):
    named = {ALLOCATOR + name: value for name, value in options.items()}
    sizes = {"data.train_batch_size": 4, "actor_rollout_ref.actor.ppo_mini_batch_size": 2}
    config = configure(**{ALLOCATOR + "enable": True, "trainer.total_training_steps": 2, **sizes, **named})
    with pytest.raises(ValueError, match=r"(?s).*") as caught:
        validate(config, use_critic=False, use_reference=False)
    for word in words:
        assert word in str(caught.value)


def test_an_unknown_allocator_is_refused_where_the_rows_cannot_be_counted(configure):
    remote = {"data.train_files": "s3://bucket/train.parquet", ALLOCATOR + "enable": True}
    validate(configure(**remote), use_critic=False, use_reference=False)
    with pytest.raises(OptionError, match=r"pods_cero\.allocator\.name.*'cero'"):
        validate(configure(**remote, **{ALLOCATOR + "name": "crro"}), use_critic=False, use_reference=False)


@pytest.mark.parametrize(
    "option",
    ["algorithm.filter_groups.enable", "trainer.v1.sampler.sync_refill_failed_groups", "skip.rollout_tq.enable"],
)
def test_rollouts_outside_the_plan_are_refused(configure, option):
    config = configure(**{ALLOCATOR + "enable": True, option: True})
    with pytest.raises(OptionError, match=f"{option}.*budget"):
        validate(config, use_critic=False, use_reference=False)


def test_every_field_of_the_core_has_the_users_name():
    assert {each.name for each in fields(AllocatorSettings)} | {"name"} <= ALLOCATOR_NAMES.keys()
    assert {"keep", "keep_fraction", "rule"} <= FILTER_NAMES.keys()
    named = {**ALLOCATOR_NAMES, **FILTER_NAMES}.values()
    assert all(
        name.startswith(("pods_cero.", "data.", "trainer.", "actor_rollout_ref.", "the number of rows"))
        for name in named
    )


@pytest.mark.parametrize("name", [name for name in KNOWN if name != "knapsack"])  # which needs n_max above n
@pytest.mark.parametrize("offered", [8, 10, 32])
@pytest.mark.parametrize("sizes", [{}, {"capacity": 80}, {"budget": 10 * 64}, {"budget": 2560, "capacity": 256}])
def test_an_allocator_that_takes_everyone_gives_all_offered_the_same_whatever_it_learnt(name, offered, sizes):
    settings = make_planner(name, rounds=10, **sizes).settings
    allocator = create_allocator(name, settings)
    if not type(allocator).takes_everyone(settings, offered):
        return
    for step in range(min(settings.rounds, settings.budget // (8 * offered))):
        rows = np.arange(offered)
        plan = allocator.plan(None if offered == settings.num_prompts else rows)
        assert sorted(plan.indices) == [*rows]
        assert {*plan.rollouts} == {8}
        wins = np.where(plan.indices % 3, 8, step % 8)
        allocator.observe(plan.indices, wins, 8 - wins)
        allocator.advance()


@pytest.mark.parametrize(
    ("name", "taken"), [("cero", True), ("prioritized", True), ("thompson", True), ("greso", False), ("uniform", False)]
)
def test_a_batch_of_the_loader_that_fits_into_a_round_leaves_no_choice_but_to_skip(name, taken):
    settings = make_planner(name, budget=10 * 64).settings
    assert resolve_allocator(name).takes_everyone(settings, 8) is taken
    assert not resolve_allocator(name).takes_everyone(settings, 9)


def test_a_price_is_a_choice_and_no_price_is_none():
    settings = make_planner(budget=10 * 64, capacity=80).settings
    assert not resolve_allocator("cero").takes_everyone(settings, 8)
    assert resolve_allocator("fixed_pacing").takes_everyone(settings, 8)
