"""The trainer's overrides in verl's own `fit`: what is generated, kept, trained on, logged, saved and left behind."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from verl.trainer.ppo.v1 import trainer_base
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

from tests.unit.stage import Score, Stage, restore_patches, rows_left, start_transfer_queue
from verl_pods_cero.core.pods import needs
from verl_pods_cero.core.state import StateError
from verl_pods_cero.errors import OptionError, PluginError
from verl_pods_cero.hooks import checkpoint
from verl_pods_cero.hooks.failures import FAILED_STEPS
from verl_pods_cero.hooks.prompts import row_of
from verl_pods_cero.metric_names import ALLOCATION_METRICS, FILTER_METRICS

# torchdata's loader calls it; torch is done with it
pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")

# 4 prompts of 4 rollouts each a step, 2 of which are kept; 2 prompts an update; 32 rows of data
SMALL = {
    "data.train_batch_size": 4,
    "actor_rollout_ref.actor.ppo_mini_batch_size": 2,
    "actor_rollout_ref.rollout.n": 4,
    "pods_cero.filter.keep": 2,
    "trainer.total_training_steps": 2,
}
NO_FILTER = {"pods_cero.filter.enable": False, "pods_cero.filter.keep": None}
# A round of a plain step's rollouts, so that each has four prompts.
ALLOCATOR = {
    "pods_cero.allocator.enable": True,
    "pods_cero.allocator.unit": 2,
    "pods_cero.allocator.capacity": 16,
}
CERO = {**NO_FILTER, **ALLOCATOR}


@pytest.fixture(scope="module")
def transfer_queue() -> Iterator[None]:
    stop = start_transfer_queue()
    yield
    stop()


@pytest.fixture
def stage(transfer_queue, configure, tmp_path, monkeypatch) -> Iterator[Callable[..., Stage]]:
    monkeypatch.setenv("VERL_FILE_LOGGER_ROOT", str(tmp_path))

    def make(score: Score, options: dict[str, object] | None = None, ranks: int = 1, **more: object) -> Stage:
        config = configure(**{**SMALL, "trainer.n_gpus_per_node": ranks, **(options or {})})
        return Stage(config, score, tmp_path, ranks, **more)

    yield make
    restore_patches()
    assert not rows_left(), "a run leaves no row in TransferQueue"


def half_right(_uid: str, session: int, _step: int) -> float:
    return float(session % 2)


def graded(_uid: str, session: int, _step: int) -> tuple[float, dict[str, float]]:
    return session / 4, {"acc": float(session == 3)}


def sessions(keys: list[str]) -> list[int]:
    return sorted(int(key.split("_")[1]) for key in keys)


# ---------------------------------------------------------------------- PODS


@pytest.mark.parametrize("fast", [True, False])
def test_a_step_generates_n_per_prompt_and_updates_on_the_m_that_differ_most(stage, fast):
    run = stage(graded, {"pods_cero.fast_generation": fast})
    logged = run.fit()
    assert len(logged) == len(run.ranks.updates) == 2
    for update in run.ranks.updates:
        assert sessions(update["keys"]) == [0] * 4 + [3] * 4
    assert [step["pods/rollouts_generated"] for step in logged] == [16, 16]
    assert [step["pods/rollouts_kept"] for step in logged] == [8, 8]
    assert logged[0]["critic/score/mean"] == pytest.approx(0.375), "verl's own keys count all that was generated"
    assert logged[0]["pods/reward_mean_kept"] == pytest.approx(0.375)


def test_the_metrics_of_a_run_are_those_of_the_tables(stage):
    run = stage(graded, {"pods_cero.allocator.enable": True, "pods_cero.allocator.unit": 2})
    ours = {name for step in run.fit() for name in step if name.startswith(("pods/", "cero/"))}
    plain = {"cero/rollouts_returned", "cero/rollouts_unscored", "cero/prompts_dropped_single"}
    others = {
        name for name in ALLOCATION_METRICS if any(word in name for word in ("explore", "drift", "prior", "pilot"))
    }
    assert ours == {name for name in {*FILTER_METRICS, *ALLOCATION_METRICS} if "timing_s" not in name} - plain - others


def test_a_mini_batch_is_the_kept_rows_of_its_prompts(stage):
    run = stage(half_right)
    run.fit()
    assert [(update["rows"], update["mini_batch"]) for update in run.ranks.updates] == [(8, 4), (8, 4)]


def test_rows_are_padded_for_the_ranks_and_no_further(stage):
    run = stage(half_right, {"pods_cero.filter.keep": 3, "data.train_batch_size": 2}, ranks=4)
    logged = run.fit()
    assert [update["rows"] for update in run.ranks.updates] == [8, 8]
    assert [step["pods/rows_padded"] for step in logged] == [2, 2]


def test_a_rollout_of_several_rows_is_trained_on_whole(stage):
    run = stage(graded, rows=3)
    run.fit()
    for update in run.ranks.updates:
        assert sessions(update["keys"]) == [0] * 12 + [3] * 12


@pytest.mark.parametrize("options", [{"pods_cero.filter.keep": 4}, NO_FILTER])
def test_keeping_all_is_verls_own_training(stage, options):
    ours = stage(graded, options)
    ours.fit()
    verls = stage(graded, {**NO_FILTER, "trainer.v1.trainer_mode": "sync"}, trainer=PPOTrainerSync, tagged=False)
    verls.fit()
    for mine, theirs in zip(ours.ranks.updates, verls.ranks.updates, strict=True):
        assert (mine["rows"], mine["mini_batch"]) == (theirs["rows"], theirs["mini_batch"]) == (16, 8)

        def by_session(update):
            rows = {(key.split("_")[1], tuple(row.tolist())) for key, row in update["advantages"].items()}
            return sorted(rows)

        assert by_session(mine) == by_session(theirs)


def test_another_agent_loop_than_ours_is_read_from_its_rows(stage):
    run = stage(graded, tagged=False)
    logged = run.fit()
    assert sessions(run.ranks.updates[0]["keys"]) == [0] * 4 + [3] * 4
    assert logged[0]["pods/reward_mean_generated"] == pytest.approx(0.375)
    assert logged[0]["num_turns/mean"] == 2


@needs("response_length", "acc")
def shortest_right(rewards, mask, keep, rng, values):
    """A rule of a user's own: right answers first, the shortest of them before the others."""
    order = np.lexsort((values["response_length"], -values["acc"]), axis=1)
    kept = np.zeros_like(mask)
    np.put_along_axis(kept, order[:, :keep], True, axis=1)
    return kept


