from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from omegaconf import OmegaConf

from verl_pods_cero.core.allocators import Allocation, create_allocator
from verl_pods_cero.core.pods import select
from verl_pods_cero.core.settings import AllocatorSettings
from verl_pods_cero.core.uniform import Uniform
from verl_pods_cero.core.utility import greedy_optimum, utility
from verl_pods_cero.core.walk import Walk
from verl_pods_cero.errors import OptionError
from verl_pods_cero.metric_names import ALLOCATION_METRICS, FILTER_METRICS
from verl_pods_cero.options.allocator import allocator_settings
from verl_pods_cero.options.schema import AllocatorOptions
from verl_pods_cero.tools.reports.drawing import canvas
from verl_pods_cero.tools.simulation.command import ALLOCATORS
from verl_pods_cero.tools.simulation.figures import _filters
from verl_pods_cero.tools.simulation.filters import RULES, filter_groups, filter_measures, variances
from verl_pods_cero.tools.simulation.frontier import _points, draw_frontier
from verl_pods_cero.tools.simulation.logs import write_log
from verl_pods_cero.tools.simulation.luck import luck
from verl_pods_cero.tools.simulation.measures import DIFFICULTY, Result, choices, judge
from verl_pods_cero.tools.simulation.oracles import GreedyOracle, OfflineOptimum, Oracle, best_split, curvature
from verl_pods_cero.tools.simulation.play import Groups, Play, play
from verl_pods_cero.tools.simulation.players import OFFLINE, Player, create, parse_players, settings_for
from verl_pods_cero.tools.simulation.summary import Spread, curve, summarise
from verl_pods_cero.tools.simulation.worlds import DriftingWorld, means_over_time

WORLD = DriftingWorld.drawn(60, seed=0)
SIZES = {"num_prompts": 60, "steps": 24, "batch_prompts": 10, "n": 8}


def played(name: str, sizes: dict[str, Any] = SIZES, world: DriftingWorld = WORLD, seed: int = 0) -> Play:
    player = parse_players(name)[0]
    settings = settings_for(player, sizes, seed)
    return play(create(player, settings, world), settings, world, seed)


def judged(name: str, sizes: dict[str, Any] = SIZES, seed: int = 0) -> Result:
    player = parse_players(name)[0]
    settings = settings_for(player, sizes, seed)
    allocator = create(player, settings, WORLD)
    run = play(allocator, settings, WORLD, seed)
    means = means_over_time(WORLD)
    best = settings_for(Player(OFFLINE), sizes, seed)
    optimum = float(utility(best_split(best, means[1]), curvature(best, means[1])).sum())
    return judge(run, allocator, means, optimum, player.label, seed, choices(run.groups, RULES, [4], seed))


# --- players ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "fix"),
    [
        ("uniform,ceero", "did you mean 'cero'"),
        ("offline_optimun", "did you mean 'offline_optimum'"),
        ("cero/epock", "did you mean 'epoch'"),
        ("cero,uniform,cero/round", "take one"),
        ("offline_optimum/epoch", "write offline_optimum"),
        ("", "use one of"),
        ("prioritized@fokus=1", "did you mean 'focus'"),
        ("prioritized@focus=two", "write setting=number"),
        ("cero@n_max=1.5", "a whole one"),
    ],
)
def test_a_name_that_is_no_player_is_refused_with_a_way_out(text: str, fix: str) -> None:
    with pytest.raises(OptionError, match="--allocators") as caught:
        parse_players(text)
    assert fix in str(caught.value)


def test_settings_are_those_of_a_training_run_of_the_same_sizes() -> None:
    config = OmegaConf.create(
        {
            "actor_rollout_ref": {"rollout": {"n": 8}},
            "data": {"train_batch_size": 10},
            "trainer": {"total_training_steps": 24, "total_epochs": 99},
        }
    )
    for schedule in ("round", "epoch"):
        options = AllocatorOptions(enable=True, name="cero", schedule=schedule, seed=3)
        assert settings_for(Player("cero", schedule), SIZES, 3) == allocator_settings(config, options, 60)


