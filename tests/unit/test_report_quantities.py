"""What the report computes: what had been spent, accuracies, spreads, and the way to the baseline's best."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from tests.unit.report_runs import ACCURACY, CERO, PODS, STEP, records_of, steps, write_log, write_run
from verl_pods_cero.errors import OptionError
from verl_pods_cero.tools.reports.accuracy import Curve, Measure, choose_measure, curve, describe_measure
from verl_pods_cero.tools.reports.comparisons import equal_amounts, milestones, paired, shared_seeds, target
from verl_pods_cero.tools.reports.groups import Group, group_runs
from verl_pods_cero.tools.reports.hydra_files import Job
from verl_pods_cero.tools.reports.log_files import Log
from verl_pods_cero.tools.reports.quantities import AXES, progress
from verl_pods_cero.tools.reports.results import result
from verl_pods_cero.tools.reports.runs import Run, find_runs
from verl_pods_cero.tools.reports.spread import half_width, t_quantile
from verl_pods_cero.tools.reports.step_figures import POINTS, effective_prompt_ratio, logged, trace
from verl_pods_cero.tools.reports.time_shares import seconds_a_step, time_shares


def run_of(records, job=None, path="run.jsonl") -> Run:
    return Run(Path(path), Log.of(Path(path), records), Job() if job is None else job)


def seed_curve(accuracies, seconds, seeds=None) -> Curve:
    """A curve of shape (S, V) from accuracies, with the same seconds for every seed."""
    values = np.array(accuracies, dtype=np.float64)
    spent = {axis: np.full(values.shape, np.nan) for axis in AXES}
    spent["step"] = np.tile(np.arange(values.shape[1], dtype=np.float64), (len(values), 1))
    spent["wall_s"] = np.tile(np.array(seconds, dtype=np.float64), (len(values), 1))
    seeds = range(len(values)) if seeds is None else seeds
    return Curve(values, spent, tuple(run_of([], Job(config={"data.seed": seed})) for seed in seeds))


# ---------------------------------------------------------------------- what had been spent


def test_a_validation_comes_after_its_step_and_after_the_validations_before_it():
    spent = progress(run_of(steps([0.25, None, 0.5, 0.75], **PODS)))
    assert spent.spent["step"].tolist() == [0, 1, 2, 3]
    assert spent.spent["training_s"].tolist() == [0, 4, 8, 12]
    assert spent.spent["wall_s"].tolist() == [0, 4, 8, 13]  # with the second validation, without the third
    assert spent.wall_s == 14
    assert spent.spent["rollouts"].tolist() == [0, 128, 256, 384]
    assert spent.spent["tokens"].tolist() == [0, 100, 200, 300]
    assert spent.updated == 96
    assert spent.remarks == ()


@pytest.mark.parametrize(
    ("metrics", "config", "rollouts", "source"),
    [
        ({**PODS, "cero/rollouts": 64}, {}, 128, "pods/rollouts_generated"),
        (CERO, {}, 128, "cero/rollouts"),
        ({}, {"data.train_batch_size": 8, "actor_rollout_ref.rollout.n": 4}, 32, "its options: 8 prompts of 4"),
    ],
)
def test_rollouts_come_from_the_log_or_else_from_the_options(metrics, config, rollouts, source):
    spent = progress(run_of(steps([None, None, None], **metrics), Job(config=config)))
    assert spent.spent["rollouts"].tolist() == [0, rollouts, 2 * rollouts]
    assert spent.rollouts_from.startswith(source)


def test_without_a_filter_the_policy_is_updated_on_every_rollout():
    assert progress(run_of(steps([None, None, None], **CERO))).updated == 256


def test_what_is_not_logged_is_not_known_and_said():
    spent = progress(run_of([(1, {"critic/score/mean": 0.5}), (2, {"critic/score/mean": 0.5})]))
    assert all(np.isnan(spent.spent[axis]).all() for axis in AXES if axis != "step")
    assert math.isnan(spent.updated)
    assert math.isnan(spent.wall_s)
    assert spent.remarks == (
        "logs no timing_s/step: no time is known",
        "logs no rollouts, and its options are not there to tell them",
    )


def test_a_step_without_time_makes_the_time_a_lower_bound():
    spent = progress(run_of([(1, {**STEP, **PODS}), (2, PODS)]))
    assert spent.spent["training_s"].tolist() == [4, 4]
    assert spent.remarks == ("logs no timing_s/step in 1 of 2 steps: the time is a lower bound",)


def test_a_step_without_rollouts_makes_them_a_lower_bound():
    spent = progress(run_of([(1, {**STEP, **PODS}), (2, STEP), (3, {**STEP, "cero/rollouts": 64})]))
    assert spent.spent["rollouts"].tolist() == [128, 128, 192]
    assert spent.remarks == ("logs no pods/rollouts_generated in 1 of 3 steps: the rollouts are a lower bound",)


def test_a_run_without_records_has_spent_nothing_known():
    spent = progress(run_of([]))
    assert math.isnan(spent.wall_s)
    assert spent.remarks == ()


def test_time_shares_add_up_to_the_steps_and_leave_validation_out():
    log = run_of(steps([0.5, 0.5, 0.5], **{"timing_s/cero_plan": 0.05, "timing_s/cero_update": 0.0})).log
    shares = time_shares(log)
    assert shares == pytest.approx(
        {"generation": 5.0, "allocation": 0.1, "log-probabilities": 1.0, "update": 1.5, "other": 0.4}
    )
    assert seconds_a_step(log)["generation"] == pytest.approx(2.5)
    assert time_shares(run_of([(1, {"critic/score/mean": 0.5})]).log) == {}


# ---------------------------------------------------------------------- accuracy


def test_accuracy_is_verls_core_metric_of_single_samples():
    logged_values = {ACCURACY: 0.5, "val-core/sums/acc/best@4/mean": 0.9, "val-aux/sums/reward/mean@1": 0.1}
    log = run_of([(0, logged_values)]).log
    assert Measure().names_in(log) == [ACCURACY]
    assert Measure().values(log).tolist() == [0.5]


def test_accuracy_over_several_data_sources_is_their_mean_where_all_were_validated():
    both = {"val-core/math/acc/mean@4": 0.5, "val-core/aime/acc/mean@4": 0.25}
    run = run_of([(0, both), (5, {"val-core/math/acc/mean@4": 0.75})])
    assert Measure().values(run.log)[0] == 0.375
    assert np.isnan(Measure().values(run.log)[1])
    assert describe_measure(Measure(), [run]) == [
        "Accuracy is val-core/aime/acc/mean@4 and val-core/math/acc/mean@4 (unweighted mean)."
    ]
    assert choose_measure([run], "math").values(run.log).tolist() == [0.5, 0.75]
    assert choose_measure([run], "val-core/aime/acc/mean@4").values(run.log)[0] == 0.25


def test_an_unknown_metric_gets_its_nearest_match():
    with pytest.raises(OptionError, match=r"--metric .* got 'sms'\. Fix: did you mean 'sums'"):
        choose_measure([run_of([(0, {ACCURACY: 0.5})])], "sms")
    with pytest.raises(OptionError, match="these logs have no validation"):
        choose_measure([run_of([(1, STEP)])], "sums")


def test_a_metric_of_training_is_no_accuracy():
    with pytest.raises(OptionError, match="--metric must be a validation metric"):
        choose_measure([run_of(steps([0.5, 0.5]))], "timing_s/step")


def test_runs_validated_on_different_data_are_said_not_to_compare():
    runs = [run_of([(0, {f"val-core/{source}/acc/mean@1": 0.5})]) for source in ("gsm8k", "math")]
    assert describe_measure(Measure(), runs)[1].endswith("their accuracies do not compare.")
    # only the number of samples differs: they do
    runs = [run_of([(0, {f"val-core/gsm8k/acc/mean@{n}": 0.5})]) for n in (1, 4)]
    assert len(describe_measure(Measure(), runs)) == 1


def test_a_curve_over_seeds_has_the_validations_that_all_of_them_had():
    whole, half = run_of(steps([0.25, 0.5, 0.75])), run_of(steps([0.5, 0.75]))
    begun = run_of(steps([None, None]))
    found = curve([whole, half, begun], Measure())
    assert found.steps.tolist() == [0, 1]
    assert found.mean.tolist() == [0.375, 0.625]
    assert found.runs == (whole, half)
    assert not found.knows("rollouts")
    assert found.knows("wall_s")
    assert curve([begun], Measure()) is None


def test_the_result_of_a_run_is_its_first_best_and_last_accuracy():
    run = run_of(steps([0.25, 0.75, 0.5], **PODS))
    found = result(run, Group("pods", (run,)), Measure())
    assert (found.first, found.best, found.best_step, found.last) == (0.25, 0.75, 1, 0.5)
    assert (found.steps, found.rollouts, found.updated, found.wall_s) == (2, 256, 64, 10)


def test_a_seed_is_told_by_the_seeds_that_differ(tmp_path):
    for seed in (3, 4):
        write_run(tmp_path / f"{seed}", steps([0.5, 0.5]), [f"quickstart.seed={seed}"], data__other_seed=9)
    (group,) = group_runs(find_runs([str(tmp_path)]))
    assert [result(run, group, Measure()).seed for run in group.runs] == ["3", "4"]


def test_a_run_by_itself_shows_the_seed_that_it_was_given(tmp_path):
    runs = find_runs(
        [
            str(write_run(tmp_path / "given", steps([0.5]), ["quickstart.seed=3"], data__other_seed=9)),
            str(write_run(tmp_path / "default", steps([0.5]), data__other_seed=9)),
            str(write_log(tmp_path / "cero-seed7.jsonl", steps([0.5]))),
        ]
    )
    assert [result(run, Group("one", (run,)), Measure()).seed for run in runs] == ["3", "", "7"]


# ---------------------------------------------------------------------- spread


@pytest.mark.parametrize(
    ("degrees", "quantile"),
    [(1, 12.7062), (2, 4.3027), (3, 3.1824), (4, 2.7764), (5, 2.5706), (9, 2.2622), (30, 2.0423), (1000, 1.9623)],
)
def test_quantiles_are_those_of_the_printed_tables(degrees, quantile):
    assert t_quantile(0.95, degrees) == pytest.approx(quantile, abs=5e-5)


def test_the_interval_of_a_mean_covers_it_as_often_as_it_says():
    rng = np.random.default_rng(0)
    for seeds in (2, 5):
        draws = rng.normal(size=(seeds, 20_000))
        covered = np.abs(draws.mean(axis=0)) <= half_width(draws)
        assert covered.mean() == pytest.approx(0.95, abs=0.005)


def test_one_seed_has_no_interval():
    assert np.isnan(half_width(np.ones((1, 3)))).tolist() == [True, True, True]


# ---------------------------------------------------------------------- the way to the baseline's best


def test_a_group_gets_there_at_its_first_validation_that_is_as_good_as_the_baselines_best():
    curves = {
        "plain": seed_curve([[0.25, 0.5, 0.75, 0.5]], [0, 10, 20, 30]),
        "fast": seed_curve([[0.25, 0.75, 0.5, 0.5]], [0, 5, 10, 15]),
        "never": seed_curve([[0.25, 0.5, 0.5, 0.5]], [0, 5, 10, 15]),
    }
    assert target(curves["plain"]) == 0.75
    plain, fast, never = milestones(curves, "plain")
    assert plain.spent == {"step": 2, "wall_s": 20}
    assert plain.ratios == {}
    assert fast.spent == {"step": 1, "wall_s": 5}
    assert {axis: ratio.value for axis, ratio in fast.ratios.items()} == {"step": 2, "wall_s": 4}
    assert all(np.isnan(ratio.low) for ratio in fast.ratios.values())  # one seed
    assert (never.spent, never.best, never.ratios["wall_s"].value) == ({}, 0.5, 0)


def test_a_group_that_begins_at_the_target_has_no_ratio():
    curves = {"plain": seed_curve([[0.25, 0.5]], [0, 10]), "better": seed_curve([[0.5, 0.5]], [0, 10])}
    better = milestones(curves, "plain")[1]
    assert (better.spent["wall_s"], better.ratios) == (0, {})


def test_an_accuracy_of_ones_own_can_be_the_target():
    curves = {"plain": seed_curve([[0.25, 0.5, 0.75]], [0, 10, 20]), "other": seed_curve([[0.25, 0.75]], [0, 20])}
    plain, other = milestones(curves, "plain", goal=0.5)
    assert (plain.spent["wall_s"], other.spent["wall_s"], other.ratios["wall_s"].value) == (10, 20, 0.5)
    plain, other = milestones(curves, "plain", goal=0.9)
    assert (plain.spent, other.spent, other.ratios) == ({}, {}, {})


def test_a_target_that_only_the_baseline_does_not_reach_makes_the_ratio_infinite():
    curves = {
        "plain": seed_curve([[0.25, 0.5]] * 3, [0, 10]),
        "better": seed_curve([[0.25, 0.75]] * 3, [0, 20]),
        "begins_there": seed_curve([[0.75, 0.75]] * 3, [0, 20]),
    }
    _, *others = milestones(curves, "plain", goal=0.75)
    for one in others:
        assert {axis: ratio.value for axis, ratio in one.ratios.items()} == {"step": math.inf, "wall_s": math.inf}
        assert all(np.isnan([ratio.low, ratio.high]).all() for ratio in one.ratios.values())
    assert [one.spent["wall_s"] for one in others] == [20, 0]


def test_equal_seeds_make_an_interval_of_no_width_and_a_seed_that_fails_opens_it():
    seconds = [0, 10, 20, 30]
    same = [[0.25, 0.5, 0.75, 0.75]] * 5
    curves = {"plain": seed_curve(same, seconds), "fast": seed_curve(same, [s / 2 for s in seconds])}
    ratio = milestones(curves, "plain")[1].ratios["wall_s"]
    assert (ratio.value, ratio.low, ratio.high) == (2, 2, 2)
    curves["fast"] = seed_curve([*same[:4], [0.25, 0.25, 0.25, 0.25]], seconds)
    ratio = milestones(curves, "plain")[1].ratios["wall_s"]
    assert (ratio.value, ratio.low) == (0, 0)
    assert ratio.high == 1  # some draws leave the seed out that never gets there


def test_the_interval_is_about_the_ratio_and_wider_with_more_noise():
    rng = np.random.default_rng(1)
    seconds = np.arange(0.0, 200.0, 5.0)
    rise = 1 - np.exp(-seconds / 60)
    widths = []
    for noise in (0.005, 0.05):
        base, fast = (
            np.minimum.accumulate((rise + rng.normal(0, noise, (5, len(rise))))[:, ::-1], axis=1)[:, ::-1]
            for _ in range(2)
        )
        curves = {"plain": seed_curve(base, seconds), "fast": seed_curve(fast, seconds / 2)}
        ratio = milestones(curves, "plain", goal=0.75)[1].ratios["wall_s"]
        assert ratio.low <= ratio.value <= ratio.high
        widths.append(ratio.high - ratio.low)
    assert widths[0] < widths[1]


def test_seeds_are_paired_where_both_sides_have_the_same():
    base = seed_curve([[0.5]] * 3, [0], seeds=(0, 1, 2))
    assert paired(base, seed_curve([[0.5]] * 3, [0], seeds=(2, 0, 1))).tolist() == [1, 2, 0]
    assert paired(base, seed_curve([[0.5]] * 3, [0], seeds=(0, 1, 3))) is None
    assert paired(base, seed_curve([[0.5]] * 3, [0], seeds=(0, 1, 1))) is None
    assert paired(base, seed_curve([[0.5]] * 2, [0], seeds=(0, 1))) is None


def test_seeds_that_both_sides_have_once_are_shared():
    base = seed_curve([[0.5]] * 4, [0], seeds=(0, 1, 2, 3))
    for seeds, ours, theirs in (
        ((2, 7, 0), [0, 2], [2, 0]),
        ((1, 1, 3), [3], [2]),
        ((8, 9), [], []),
    ):
        positions = shared_seeds(base, seed_curve([[0.5]] * len(seeds), [0], seeds=seeds))
        assert [side.tolist() for side in positions] == [ours, theirs]


def test_paired_seeds_take_out_what_both_sides_share():
    # a lucky seed learns twice as fast on both sides: the ratio is 2 in each of them
    seconds = np.arange(0.0, 100.0)
    base = np.array([np.minimum(seconds / limit, 1.0) for limit in (20.0, 40.0, 80.0)])
    fast = np.array([np.minimum(seconds / limit, 1.0) for limit in (10.0, 20.0, 40.0)])
    alike = milestones({"plain": seed_curve(base, seconds), "fast": seed_curve(fast, seconds)}, "plain")
    apart = milestones({"plain": seed_curve(base, seconds), "fast": seed_curve(fast, seconds, (7, 8, 9))}, "plain")
    (close, wide) = (found[1].ratios["wall_s"] for found in (alike, apart))
    assert (close.low, close.high) == (2, 2)
    assert wide.high - wide.low > 1


# ---------------------------------------------------------------------- equal amounts


def test_groups_are_compared_at_what_the_shortest_run_had_spent():
    curves = {
        "plain": seed_curve([[0.0, 0.5, 1.0], [0.0, 0.25, 0.5]], [0, 40, 80]),
        "fast": seed_curve([[0.0, 1.0, 1.0], [0.0, 0.75, 0.75]], [0, 20, 40]),
        "others": seed_curve([[0.5, 0.5]] * 2, [0, 80], seeds=(7, 8)),
    }
    found = equal_amounts(curves, "plain", "wall_s")
    assert found.amounts == (10, 20, 40)
    assert found.accuracy["plain"].tolist() == [[0.125, 0.25, 0.5], [0.0625, 0.125, 0.25]]
    assert found.accuracy["fast"].tolist() == [[0.5, 1.0, 1.0], [0.375, 0.75, 0.75]]
    assert found.gain["fast"].tolist() == [[0.375, 0.75, 0.5], [0.3125, 0.625, 0.5]]
    assert list(found.gain) == ["fast"]
    assert equal_amounts(curves, "plain", "rollouts") is None


def test_seeds_in_another_order_are_subtracted_from_their_own():
    curves = {
        "plain": seed_curve([[0.25, 0.25], [0.5, 0.5]], [0, 10], seeds=(0, 1)),
        "other": seed_curve([[0.75, 0.75], [0.5, 0.5]], [0, 10], seeds=(1, 0)),
    }
    assert equal_amounts(curves, "plain", "wall_s").gain["other"].tolist() == [[0.25] * 3] * 2


def test_differences_are_over_the_seeds_that_both_groups_have_if_these_are_at_least_two():
    curves = {
        "plain": seed_curve([[0.25, 0.25], [0.5, 0.5], [0.0, 0.0]], [0, 10], seeds=(0, 1, 2)),
        "two": seed_curve([[1.0, 1.0], [0.75, 0.75], [0.5, 0.5]], [0, 10], seeds=(5, 1, 0)),
        "one": seed_curve([[1.0, 1.0], [0.75, 0.75]], [0, 10], seeds=(5, 1)),
    }
    gain = equal_amounts(curves, "plain", "wall_s").gain
    assert {name: values.tolist() for name, values in gain.items()} == {"two": [[0.25] * 3] * 2}


def test_a_group_has_no_accuracy_before_its_first_validation():
    curves = {
        "plain": seed_curve([[0.25, 0.75]], [0, 80]),
        "late": seed_curve([[0.5, 0.75]], [40, 80]),
    }
    found = equal_amounts(curves, "plain", "wall_s")
    assert np.isnan(found.accuracy["late"][0, 0])
    assert found.accuracy["late"][0, 1:].tolist() == [0.5, 0.75]
    assert np.isnan(found.gain["late"][0, 0])


def test_a_group_that_was_validated_before_training_only_is_left_out():
    curves = {
        "plain": seed_curve([[0.25, 0.75]], [0, 80]),
        "other": seed_curve([[0.25, 0.5]], [0, 40]),
        "begun": seed_curve([[0.5]], [0]),
    }
    assert list(equal_amounts(curves, "plain", "wall_s").accuracy) == ["plain", "other"]
    assert equal_amounts(curves, "begun", "wall_s") is None
    del curves["other"]
    assert equal_amounts(curves, "plain", "wall_s") is None


# ---------------------------------------------------------------------- traces


@pytest.mark.parametrize(
    ("metrics", "ratio"),
    [
        ({**PODS, **CERO}, 0.75),
        (PODS, 1 - 0.25 - 0.125),
        ({"pods/zero_variance_fraction": 0.25}, 0.75),
    ],
)
def test_the_effective_prompt_ratio_comes_from_the_allocator_or_else_from_the_filter(metrics, ratio):
    found, values = effective_prompt_ratio(run_of(steps([None, None], **metrics)).log)
    assert (found.tolist(), values.tolist()) == ([1], [ratio])


def test_long_runs_are_averaged_over_stretches_of_steps():
    records = [(step, {"response_length/mean": float(step)}) for step in range(1, 101)]
    line = trace(Group("long", (run_of(records),)), logged("response_length/mean"))
    assert line.stretch == 3
    assert len(line.steps) <= POINTS
    assert line.mean[:2].tolist() == [2.0, 5.0]
    assert line.steps[:2].tolist() == [2.0, 5.0]
    assert line.steps[-1] == line.mean[-1] == 100.0


def test_a_trace_over_seeds_ends_with_the_shortest():
    runs = tuple(run_of([(s, {"x": float(s + seed)}) for s in range(1, 4 + seed)]) for seed in (0, 2))
    line = trace(Group("two", runs), logged("x"))
    assert line.steps.tolist() == [1, 2, 3]
    assert line.mean.tolist() == [2, 3, 4]
    assert line.half_width == pytest.approx([12.7062] * 3, rel=1e-4)
    assert trace(Group("none", runs), logged("y")) is None


def test_numbers_of_a_real_file_are_the_same_as_of_records(tmp_path):
    records = steps([0.25, None, 0.5], **PODS)
    (read,) = find_runs([str(write_log(tmp_path / "run.jsonl", records))])
    assert records_of(read.log) == records_of(run_of(records).log) == records