def test_a_rule_of_ones_own_may_read_lengths_and_the_scorers_values(stage):
    def score(_uid: str, session: int, _step: int) -> tuple[float, dict[str, float]]:
        return session / 4, {"acc": float(session != 1)}

    run = stage(score, {"pods_cero.filter.rule": "tests.unit.test_trainer:shortest_right"})
    run.fit()
    # right are 0, 2 and 3, whose responses are of 2, 4 and 2 tokens
    assert sessions(run.ranks.updates[0]["keys"]) == [0] * 4 + [3] * 4


@pytest.mark.parametrize("estimator", ["grpo", "grpo_vectorized", "rloo", "rloo_vectorized"])
def test_full_group_advantages_compare_a_kept_rollout_with_all_that_were_generated(stage, estimator):
    run = stage(
        graded, {"pods_cero.filter.advantage_stats": "full_group", "algorithm.adv_estimator": estimator}, ranks=1
    )
    run.fit()
    rewards = np.arange(4) / 4
    if estimator.startswith("grpo"):
        expected = (rewards - rewards.mean()) / (rewards.std(ddof=1) + 1e-6)
    else:
        expected = (rewards - rewards.mean()) * 4 / 3  # against the mean of the other three
    for update in run.ranks.updates:
        for key in update["keys"]:
            session = int(key.split("_")[1])
            assert update["advantages"][key].tolist() == pytest.approx(
                [expected[session]] * len(update["advantages"][key])
            )