def test_the_knapsack_may_hand_out_more_than_n_unless_told_otherwise() -> None:
    assert settings_for(Player("knapsack"), SIZES, 0).n_max == 16
    assert settings_for(Player("knapsack"), {**SIZES, "n_max": 8}, 0).n_max == 8
    assert settings_for(Player("cero"), SIZES, 0).n_max == 8


def test_a_player_may_have_settings_of_its_own_which_go_before_everyones() -> None:
    own, plain = parse_players("thompson/epoch@rho=0.9@n_max=16,thompson")
    assert (own.label, own.file_stem) == ("thompson/epoch@rho=0.9@n_max=16", "thompson-epoch-rho-0.9-n_max-16")
    made = settings_for(own, {**SIZES, "rho": 0.7}, 0)
    assert (made.rho, made.n_max, made.schedule) == (0.9, 16, "epoch")
    assert settings_for(plain, SIZES, 0).rho == 0.5  # as MoPPS publishes it


def test_the_oracles_know_the_rates_of_the_moment() -> None:
    for name in ("oracle", "greedy_oracle"):
        groups = played(name).groups
        assert groups.predicted == pytest.approx(groups.true_rate, abs=1e-12)


def test_the_greedy_oracle_serves_the_prompts_whose_groups_are_likeliest_to_be_mixed() -> None:
    p = WORLD.pass_rates(0.0)
    signal = 1 - p**8 - (1 - p) ** 8
    first = GreedyOracle(settings_for(Player("greedy_oracle"), SIZES, 0), WORLD).plan()
    assert sorted(first.indices) == sorted(np.argsort(-signal)[:10])


def test_the_oracle_weighs_signal_against_staleness() -> None:
    settings = settings_for(Player("oracle"), SIZES, 0)
    oracle = Oracle(settings, WORLD)
    first = oracle.plan()
    p = WORLD.pass_rates(0.0)
    assert sorted(first.indices) == sorted(np.argsort(-(1 - p**8 - (1 - p) ** 8))[:10])
    oracle.observe(first.indices, first.rollouts, np.zeros(10))
    oracle.advance()
    p, clock = WORLD.pass_rates(80 / 1920), 80 / (60 * 8)
    age = np.full(60, clock + 1)
    age[first.indices] = clock
    second = oracle.plan()
    assert sorted(second.indices) == sorted(np.argsort(-((1 - p**8 - (1 - p) ** 8) ** 2) * age)[:10])
    assert not set(second.indices) & set(first.indices)


def test_the_oracle_without_breadth_has_most_mixed_groups_and_fewest_prompts() -> None:
    numbers = {name: judged(name).numbers for name in ("prioritized", "oracle", "greedy_oracle")}
    ratio, breadth = (
        [numbers[name][measure] for name in ("prioritized", "oracle", "greedy_oracle")]
        for measure in ("effective_prompt_ratio", "effective_number")
    )
    assert ratio == sorted(ratio) and breadth[2] < min(breadth[:2])


def test_the_offline_optimum_hands_out_the_best_split_to_the_last_unit() -> None:
    settings = settings_for(Player(OFFLINE), SIZES, 0)
    q = means_over_time(WORLD)[1]
    run = played(OFFLINE)
    had = np.bincount(run.groups.row, weights=run.groups.rollouts, minlength=60)
    best = greedy_optimum(4 * q * 60 / settings.budget_units, settings.budget_units, cap=24 * 2)
    assert had.tolist() == (best * 4).tolist() and had.sum() == settings.budget
    assert run.per_step(run.groups.rollouts).tolist() == [80] * 24


def test_the_offline_optimum_serves_the_candidates_only() -> None:
    settings = settings_for(Player(OFFLINE), SIZES, 0)
    allocator = OfflineOptimum(settings, np.full(60, 0.2))
    assert set(allocator.plan([3, 50]).indices) == {3, 50}


