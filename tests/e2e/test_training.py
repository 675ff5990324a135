"""The PODS filter inside stock verl, with real Ray, TransferQueue, FSDP2 and vLLM."""

from __future__ import annotations

import json
import math

import pandas as pd
import pytest

from verl_pods_cero.hooks.metrics import FILTER_METRICS

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


def test_a_step_generates_n_and_updates_on_m(train, tmp_path):
    run = train(
        "pods_cero.filter.keep=4",
        "trainer.total_training_steps=3",
        f"trainer.rollout_data_dir={tmp_path}/rollouts",
    ).check()
    assert [step["training/global_step"] for step in run.steps] == [1, 2, 3]
    for number, step in enumerate(run.steps, 1):
        assert step["pods/rollouts_generated"] == 16 * 16
        assert step["pods/rollouts_kept"] == 16 * 4
        assert step["pods/rows_padded"] == 0
        assert step["pods/reward_variance_kept"] >= step["pods/reward_variance_generated"]
        assert set(FILTER_METRICS) <= set(step)
        assert step["critic/score/mean"] == pytest.approx(step["pods/reward_mean_generated"], abs=1e-6)
        dumped = [json.loads(line) for line in (tmp_path / "rollouts" / f"{number}.jsonl").open()]
        assert len(dumped) == 256
        assert sum(row["kept"] for row in dumped) == 64
        assert sum(row["score"] for row in dumped) / 256 == pytest.approx(step["critic/score/mean"], abs=1e-6)


def test_keeping_every_rollout_trains_as_verls_own_trainer_does(train, tmp_path):
    rollouts = (
        "skip.rollout_tq.enable=true",
        "skip.rollout_tq.steps=[1,2]",
        f"skip.rollout_tq.dump_dir={tmp_path}/dump",
        "trainer.total_training_steps=2",
    )
    ours = train("pods_cero.filter.keep=16", *rollouts, folder="ours").check()
    plain = train(
        "pods_cero.filter.enable=false",
        "pods_cero.filter.keep=null",
        "trainer.v1.trainer_mode=sync",
        *rollouts,
        folder="verl",
    ).check()
    same = ("actor/", "critic/", "response_length/", "response/", "prompt_length/", "num_turns/", "training/")
    for mine, verls in zip(ours.steps, plain.steps, strict=True):
        for name in verls:
            if name.startswith(same):
                assert mine[name] == pytest.approx(verls[name], rel=1e-6, abs=1e-9), name
        assert mine["perf/total_num_tokens"] == verls["perf/total_num_tokens"]
        assert mine["pods/rollouts_kept"] == 256


def test_a_multirun_gives_each_job_its_own_folder_and_ray_session(train):
    run = train("pods_cero.filter.keep=4,8", "trainer.total_training_steps=2", multirun=True).check()
    kept = [
        [json.loads(line)["data"]["pods/rollouts_kept"] for line in log.open()]
        for log in sorted(run.folder.rglob("quickstart_cpu.jsonl"))
    ]
    assert kept == [[64, 64], [128, 128]]
    assert run.output.count("Started a local Ray instance") == 2


def test_two_ranks_share_the_kept_rows_of_groups_of_any_size(train):
    run = train("trainer.n_gpus_per_node=2", "pods_cero.filter.keep=5", "data.train_batch_size=8").check()
    (step,) = run.steps
    assert step["pods/rollouts_kept"] == 40
    assert step["pods/rows_padded"] == 0


def test_a_ranking_key_that_the_scorer_lacks_stops_at_the_first_reward_with_the_keys_there_are(train):
    run = train("pods_cero.filter.ranking_key=accuracy")
    assert run.status != 0
    assert "pods_cero.filter.ranking_key is no key of the scorer's reward_extra_info" in run.output
    assert "acc, reward" in run.output


def test_real_questions_that_all_score_zero_are_said_and_survived(train, repository, tmp_path):
    source = repository.parent / "shared" / "data" / "gsm8k" / "train_first1000.jsonl"
    if not source.exists():
        pytest.skip("the GSM8K questions are not part of the repository")
    rows = [
        {
            "data_source": "openai/gsm8k",
            "prompt": [{"role": "user", "content": row["question"][:60]}],
            "reward_model": {"style": "rule", "ground_truth": row["answer"].split("####")[1].strip()},
            "extra_info": {"index": number},
        }
        for number, row in enumerate(map(json.loads, source.open()))
        if number < 64
    ]
    pd.DataFrame(rows).to_parquet(tmp_path / "gsm8k.parquet")
    questions = (
        f"data.train_files={tmp_path}/gsm8k.parquet",
        f"data.val_files={tmp_path}/gsm8k.parquet",
        "data.max_prompt_length=128",
        "actor_rollout_ref.rollout.max_model_len=160",
        "reward.custom_reward_function.path=null",
        "trainer.total_training_steps=2",
    )
    degenerate = train(*questions, folder="kept").check()
    assert [step["pods/zero_variance_fraction"] for step in degenerate.steps] == [1.0, 1.0]
    assert [step["pods/update_skipped"] for step in degenerate.steps] == [0.0, 0.0]
    assert "every prompt of step 1 has rollouts of one value" in degenerate.output
    dropped = train(*questions, "pods_cero.filter.drop_zero_variance=true", folder="dropped").check()
    assert [step["pods/update_skipped"] for step in dropped.steps] == [1.0, 1.0]
    assert "step 1 kept none of its rollouts and makes no update" in dropped.output


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