def test_subset_advantages_compare_a_kept_rollout_with_the_others_kept(stage):
    run = stage(graded)
    run.fit()
    kept = np.array([0.0, 0.75])
    expected = (kept - kept.mean()) / (kept.std(ddof=1) + 1e-6)
    update = run.ranks.updates[0]
    for key in update["keys"]:
        assert update["advantages"][key][0].item() == pytest.approx(expected[int(key.split("_")[1] == "3")])


def test_the_dump_has_every_generated_rollout_and_says_which_were_kept(stage, tmp_path):
    folder = tmp_path / "rollouts"
    run = stage(graded, {"trainer.rollout_data_dir": str(folder)})
    run.fit()
    lines = [json.loads(line) for line in (folder / "1.jsonl").read_text().splitlines()]
    assert len(lines) == 16
    assert {(line["uid"].split("_")[1], line["kept"]) for line in lines} == {
        ("0", True),
        ("1", False),
        ("2", False),
        ("3", True),
    }


def test_the_dump_of_an_allocator_has_every_rollout_too_those_without_a_number_included(stage, tmp_path):
    folder = tmp_path / "rollouts"

    def score(_uid: str, session: int, _step: int) -> tuple[float, dict[str, float]]:
        return float("nan") if session == 1 else session / 4, {"acc": float(session == 3)}

    stage(score, {**CERO, "trainer.rollout_data_dir": str(folder)}).fit()
    lines = [json.loads(line) for line in (folder / "1.jsonl").read_text().splitlines()]
    assert {(line["uid"].split("_")[1], line["kept"]) for line in lines} == {
        ("0", True),
        ("1", False),
        ("2", True),
        ("3", True),
    }


# ---------------------------------------------------------------------- rollouts that failed


@pytest.mark.parametrize("odd", [float("nan"), float("inf")])
def test_a_rollout_without_a_finite_reward_counts_as_failed(stage, odd):
    run = stage(lambda _uid, session, _step: odd if session == 1 else session / 4)
    logged = run.fit()
    assert [step["pods/rollouts_unscored"] for step in logged] == [4, 4]
    assert [step["pods/rollouts_generated"] for step in logged] == [12, 12]
    assert sessions(run.ranks.updates[0]["keys"]) == [0] * 4 + [3] * 4


def test_a_reward_that_float32_cannot_hold_is_a_failed_rollout_to_verl(stage):
    run = stage(lambda _uid, session, _step: 1e300 if session == 1 else session / 4)
    assert [step["pods/rollouts_generated"] for step in run.fit()] == [12, 12]


def test_a_scorer_that_gives_no_number_at_all_ends_the_run_with_its_name(stage):
    run = stage(lambda *_: (float("nan"), {"acc": 1.0}))
    with pytest.raises(ValueError, match="returned no finite reward for any of 16 rollouts of 4 prompts"):
        run.fit()
    trainer_base.tq.kv_clear(keys=list(rows_left()["train"]), partition_id="train")


def test_a_step_whose_rollouts_all_failed_makes_no_update_and_the_run_goes_on(stage, caplog):
    run = stage(lambda _uid, session, step: None if step == 1 else session / 4, {"trainer.total_training_steps": 3})
    logged = run.fit()
    assert [step["pods/update_skipped"] for step in logged] == [1, 0, 0]
    assert len(run.ranks.updates) == 2
    assert "every rollout of step 1 failed" in caplog.text


def test_a_prompt_that_ended_without_rows_does_not_linger_after_a_step_that_failed(stage):
    def score(uid: str, session: int, step: int) -> float | list[float] | None:
        if step == 1:
            return [] if uid == first(run)[0] else None
        return session / 4

    def first(run: Stage) -> list[str]:
        return run.engine.submitted[0]

    run = stage(score, {"trainer.total_training_steps": 3})
    logged = run.fit()
    assert [step.get("pods/prompts", 0) for step in logged] == [0, 4, 4]