def test_no_allocator_has_more_of_the_utility_than_the_offline_optimum() -> None:
    for sizes in (SIZES, {**SIZES, "budget": 1600, "lam": 2.0}):
        share = {
            player.label: judged(player.label, sizes).numbers["utility_share"] for player in parse_players(ALLOCATORS)
        }
        assert share.pop(OFFLINE) == pytest.approx(1.0)
        assert all(0.4 < value < 1.0 for value in share.values())


# --- play ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*ALLOCATORS.split(","), "fixed_pacing", "random_matched/epoch"])
def test_a_run_spends_its_budget_and_no_more(name: str) -> None:
    run = played(name)
    assert run.groups.rollouts.sum() == run.settings.budget == 1920
    # a plain step has ten prompts of 8, and a round of CERO room for one more
    assert run.per_step(run.groups.rollouts).max() <= (80 if run.settings.capacity is None else 88)
    assert run.metrics[-1]["spent"] == 1920
    assert [metrics["rollouts"] for metrics in run.metrics] == run.per_step(run.groups.rollouts).tolist()


def test_the_same_seed_gives_the_same_run_and_another_seed_another() -> None:
    first, again, other = played("cero"), played("cero"), played("cero", seed=1)
    assert first.metrics == again.metrics and np.array_equal(first.groups.outcomes, again.groups.outcomes)
    assert first.metrics != other.metrics


def test_a_small_run_follows_its_golden_trajectory() -> None:
    numbers = {name: judged(name).numbers for name in ("uniform", "cero")}
    assert {name: (n["groups"], n["mixed_groups"]) for name, n in numbers.items()} == {
        "uniform": (240.0, 127.0),
        "cero": (240.0, 162.0),
    }
    assert numbers["cero"]["utility_share"] == pytest.approx(0.9141994097, abs=1e-9)


def test_a_prompts_next_rollout_has_the_same_luck_under_every_allocator() -> None:
    still = DriftingWorld.drawn(60, seed=0, drift=0.0)
    rates = still.pass_rates(0.0)
    for name in ("uniform", "cero", "greedy_marginal"):
        groups = played(name, world=still, seed=5).groups
        seen = np.zeros(60, dtype=int)
        for row, rollouts, wins in zip(groups.row, groups.rollouts, groups.wins, strict=True):
            expected = luck(5, int(row), seen[row] + np.arange(rollouts)) < rates[row]
            assert wins == expected.sum()
            seen[row] += rollouts


def test_the_worlds_clock_is_the_share_of_the_budget_spent_before_the_step() -> None:
    for name in ("uniform", "cero/epoch"):
        run = played(name)
        spent = np.concatenate([[0.0], np.cumsum(run.per_step(run.groups.rollouts))[:-1]])
        progress = spent[run.groups.step] / run.settings.budget
        expected = [WORLD.pass_rates(p, np.array([r]))[0] for p, r in zip(progress, run.groups.row, strict=True)]
        assert run.groups.true_rate == pytest.approx(expected)


def test_a_limit_of_steps_ends_the_run() -> None:
    settings = settings_for(Player("uniform"), SIZES, 0)
    run = play(create_allocator("uniform", settings), settings, WORLD, 0, limit=5)
    assert run.steps == 5 and run.groups.rollouts.sum() == 400


def test_only_what_a_loader_brings_is_served_where_little_is_offered() -> None:
    settings = settings_for(Player("prioritized"), SIZES, 0)
    run = play(create_allocator("prioritized", settings), settings, WORLD, 0, offered=15)
    walk, groups = Walk(60, settings.seed), run.groups
    for step in range(4):  # four of fifteen make a pass over sixty prompts
        offered = walk.next_rows(15)
        walk.step_past(offered[-1])
        assert set(groups.row[groups.step == step]) <= set(offered)
    assert groups.rollouts.sum() == settings.budget


