"""The PODS filter inside stock verl, with real Ray, TransferQueue, FSDP2 and vLLM."""

from __future__ import annotations

import math
import signal
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pandas as pd
import psutil
import pytest

from tests import published_data
from tests.e2e.conftest import read_json_lines, read_steps
from verl_pods_cero.metric_names import FILTER_METRICS
from verl_pods_cero.tools import cli

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(2000)]


@pytest.mark.slow
def test_a_step_generates_n_and_updates_on_m(train, tmp_path):
    run = train(
        "pods_cero.filter.keep=4",
        "trainer.total_training_steps=3",
        f"trainer.rollout_data_dir={tmp_path}/rollouts",
    ).check()
    assert [step["training/global_step"] for step in run.steps] == [1, 2, 3]
    for number, step in enumerate(run.steps, 1):
        assert step["pods/rollouts_generated"] == 8 * 8
        assert step["pods/rollouts_kept"] == 8 * 4
        check_filtered_step(step, tmp_path / "rollouts" / f"{number}.jsonl")


def check_filtered_step(step, dump):
    """A step's metrics agree with each other and with the dump of its rollouts."""
    generated, kept = step["pods/rollouts_generated"], step["pods/rollouts_kept"]
    assert step["pods/rows_padded"] == 0
    assert step["pods/reward_variance_kept"] >= step["pods/reward_variance_generated"]
    assert set(FILTER_METRICS) <= set(step)
    assert step["critic/score/mean"] == pytest.approx(step["pods/reward_mean_generated"], abs=1e-6)
    rows = read_json_lines(dump)
    assert len(rows) == generated
    assert sum(row["kept"] for row in rows) == kept
    assert sum(row["score"] for row in rows) / generated == pytest.approx(step["critic/score/mean"], abs=1e-6)


def test_keeping_every_rollout_of_a_uniform_allocation_trains_as_verls_own_trainer_does(train, tmp_path):
    rollouts = (
        "skip.rollout_tq.enable=true",
        "skip.rollout_tq.steps=[1,2]",
        f"skip.rollout_tq.dump_dir={tmp_path}/dump",
        "trainer.total_training_steps=2",
        # The order of rows is that of arrival: with one update a step it makes no difference.
        "actor_rollout_ref.actor.ppo_mini_batch_size=8",
    )
    uniform = ("enable=true", "name=uniform", "candidates=loader")
    ours = train(
        "pods_cero.filter.keep=8",
        *(f"pods_cero.allocator.{option}" for option in uniform),
        *rollouts,
        folder="ours",
    ).check()
    plain = train(
        "pods_cero.filter.enable=false",
        "pods_cero.filter.keep=null",
        "trainer.v1.trainer_mode=sync",
        *rollouts,
        folder="verl",
    ).check()
    same = ("actor/", "critic/", "response_length/", "response/", "prompt_length/", "num_turns/")
    measured = ("actor/perf/",)  # memory and the like
    for mine, verls in zip(ours.steps, plain.steps, strict=True):
        for name in verls:
            if name.startswith(same) and not name.startswith(measured):
                assert mine[name] == pytest.approx(verls[name], rel=1e-4, abs=1e-6), name
        assert mine["perf/total_num_tokens"] == verls["perf/total_num_tokens"]
        assert mine["pods/rollouts_kept"] == mine["cero/rollouts"] == 64
    assert ours.steps[-1]["cero/budget_left"] == 0


def test_a_failing_job_of_a_multirun_leaves_the_others_their_folder_and_ray_session(train, tmp_path, capsys):
    # A scorer of a user's own, of which the first step shows what it reports.
    (tmp_path / "my_scorer.py").write_text(
        "from verl_pods_cero.quickstart import tasks\n"
        "def compute_score(*args, **kwargs):\n"
        "    return tasks.compute_score(*args, **kwargs)\n"
    )
    scorer = f"reward.custom_reward_function.path={tmp_path}/my_scorer.py"
    run = train("pods_cero.filter.ranking_key=accuracy,acc", scorer, multirun=True)
    assert run.status != 0
    first, second = (run.folder / str(job) for job in (0, 1))
    assert read_steps(first) == []
    assert [step["pods/rollouts_kept"] for step in read_steps(second)] == [32]
    assert run.output.count("Started a local Ray instance") == 2
    wrong = "pods_cero.filter.ranking_key is no key of the scorer's reward_extra_info, got 'accuracy'"
    assert wrong in run.output and wrong in (first / "main_ppo.log").read_text()
    assert "did you mean 'acc'? Known: acc, reward, score" in run.output
    assert cli.main(["report", str(run.folder), "--out", str(tmp_path / "report.html")]) == 0
    assert wrong in (tmp_path / "report.html").read_text().replace("&#x27;", "'")