def test_such_steps_in_a_row_end_the_run_after_verls_own_error(stage):
    run = stage(lambda *_: None, {"trainer.total_training_steps": 9})
    with pytest.raises(PluginError, match=r"in step 3 16 of 16 failed .0 came back") as ended:
        run.fit()
    assert "no materializable trajectories" in str(ended.value.__cause__)
    assert len(run.engine.submitted) == FAILED_STEPS
    trainer_base.tq.kv_clear(keys=list(rows_left()["train"]), partition_id="train")


def test_rollouts_that_do_not_come_back_are_counted_and_said(stage, caplog):
    logged = stage(lambda _uid, session, step: None if session == step else session / 4).fit()
    assert [step["pods/rollouts_submitted"] for step in logged] == [16, 16]
    assert [step["pods/rollouts_returned"] for step in logged] == [12, 12]
    assert [step["pods/rollouts_generated"] for step in logged] == [12, 12]
    assert "4 of 16 rollouts of step 2 did not come back" in caplog.text


def test_an_allocator_counts_them_too(stage):
    def score(_uid: str, session: int, _step: int) -> float | None:
        return None if session == 1 else float("nan") if session == 2 else float(session == 3)

    logged = stage(score, CERO).fit()
    assert [step["cero/rollouts"] for step in logged] == [16, 16]
    assert [step["cero/rollouts_returned"] for step in logged] == [12, 12]
    assert [step["cero/rollouts_unscored"] for step in logged] == [4, 4]


def test_steps_in_a_row_that_lose_most_of_their_rollouts_end_the_run(stage):
    def score(_uid: str, session: int, _step: int) -> float | None:
        return None if session == 1 else float("nan") if session == 2 else session / 4

    most = {"trainer.total_training_steps": 5, "pods_cero.max_failed_fraction": 0.4}
    with pytest.raises(PluginError, match=r"max_failed_fraction=0\.4.* in step 3 8 of 16 failed .12 came back, 8 with"):
        stage(score, most).fit()
    trainer_base.tq.kv_clear(keys=list(rows_left()["train"]), partition_id="train")
    assert len(stage(score, most | {"pods_cero.max_failed_fraction": 0.5}).fit()) == 5


def test_a_run_whose_last_steps_all_failed_does_not_end_well(stage):
    run = stage(lambda _uid, session, step: None if step > 1 else session / 4, {"trainer.total_training_steps": 3})
    with pytest.raises(PluginError, match="every rollout of the run's last 2 steps failed"):
        run.fit()