class Twice(Uniform):
    """An allocator that serves a prompt twice in a step."""

    def plan(self, candidates: object = None) -> Allocation:  # noqa: ARG002
        return Allocation(np.array([1, 1]), np.array([8, 8]))


def test_a_prompt_served_twice_in_a_step_is_refused() -> None:
    settings = settings_for(Player("uniform"), SIZES, 0)
    with pytest.raises(ValueError, match="twice in one step"):
        play(Twice(settings), settings, WORLD, 0)


# --- measures -----------------------------------------------------------------------------------------------------


def hand_made() -> Play:
    outcomes = np.array([[1, 0, 1, 0], [1, 1, 1, 1], [0, 0, 0, 0], [1, 0, 0, 0]], dtype=bool)
    groups = Groups(
        step=np.array([0, 0, 2, 2]),
        row=np.array([0, 1, 2, 0]),
        rollouts=np.array([4, 4, 4, 2]),
        wins=np.array([2, 4, 0, 1]),
        true_rate=np.array([0.5, 0.9, 0.1, 0.5]),
        predicted=np.array([0.5, 0.5, 0.5, 0.25]),
        outcomes=outcomes,
    )
    settings = AllocatorSettings(num_prompts=4, budget=16, rounds=4, batch_prompts=2, n=4, unit=2)
    return Play(settings, groups, [{}, {}, {}])


def test_measures_of_a_run_made_by_hand() -> None:
    run = hand_made()
    means = (np.array([0.5, 0.99, 0.01, 0.3]), np.array([0.25, 0.01, 0.01, 0.2]))
    result = judge(run, create_allocator("uniform", run.settings), means, 2.0, "uniform", 0, {})
    n = result.numbers
    assert (n["groups"], n["mixed_groups"], n["effective_prompt_ratio"]) == (4, 2, 0.5)
    assert n["mixed_per_1000"] == pytest.approx(1000 * 2 / 14)
    assert n["effective_rollout_ratio"] == pytest.approx(6 / 14)
    assert n["coverage"] == 0.75 and n["exposures_p50"] == 4.0
    # Both mixed groups, of 4 and of 2 rollouts, are prompt 0's.
    assert (n["mixed_prompts"], n["mixed_prompts_share"]) == (1, 0.25)
    assert (n["effective_number"], n["effective_number_share"]) == (1.0, 0.25)
    units, c = np.array([3, 2, 2, 0]), 4 * means[1] * 4 / 8
    assert n["utility"] == pytest.approx((1 - np.exp(-c * units)).sum())
    assert n["utility_share"] == pytest.approx(n["utility"] / 2)
    assert n["calibration_mae"] == pytest.approx((0 + 0.5 + 0.5 + 0.25) / 4)
    assert n["calibration_true_mae"] == pytest.approx((0 + 0.4 + 0.4 + 0.25) / 4)
    assert n["calibration_bias"] == pytest.approx((0 - 0.4 + 0.4 - 0.25) / 4)
    assert result.spent.tolist() == [8, 8, 14] and result.mixed.tolist() == [1, 1, 2]
    assert dict(zip(DIFFICULTY, result.difficulty.sums["rollouts"], strict=False))[0.5] == 6
    assert result.difficulty.counts.sum() == 4
    assert result.calibration.counts[[2, 5]].tolist() == [1, 3]
    assert result.calibration.sums["observed"][5] == pytest.approx(1.5)


def test_the_effective_number_of_prompts_is_that_of_equal_weights_with_the_same_variance() -> None:
    run = hand_made()
    run.groups.wins[1] = 2  # prompt 1 has a mixed group of 4 now, prompt 0 groups of 4 and 2
    variance = np.array([0.25, 0.01, 1e-17, 0.2])
    n = judge(run, create_allocator("uniform", run.settings), (variance, variance), 2.0, "uniform", 0, {}).numbers
    assert n["effective_number"] == pytest.approx(10**2 / (6**2 + 4**2))
    assert n["effective_number_share"] == pytest.approx(n["effective_number"] / 4)
    # A prompt that is always solved, but for rounding, could have none.
    assert (n["mixed_prompts"], n["mixed_prompts_share"]) == (2, pytest.approx(2 / 3))


