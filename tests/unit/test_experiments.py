"""The arms of the experiments: recipes that compose, and are equal where they are to be compared."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest
from verl.utils.config import validate_config

from benchmarks import allocation, headline
from benchmarks.experiment import seeds, shortened
from tests.unit.report_runs import write_log
from tests.unit.test_recipes import compose_recipe, many_rows  # noqa: F401 - a fixture
from verl_pods_cero.tools.reports.groups import group_runs
from verl_pods_cero.tools.reports.runs import find_runs

EXPERIMENTS = {
    "headline": headline.experiment(),
    **{f"allocation/{world}": allocation.experiment(world) for world in allocation.WORLDS},
}
SEEDS = {"headline": 5, "allocation/steep": 8, "allocation/own": 8}
every_experiment = pytest.mark.parametrize("name", EXPERIMENTS)


def composed(experiment, arm, data_file):
    # The files of a seed are made when its first run starts.
    left_out = ("--", "hydra.", "data.val_files=")
    overrides = [o for o in experiment.command(arm, 3, Path("run"))[3:] if not o.startswith(left_out)]
    return compose_recipe("cero_cpu", data_file, *overrides)


@pytest.mark.parametrize(("name", "arm"), [(name, arm) for name in EXPERIMENTS for arm in EXPERIMENTS[name].arms])
def test_an_arm_passes_verls_checks_and_ours_and_is_validated_at_its_end(name, arm, many_rows):  # noqa: F811
    config = composed(EXPERIMENTS[name], arm, many_rows)
    validate_config(config, use_reference_policy=False, use_critic=False)
    assert (config.data.train_batch_size, config.quickstart.seed) == (EXPERIMENTS[name].arms[arm].prompts, 3)
    assert config.trainer.total_training_steps % config.trainer.test_freq == 0


@every_experiment
def test_every_arm_is_validated_about_as_many_times(name):
    steps, every = EXPERIMENTS[name].steps, EXPERIMENTS[name].validated_every
    times = {steps[n] // every[n] for n in steps}
    assert max(times) - min(times) <= 1


def test_more_epochs_are_verls_option_and_nothing_else(many_rows):  # noqa: F811
    one, four = (composed(headline.experiment(epochs), "pods", many_rows) for epochs in (1, 4))
    assert four.actor_rollout_ref.actor.ppo_epochs == 4
    four.actor_rollout_ref.actor.ppo_epochs = 1
    assert one == four


@every_experiment
def test_arms_differ_in_the_method_only(name, many_rows):  # noqa: F811
    def rest(arm):
        config = composed(EXPERIMENTS[name], arm, many_rows)
        config.pods_cero = None
        config.actor_rollout_ref.rollout.n = config.trainer.total_training_steps = config.trainer.test_freq = None
        if name != "headline":  # there, an arm with twice the rollouts per prompt has half the prompts
            config.data.train_batch_size = config.actor_rollout_ref.actor.ppo_mini_batch_size = None
        return config

    first, *others = map(rest, EXPERIMENTS[name].arms)
    assert all(other == first for other in others)


@pytest.mark.parametrize("world", allocation.WORLDS)
def test_every_allocator_is_given_the_same_budget_and_spends_it_in_the_same_steps(world):
    experiment = allocation.experiment(world)
    assert {experiment.steps[arm.n] * arm.rollouts for arm in experiment.arms.values()} == {
        experiment.steps[allocation.SMALL] * allocation.ROLLOUTS
    }


@every_experiment
def test_the_results_kept_in_the_repository_are_of_these_settings(name, repository):
    experiment, folder = EXPERIMENTS[name], repository / "docs" / "results" / name
    assert (folder / "settings.json").read_text() == experiment.settings()
    for log in folder.glob("*.jsonl"):
        arm, _, seed = log.stem.rpartition("-seed")
        assert arm in experiment.arms and int(seed) < SEEDS[name]
        records = [json.loads(line) for line in log.read_text().splitlines()]
        whole = experiment.steps[experiment.arms[arm].n]
        spent = records[-1]["data"].get("cero/budget_left") == 0  # larger rounds end it before
        last = len(records) - 1 if spent else whole
        assert last <= whole and [each["step"] for each in records] == [*range(last + 1)], f"{log.name} is not whole"


@pytest.mark.parametrize("text", ["0", "4:4", "-2", "-1:3", "8:4"])
def test_seeds_that_are_none_are_refused(text):
    with pytest.raises(argparse.ArgumentTypeError, match="must be a count, or first:end"):
        seeds(text)


def test_a_short_log_has_the_metrics_of_the_report_and_the_rollouts_of_plain_runs():
    data = {
        "training/global_step": 7,
        "timing_s/step": 1.23456789,
        "actor/entropy": 0.5,
        "val-core/sums/acc/mean@1": 0.25,
    }
    short = shortened(json.dumps({"step": 7, "data": data}), rollouts=64)
    assert short == {
        "step": 7,
        "data": {
            "training/global_step": 7,
            "timing_s/step": 1.235,
            "val-core/sums/acc/mean@1": 0.25,
            "pods/rollouts_generated": 64,
            "pods/rollouts_kept": 64,
        },
    }
    assert shortened(json.dumps({"step": 0, "data": {"actor/entropy": 0.5}}), rollouts=64) is None


@pytest.mark.parametrize(
    ("logged", "plain"),
    [
        ({}, True),
        (dict.fromkeys(("pods/rollouts_generated", "pods/rollouts_kept", "pods/zero_variance_fraction"), 32.0), False),
        ({"cero/rollouts": 32.0}, False),
    ],
)
def test_the_short_log_of_a_plain_run_and_of_no_other_counts_as_plain(tmp_path, logged, plain):
    line = {"step": 1, "data": {"training/global_step": 1, "timing_s/step": 1.0, **logged}}
    short = shortened(json.dumps(line), rollouts=32)
    path = write_log(tmp_path / "arm-seed0.jsonl", [(short["step"], short["data"])])
    (group,) = group_runs(find_runs([str(path)]))
    assert group.is_plain is plain