def test_another_error_of_verls_step_passes_through(stage, monkeypatch):
    run = stage(half_right)
    monkeypatch.setattr(run.ranks, "compute_log_prob", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run.fit()
    trainer_base.tq.kv_clear(keys=list(rows_left()["train"]), partition_id="train")


def test_an_empty_batch_of_a_users_own_buffer_is_survived(stage, monkeypatch):
    run = stage(graded)
    sample = run.trainer.replay_buffer.sample

    def none_at_first(**kwargs):
        batch, metrics = sample(**kwargs)
        if kwargs["global_steps"] == 1:
            trainer_base.tq.kv_clear(keys=batch.keys, partition_id="train")
            batch = type(batch)(partition_id="train", keys=[], tags=[], extra_info={})
        return batch, metrics

    monkeypatch.setattr(run.trainer.replay_buffer, "sample", none_at_first)
    assert [step["pods/update_skipped"] for step in run.fit()] == [1, 0]


@pytest.mark.parametrize("dump", [False, True])
def test_a_step_that_keeps_nothing_makes_no_update_and_the_run_goes_on(stage, tmp_path, caplog, dump):
    options = {"pods_cero.filter.drop_zero_variance": True}
    if dump:
        options["trainer.rollout_data_dir"] = str(tmp_path / "rollouts")
    run = stage(lambda _uid, session, step: 1.0 if step == 1 else session / 4, options)
    logged = run.fit()
    assert [step["pods/update_skipped"] for step in logged] == [1, 0]
    assert logged[0]["pods/prompts_dropped_degenerate"] == 4
    assert logged[0]["critic/score/mean"] == 1.0
    assert len(run.ranks.updates) == 1
    assert "step 1 kept none of its rollouts" in caplog.text
    if dump:
        assert len((tmp_path / "rollouts" / "1.jsonl").read_text().splitlines()) == 16


def test_a_verl_that_no_longer_comes_to_the_filter_is_noticed(stage, monkeypatch):
    run = stage(half_right)
    verls = trainer_base.PPOTrainer._step_once

    def without_balance(self, metrics, timing_raw, sample_batch_size):
        monkeypatch.setattr(type(self), "_balance_batch", lambda _self, batch, **_: batch)
        return verls(self, metrics, timing_raw, sample_batch_size)

    monkeypatch.setattr(trainer_base.PPOTrainer, "_step_once", without_balance)
    monkeypatch.setattr(trainer_base.PPOTrainer, "_get_required_batch_multiple", lambda *_: 1, raising=False)
    with pytest.raises(PluginError, match="without calling _balance_batch"):
        run.fit()
    trainer_base.tq.kv_clear(keys=list(rows_left()["train"]), partition_id="train")


# ---------------------------------------------------------------------- CERO


def by_row(run: Stage) -> list[list[int]]:
    return [sorted(row_of(uid) for uid in uids) for uids in run.engine.submitted]


def mixed_rows(uid: str, session: int, _step: int) -> float:
    """Even rows are always right, odd ones half of the time."""
    return float(row_of(uid) % 2 == 0 or session % 2)


def test_an_allocator_spends_its_budget_and_the_run_ends_with_it(stage):
    run = stage(mixed_rows, {**CERO, "pods_cero.allocator.budget": 40, "trainer.total_training_steps": 8})
    logged = run.fit()
    assert logged[-1]["cero/budget_spent"] == 40
    assert logged[-1]["cero/budget_left"] == 0
    assert sum(step["cero/rollouts"] for step in logged) == 40
    assert sum(len(update["keys"]) for update in run.ranks.updates) == 40
    assert logged[0]["cero/effective_prompt_ratio"] == np.mean([row % 2 for row in by_row(run)[0]])


def test_a_prompt_of_one_rollout_is_dropped_without_a_filter_too(stage):
    run = stage(lambda _uid, session, _step: None if session else 1.0, {**CERO, "trainer.total_training_steps": 2})
    logged = run.fit()
    assert [step["cero/prompts_dropped_single"] for step in logged] == [4, 4]
    assert not run.ranks.updates


def test_both_parts_together_filter_what_was_allocated(stage):
    run = stage(mixed_rows, ALLOCATOR)
    logged = run.fit()
    assert [step["cero/rollouts"] for step in logged] == [16, 16]
    assert [step["pods/rollouts_kept"] for step in logged] == [8, 8]


def test_a_run_starts_from_what_an_earlier_one_wrote_down(stage, tmp_path):
    """Rows 0 and 1 are always solved, the others half of the time: the second run knows it from the first step on."""

    def score(uid: str, session: int, _step: int) -> float:
        return float(row_of(uid) < 2 or session % 2)

    first = {"trainer.save_freq": 8, "trainer.total_training_steps": 8, "trainer.resume_mode": "disable"}
    stage(score, {**CERO, **first, "pods_cero.allocator.dump_prompts": True}).fit()
    known = tmp_path / "checkpoints" / "global_step_8" / checkpoint.PROMPTS_FILE
    run = stage(score, {**CERO, "trainer.resume_mode": "disable", "pods_cero.allocator.warm_start": str(known)})
    run.fit()
    assert not {0, 1} & {*by_row(run)[0]}


PILOT = {
    **CERO,
    "pods_cero.allocator.name": "uniform",
    "pods_cero.allocator.candidates": "loader",
    "pods_cero.allocator.capacity": None,
    "pods_cero.allocator.n_max": 8,
    "pods_cero.allocator.pilot": 2,
    "data.shuffle": False,
}


def test_a_pilot_gives_the_rest_of_a_step_to_the_prompts_whose_first_rollouts_disagree(stage):
    run = stage(mixed_rows, PILOT)
    logged = run.fit()
    uids = run.engine.submitted
    assert [len(part) for part in uids] == [4, 2, 4, 2]
    assert set(uids[1]) == {uid for uid in uids[0] if row_of(uid) % 2}
    keys = run.ranks.updates[0]["keys"] + run.ranks.updates[1]["keys"]
    first = Counter(key.rsplit("_", 2)[0] for key in keys if key.rsplit("_", 2)[0] in uids[0])
    assert sorted(first.values()) == [2, 2, 6, 6]
    assert len(set(keys)) == len(keys)
    assert [step["cero/rollouts"] for step in logged] == [16, 16]
    assert [step["cero/pilot_stopped_fraction"] for step in logged] == [0.5, 0.5]
    assert logged[-1]["cero/budget_left"] == 0
    exposures = run.trainer._prompts.allocator.exposures
    assert sorted(exposures[exposures > 0] * 2) == [2, 2, 2, 2, 6, 6, 6, 6]


def test_a_pilot_all_of_which_fails_keeps_the_plan(stage):
    def score(uid: str, session: int, step: int) -> float | None:
        return None if step == 1 and len(run.engine.submitted) % 2 else mixed_rows(uid, session, step)

    run = stage(score, PILOT)
    logged = run.fit()
    assert [len(part) for part in run.engine.submitted][:2] == [4, 4]
    assert [step["cero/rollouts_returned"] for step in logged] == [8, 16]
    assert logged[-1]["cero/budget_left"] == 0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"pods_cero.allocator.pilot": 3}, r"pilot must be a multiple of pods_cero\.allocator\.unit .2."),
        ({"pods_cero.allocator.pilot": 4}, r"below actor_rollout_ref\.rollout\.n .4.*use 2"),
        ({"pods_cero.allocator.n_max": 4}, r"needs room above what a prompt is planned .4 of"),
        (
            {"pods_cero.allocator.name": "cero", "pods_cero.allocator.candidates": "pool"},
            r"8 of pods_cero\.allocator\.n_max=8 with cero",
        ),
    ],
)
def test_a_pilot_that_could_change_nothing_is_refused(stage, change, words):
    with pytest.raises(OptionError, match=words):
        stage(mixed_rows, {**PILOT, **change})