def test_the_hardest_and_the_easiest_prompts_fall_into_the_outer_classes() -> None:
    run = hand_made()
    result = judge(
        run,
        create_allocator("uniform", run.settings),
        (np.array([0.0, 1.0, 0.98, 0.02]), np.full(4, 0.1)),
        1,
        "u",
        0,
        {},
    )
    assert result.difficulty.counts.tolist() == [1, 1, 0, 0, 0, 0, 0, 2]


def test_an_allocator_that_predicts_nothing_has_no_calibration() -> None:
    run = hand_made()
    run.groups.predicted[:] = np.nan
    means = (np.full(4, 0.5), np.full(4, 0.25))
    result = judge(run, create_allocator("uniform", run.settings), means, 1.0, "own", 0, {})
    assert np.isnan(result.numbers["calibration_mae"]) and result.calibration.counts.sum() == 0


def test_rollouts_to_a_target_are_counted_at_the_end_of_the_step_that_reached_it() -> None:
    run = hand_made()
    means = (np.full(4, 0.5), np.full(4, 0.25))
    result = judge(run, create_allocator("uniform", run.settings), means, 1.0, "uniform", 0, {})
    reached = [summarise([result], ["uniform"], target).values("uniform", "rollouts_to_target") for target in (1, 2, 3)]
    assert reached == [[8.0], [14.0], [np.inf]]
    assert summarise([result], ["uniform"], None).target == 1


def test_the_curve_has_each_step_in_the_stretch_in_which_it_ends() -> None:
    run = hand_made()
    means = (np.full(4, 0.5), np.full(4, 0.25))
    result = judge(run, create_allocator("uniform", run.settings), means, 1.0, "uniform", 0, {})
    ratios, counts = curve([result], np.array([0.0, 4.0, 8.0, 12.0, 16.0, 20.0]))
    assert ratios[0].tolist() == pytest.approx([np.nan, 0.5, np.nan, 0.5, np.nan], nan_ok=True)
    assert counts[0].tolist() == pytest.approx([0, 1, 1, 2, np.nan], nan_ok=True)


def test_differences_are_taken_seed_by_seed() -> None:
    results = [judged(name, seed=seed) for name in ("cero", "uniform") for seed in (1, 0)]
    summary = summarise(results, ["uniform", "cero"], None)
    assert summary.references == ["uniform"]
    expected = [
        judged("cero", seed=s).numbers["mixed_groups"] - judged("uniform", seed=s).numbers["mixed_groups"]
        for s in (0, 1)
    ]
    assert summary.differences("cero", "uniform", "mixed_groups") == expected


def test_the_spread_is_the_standard_deviation_over_seeds() -> None:
    spread = Spread.of([1.0, 2.0, 4.0])
    assert spread.deviation == pytest.approx(np.std([1, 2, 4], ddof=1)) and spread.mean == pytest.approx(7 / 3)
    assert np.isnan(Spread.of([1.0]).deviation) and np.isinf(Spread.of([1.0, np.inf]).mean)


# --- filters and logs ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", RULES)
def test_what_a_rule_keeps_is_what_the_filter_of_a_training_run_keeps(rule: str) -> None:
    groups = played("knapsack").groups
    assert len(set(groups.rollouts)) > 1
    filtered = filter_groups(groups, rule, 4, seed=7)
    chosen = select(groups.outcomes.astype(float), groups.exists, 4, rule, np.random.default_rng([7, 4]))
    assert filtered.kept.tolist() == chosen.kept.sum(axis=1).tolist()
    assert filtered.wins.tolist() == (chosen.kept & groups.outcomes).sum(axis=1).tolist()
    assert filtered.top.tolist() == chosen.top.tolist()