@pytest.mark.slow
def test_two_ranks_share_the_kept_rows_of_groups_of_any_size(train):
    run = train("trainer.n_gpus_per_node=2", "pods_cero.filter.keep=5").check()
    (step,) = run.steps
    assert step["pods/rollouts_kept"] == 40
    assert step["pods/rows_padded"] == 0  # 10 rows a mini-batch, 5 a rank


def test_real_questions_that_all_score_zero_are_said_and_survived_by_two_ranks(train, tmp_path):
    source = published_data.FOLDER / "gsm8k" / "train_first1000.jsonl"
    if not source.exists():
        pytest.skip(published_data.ABSENT)
    rows = str(tmp_path / "train.parquet")
    assert cli.main(["data", "gsm8k", "--source", str(source), "--limit", "64", "--output", str(tmp_path)]) == 0
    questions = (
        f"data.train_files={rows}",
        f"data.val_files={rows}",
        "data.max_prompt_length=600",
        "data.filter_overlong_prompts=true",
        "actor_rollout_ref.rollout.max_model_len=640",
        "reward.custom_reward_function.path=null",
        "trainer.n_gpus_per_node=2",
        "trainer.total_training_steps=2",
    )
    run = train(*questions, "pods_cero.filter.drop_zero_variance=true", "pods_cero.filter.min_prompts=4").check()
    assert [step["pods/zero_variance_fraction"] for step in run.steps] == [1.0, 1.0]
    assert [step["pods/rollouts_kept"] for step in run.steps] == [16, 16]
    assert [step["actor/grad_norm"] for step in run.steps] == [0.0, 0.0]
    assert "every prompt of step 1 has rollouts of one value: nothing to learn from" in run.output


@pytest.mark.slow
def test_a_step_that_keeps_nothing_is_skipped_and_the_run_goes_on(train, tmp_path):
    scorer = tmp_path / "scorer.py"
    scorer.write_text("def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n    return 1.0\n")
    run = train(
        "pods_cero.filter.drop_zero_variance=true",
        f"reward.custom_reward_function.path={scorer}",
        "trainer.total_training_steps=2",
    ).check()
    assert [step["pods/update_skipped"] for step in run.steps] == [1.0, 1.0]
    assert not any("actor/grad_norm" in step for step in run.steps)
    assert "step 1 kept none of its rollouts and makes no update; the run goes on" in run.output


@pytest.mark.slow
def test_a_step_whose_rollouts_all_fail_makes_no_update_and_the_run_goes_on(train, tmp_path):
    # 8 prompts of 8 rollouts: the first step's 64 calls fail; later every 16th returns NaN, and every 32nd other None.
    scorer = tmp_path / "scorer.py"
    scorer.write_text(
        "from pathlib import Path\n"
        "CALLS = Path(__file__).with_name('calls')\n"
        "def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n"
        "    with CALLS.open('a') as file:\n"
        "        file.write('x')\n"
        "    number = CALLS.stat().st_size\n"
        "    if number <= 64:\n"
        "        raise RuntimeError('the sandbox is down')\n"
        "    if number % 32 == 8:\n"
        "        return None\n"
        "    return float('nan') if number % 16 == 0 else float(number % 2)\n"
    )
    run = train(
        f"reward.custom_reward_function.path={scorer}",
        "trainer.total_training_steps=2",
    ).check()
    assert "every rollout of step 1 failed: no update" in run.output
    first, second = run.steps
    assert "actor/grad_norm" not in first
    assert (first["pods/update_skipped"], second["pods/update_skipped"]) == (1.0, 0.0)
    assert second["pods/rollouts_submitted"] == 64
    assert second["pods/rollouts_returned"] == 62
    assert second["pods/rollouts_unscored"] == 4
    assert second["pods/rollouts_generated"] == 58
    assert second["actor/grad_norm"] > 0
    assert "4 of 62 rollouts" in run.output and "2 of 64 rollouts of step 2 did not" in run.output


def test_a_killed_and_resumed_run_makes_the_allocation_that_it_would_have_made(train, tmp_path):
    dump = tmp_path / "rollouts"
    run = (
        "pods_cero.allocator.enable=true",
        "pods_cero.allocator.capacity=64",
        "pods_cero.allocator.dump_prompts=true",
        "trainer.total_training_steps=4",
        "trainer.save_freq=2",
        "trainer.resume_mode=auto",
        f"trainer.default_local_dir={tmp_path}/checkpoints",
        f"trainer.rollout_data_dir={dump}",
    )
    killed = train(*run, folder="killed", kill_when=lambda: (dump / "3.jsonl").exists())
    assert killed.status == -signal.SIGKILL
    checkpoint = tmp_path / "checkpoints" / "global_step_2"
    assert (checkpoint / "pods_cero_allocator.npz").exists()
    assert len(pd.read_parquet(checkpoint / "pods_cero_prompts.parquet")) > 0
    planned = Counter(row["input"] for row in read_json_lines(dump / "3.jsonl"))
    (dump / "3.jsonl").rename(dump / "3_killed.jsonl")

    resumed = train(*run, folder="resumed").check()
    assert [step["training/global_step"] for step in resumed.steps] == [3, 4]
    assert Counter(row["input"] for row in read_json_lines(dump / "3.jsonl")) == planned
    assert [step["cero/budget_left"] for step in resumed.steps] == [64, 0]
    for number, step in zip((3, 4), resumed.steps, strict=True):
        assert step["pods/rollouts_kept"] == 4 * step["cero/prompts"] < step["pods/rollouts_generated"]
        check_filtered_step(step, dump / f"{number}.jsonl")