def test_the_loaders_order_can_be_the_candidates(stage):
    options = {**CERO, "pods_cero.allocator.candidates": "loader", "data.shuffle": False}
    run = stage(mixed_rows, {**options, "pods_cero.allocator.capacity": None})
    run.fit()
    assert by_row(run)[0][:4] == [0, 1, 2, 3]


def test_a_batch_of_the_loader_that_leaves_nothing_to_choose_is_refused(stage):
    plain = "data.train_batch_size=4: a round has rollouts enough for all of its 4 prompts, 4 each, as in plain GRPO"
    with pytest.raises(OptionError, match=f"candidates must leave cero a choice .{plain}"):
        stage(mixed_rows, {**CERO, "pods_cero.allocator.candidates": "loader"})


def test_more_prompts_a_batch_than_rows_that_verl_kept_are_refused_by_name(stage, configure):
    options = {**CERO, "pods_cero.allocator.candidates": "loader", "data.train_max_samples": 3}
    with pytest.raises(OptionError, match=r"data\.train_batch_size must be at most"):
        stage(mixed_rows, options)


@pytest.mark.parametrize("name", ["cero", "random_matched", "prioritized"])
@pytest.mark.parametrize("schedule", ["round", "epoch"])
def test_a_run_that_ended_can_be_made_longer_and_spends_the_larger_budget(stage, caplog, name, schedule):
    options = {**CERO, "pods_cero.allocator.name": name, "trainer.save_freq": 1, "trainer.resume_mode": "auto"}
    if schedule == "epoch":
        options |= {"pods_cero.allocator.schedule": "epoch", "pods_cero.allocator.capacity": None}
        options |= {"pods_cero.allocator.rounds": 2}
    short = stage(mixed_rows, {**options, "trainer.total_training_steps": 3}).fit()
    if schedule == "epoch":
        if name == "prioritized":  # it spends an even share in each round; the others may have rounds left
            with pytest.raises(StateError, match="48 rollouts were added to the budget, and no round is left"):
                stage(mixed_rows, {**options, "trainer.total_training_steps": 6})
        options["pods_cero.allocator.rounds"] = 4
    longer = stage(mixed_rows, {**options, "trainer.total_training_steps": 6}).fit()
    assert short[-1]["cero/budget_spent"] == 48
    assert sum(step["cero/rollouts"] for step in [*short, *longer]) == 96
    assert longer[-1]["cero/budget_spent"] == 96
    assert "budget 48 -> 96" in caplog.text