def test_filter_measures_of_groups_made_by_hand() -> None:
    groups = hand_made().groups
    measures = filter_measures(groups, filter_groups(groups, "max_variance", 2, seed=0))
    assert measures == pytest.approx(
        {
            "variance_generated": (0.25 + 0 + 0 + 0.25) / 4,
            "variance_kept": (0.25 + 0 + 0 + 0.25) / 4,
            "mixed_kept": 1.0,
            "updates_saved": 1 - 8 / 14,
        }
    )
    assert filter_measures(groups, filter_groups(groups, "max_reward", 2, seed=0))["mixed_kept"] == 0.5


def test_the_line_of_what_was_generated_is_the_mean_over_seeds_as_the_bars_are() -> None:
    found = [judged("uniform", seed=seed) for seed in (0, 1, 2)]
    generated = [one.filters[RULES[0], 4]["variance_generated"] for one in found]
    assert len(set(generated)) == 3
    axes = _filters(summarise(found, ["uniform"], None)).axes[0]
    (line,) = (lines for lines in axes.collections if lines.get_label() == "all generated")
    assert [segment[0, 1] for segment in line.get_segments()] == pytest.approx([np.mean(generated)])


def test_the_frontier_has_a_point_for_each_player_and_joins_settings_of_one(tmp_path: Path) -> None:
    names = ["uniform", "prioritized@focus=1", "prioritized@focus=4", "oracle"]
    summary = summarise([judged(name, seed=seed) for name in names for seed in (0, 1)], names, None)
    with canvas(4.0, 3.0) as (_, (axes,)):
        _points(axes, summary, "mixed_prompts_share")
    lines = {str(line.get_label()): line for line in axes.get_lines()}
    assert list(lines) == ["uniform", "prioritized", "oracle"]
    points = zip(*lines["prioritized"].get_data(), strict=True)
    for name, (x, y) in zip(names[1:3], points, strict=True):
        assert x == pytest.approx(100 * summary.spread(name, "mixed_prompts_share").mean)
        assert y == pytest.approx(100 * summary.spread(name, "effective_rollout_ratio").mean)
    assert [text.get_text() for text in axes.texts] == ["focus=1", "focus=4"]
    first, again = (draw_frontier(tmp_path, summary, "title").read_bytes() for _ in range(2))
    assert first == again


def test_a_log_has_the_form_of_verls_file_logger_and_the_names_of_a_training_run(tmp_path: Path) -> None:
    run = played("greso")
    filtered = filter_groups(run.groups, "max_variance", 4, seed=0)
    write_log(tmp_path / "log.jsonl", run, filtered)
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(1, run.steps + 1))
    known = {*FILTER_METRICS, *ALLOCATION_METRICS, "critic/score/mean", "training/epoch", "training/global_step"}
    for line in lines:
        assert line.keys() == {"step", "data"} and line["data"].keys() <= known
        assert all(np.isfinite(value) for value in line["data"].values())
    last, step = lines[-1]["data"], run.groups.step == run.steps - 1
    assert last["cero/effective_prompt_ratio"] == pytest.approx(run.groups.mixed[step].mean())
    assert last["cero/budget_left"] == 0 and last["cero/budget_spent"] == 1920
    assert last["pods/rollouts_generated"] == run.groups.rollouts[step].sum()
    assert last["pods/rollouts_kept"] == filtered.kept[step].sum()
    assert last["pods/reward_variance_kept"] == pytest.approx(variances(filtered.wins, filtered.kept)[step].mean())
    assert last["pods/zero_variance_fraction"] == pytest.approx(1 - run.groups.mixed[step].mean())
    assert last["critic/score/mean"] == pytest.approx(run.groups.wins[step].sum() / run.groups.rollouts[step].sum())


def test_a_run_without_filter_logs_nothing_of_one(tmp_path: Path) -> None:
    write_log(tmp_path / "log.jsonl", played("uniform"), None)
    assert "pods/" not in (tmp_path / "log.jsonl").read_text()