@pytest.mark.slow
def test_a_scorer_that_calls_exit_fails_its_rollout_and_not_the_run(train, tmp_path):
    scorer = tmp_path / "scorer.py"
    scorer.write_text(
        "import sys\n"
        "def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n"
        "    if len(solution_str) == 2:\n"
        "        sys.exit('no sandbox')\n"
        "    return float(len(solution_str) % 2)\n"
    )
    run = train(f"reward.custom_reward_function.path={scorer}", "pods_cero.max_failed_fraction=1").check()
    (step,) = run.steps
    assert step["pods/rollouts_submitted"] == 64
    assert 0 < step["pods/rollouts_returned"] < 64
    assert "the scorer called sys.exit('no sandbox')" in run.output


@pytest.mark.slow
def test_a_pilot_generates_a_step_in_two_parts_and_spends_as_much_as_one_without(train, tmp_path):
    dump = tmp_path / "rollouts"
    options = ("enable=true", "name=uniform", "candidates=loader", "n_max=16", "unit=2", "pilot=2")
    run = train(
        *(f"pods_cero.allocator.{option}" for option in options),
        f"trainer.rollout_data_dir={dump}",
        "trainer.total_training_steps=2",
    ).check()
    assert [step["cero/rollouts"] for step in run.steps] == [64, 64]
    for number, step in enumerate(run.steps, 1):
        assert 0 < step["cero/pilot_stopped_fraction"] < 1
        check_filtered_step(step, dump / f"{number}.jsonl")
        lines = read_json_lines(dump / f"{number}.jsonl")
        assert len({line["uid"] for line in lines}) == 64
        groups = Counter(line["uid"].rsplit("_", 2)[0] for line in lines)
        passed = Counter(line["uid"].rsplit("_", 2)[0] for line in lines if line["score"] > 0)
        # a prompt that went on beyond its plan had both outcomes
        assert all(0 < passed[uid] < size for uid, size in groups.items() if size > 8)


@pytest.mark.slow
def test_a_server_that_is_killed_ends_the_run_in_time_with_its_name(train, tmp_path):
    dump = tmp_path / "rollouts"
    killed: list[float] = []

    def kill_the_server() -> bool:
        if not killed and (dump / "2.jsonl").exists():
            for process in psutil.process_iter(["cmdline"]):
                if "vLLMHttpServer" in " ".join(process.info["cmdline"] or ()) and str(tmp_path) in str(
                    process.environ()
                ):
                    process.kill()
                    killed.append(time.monotonic())
        return False

    run = train(f"trainer.rollout_data_dir={dump}", "trainer.total_training_steps=500", kill_when=kill_the_server)
    assert killed and run.status == 1
    assert time.monotonic() - killed[0] < 120
    assert "an inference server died" in run.output


@pytest.mark.slow
@pytest.mark.parametrize(
    ("estimator", "options"),
    [
        ("grpo", ("pods_cero.filter.advantage_stats=full_group",)),
        (
            "grpo",
            (
                "algorithm.norm_adv_by_std_in_grpo=false",
                "actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-sum-norm",
            ),
        ),
        ("rloo", ()),
        ("reinforce_plus_plus", ()),
    ],
    ids=["full-group", "dr-grpo", "rloo", "reinforce++"],
)
def test_verls_advantage_estimators_work_behind_the_filter(train, estimator, options):
    run = train(f"algorithm.adv_estimator={estimator}", *options).check()
    (step,) = run.steps
    assert math.isfinite(step["actor/grad_norm"])
    assert step["critic/advantages/max"] > 0 > step["critic/advantages/min"]


@pytest.mark.slow
def test_two_runs_on_one_machine_keep_to_their_own_weights(train):
    def run(seed: int):
        options = (f"quickstart.seed={seed}", "trainer.total_training_steps=3", "pods_cero.filter.keep=4")
        return train(*options, folder=f"seed{seed}").check()

    with ThreadPoolExecutor(2) as both:
        runs = list(both.map(run, (0, 1)))
    for steps in (each.steps for each in runs):
        assert len(steps) == 3
        # An engine with the other run's weights would give its rollouts other probabilities than the trainer.
        assert max(step["training/rollout_probs_diff_max"] for step in steps) < 1e-3