@pytest.mark.parametrize("schedule", ["round", "epoch"])
def test_a_resumed_run_makes_the_allocations_of_the_unbroken_one(stage, tmp_path, schedule):
    options = {
        **CERO,
        "pods_cero.allocator.schedule": schedule,
        "pods_cero.allocator.capacity": 16 if schedule == "round" else None,
        "trainer.total_training_steps": 6,
        "trainer.save_freq": 1,
    }
    whole = stage(mixed_rows, {**options, "trainer.resume_mode": "disable"})
    whole.fit()
    folder = tmp_path / "checkpoints"
    (folder / "latest_checkpointed_iteration.txt").write_text("3")
    rest = stage(mixed_rows, {**options, "trainer.resume_mode": "auto"})
    for step in (4, 5, 6):
        (folder / f"global_step_{step}").rename(folder / f"whole_{step}")
    rest.fit()
    assert by_row(rest) == by_row(whole)[3:]


def test_a_state_of_another_run_is_refused_before_engines_start(stage, tmp_path):
    options = {**CERO, "trainer.save_freq": 1}
    stage(mixed_rows, options).fit()
    with pytest.raises(StateError, match="seed"):
        stage(mixed_rows, {**options, "pods_cero.allocator.seed": 1, "trainer.resume_mode": "auto"})


def test_what_is_known_of_each_prompt_is_written_on_request(stage, tmp_path):
    import pandas as pd

    stage(mixed_rows, {**CERO, "trainer.save_freq": 2, "pods_cero.allocator.dump_prompts": True}).fit()
    table = pd.read_parquet(tmp_path / "checkpoints" / "global_step_2" / "pods_cero_prompts.parquet")
    assert table["rollouts"].sum() == 32
    assert (table["pass_rate"][table["rollouts"] == 0] == 0.5).all()


def test_a_budget_that_ends_unforeseen_is_validated_and_saved_all_the_same(stage, tmp_path, caplog):
    options = {
        **CERO,
        "pods_cero.allocator.name": "tests.unit.test_trainer:Quits",
        "trainer.total_training_steps": 4,
        "trainer.save_freq": 4,
    }
    run = stage(half_right, options)
    run.trainer.config.trainer.test_freq = 4
    logged = run.fit()
    assert len(run.engine.submitted) == 2 + 1, "two steps and a validation"
    assert (tmp_path / "checkpoints" / "global_step_2" / "pods_cero_allocator.npz").is_file()
    assert "the rollout budget ended with step 2" in caplog.text
    assert any(name.startswith("val-core/") for name in logged[-1])


from verl_pods_cero.core.uniform import Uniform  # noqa: E402 - the class below is an allocator of a user's own


class Quits(Uniform):
    """Hands nothing out after two rounds, though its budget is not spent."""

    @property
    def finished(self) -> bool:
        return self.round >= 2 or super().finished

    def plan(self, candidates=None):
        return super().plan(candidates) if self.round < 2 else type(super().plan([])).empty()


def test_the_engine_is_asked_as_often_as_the_options_say(stage):
    run = stage(half_right, {"pods_cero.poll_interval_s": 0.25})
    assert run.trainer.replay_buffer.poll_interval == 0.25
