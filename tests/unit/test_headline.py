"""The arms of the headline: recipes that compose, and are equal where they are to be compared."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from verl.utils.config import validate_config

from benchmarks.headline import ARMS, PROMPTS, STEPS, VALIDATED_EVERY, command, settings, shortened
from tests.unit.report_runs import write_log
from tests.unit.test_recipes import compose_recipe, many_rows  # noqa: F401 - a fixture
from verl_pods_cero.tools.reports.groups import group_runs
from verl_pods_cero.tools.reports.runs import find_runs


def composed(arm, data_file, **options):
    overrides = [o for o in command(arm, 3, Path("run"), **options)[3:] if not o.startswith(("--", "hydra."))]
    return compose_recipe("cero_cpu", data_file, *overrides)


@pytest.mark.parametrize("arm", ARMS)
def test_an_arm_passes_verls_checks_and_ours_and_is_validated_at_its_end(arm, many_rows):  # noqa: F811
    config = composed(arm, many_rows)
    validate_config(config, use_reference_policy=False, use_critic=False)
    assert (config.data.train_batch_size, config.quickstart.seed) == (PROMPTS, 3)
    assert config.trainer.total_training_steps % config.trainer.test_freq == 0


def test_every_arm_is_validated_about_as_many_times():
    times = {STEPS[n] // VALIDATED_EVERY[n] for n in STEPS}
    assert max(times) - min(times) <= 1


def test_more_epochs_are_verls_option_and_nothing_else(many_rows):  # noqa: F811
    one, four = (composed("pods", many_rows, epochs=epochs) for epochs in (1, 4))
    assert four.actor_rollout_ref.actor.ppo_epochs == 4
    four.actor_rollout_ref.actor.ppo_epochs = 1
    assert one == four


def test_arms_differ_in_the_method_only(many_rows):  # noqa: F811
    def rest(arm):
        config = composed(arm, many_rows)
        config.pods_cero = None
        config.actor_rollout_ref.rollout.n = config.trainer.total_training_steps = config.trainer.test_freq = None
        return config

    first, *others = map(rest, ARMS)
    assert all(other == first for other in others)


def test_the_results_kept_in_the_repository_are_of_these_settings(repository):
    folder = repository / "docs" / "results" / "headline"
    assert (folder / "settings.json").read_text() == settings()
    for log in folder.glob("*.jsonl"):
        arm, _, seed = log.stem.rpartition("-seed")
        assert arm in ARMS and int(seed) < 5
        steps = [json.loads(line)["step"] for line in log.read_text().splitlines()]
        assert steps == [*range(STEPS[ARMS[arm][0]] + 1)], f"{log.name} is not a whole run"


def test_a_short_log_has_the_metrics_of_the_report_and_the_rollouts_of_plain_runs():
    data = {
        "training/global_step": 7,
        "timing_s/step": 1.23456789,
        "actor/entropy": 0.5,
        "val-core/sums/acc/mean@1": 0.25,
    }
    short = shortened(json.dumps({"step": 7, "data": data}), n=8)
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
    assert shortened(json.dumps({"step": 0, "data": {"actor/entropy": 0.5}}), n=8) is None


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
    short = shortened(json.dumps(line), n=4)
    path = write_log(tmp_path / "arm-seed0.jsonl", [(short["step"], short["data"])])
    (group,) = group_runs(find_runs([str(path)]))
    assert group.is_plain is plain
