"""Bad input is refused before Ray starts, and the message says what to do."""

from __future__ import annotations

import dataclasses

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from verl_pods_cero.core.pods import needs
from verl_pods_cero.errors import OptionError
from verl_pods_cero.options.checks import validate
from verl_pods_cero.options.schema import AllocatorOptions, FilterOptions, parse, schema
from verl_pods_cero.options.update_shape import data_parallel_size

FILTER = "pods_cero.filter."
ALLOCATOR = "pods_cero.allocator."
SCORER = "reward.custom_reward_function."


def check(config):
    return validate(config, use_critic=False, use_reference=False)


def test_a_good_configuration_gives_typed_options(configure):
    options = check(configure())
    assert options.filter.enable is True
    assert options.filter.keep == 4
    assert options.filter.rule == "max_variance"


def test_a_stock_configuration_is_left_alone(configure):
    config = configure(**{"trainer.v1.trainer_mode": "sync"})
    del config["pods_cero"]
    assert check(config) is None


def test_a_baseline_recipe_runs_verls_own_trainer(configure):
    config = configure(**{FILTER + "enable": False, FILTER + "keep": None, "trainer.v1.trainer_mode": "sync"})
    assert check(config).filter.enable is False


OFF = {FILTER + "enable": False, FILTER + "keep": None}


def test_a_trainer_of_another_plugin_is_accepted_where_no_part_of_ours_is_on(configure):
    other = {"trainer.v1.trainer_mode": "diffusion_sync"}
    assert check(configure(**OFF, **other)).filter.enable is False
    with pytest.raises(OptionError, match=r"must be one of pods_cero_sync while pods_cero\.filter\.enable=true"):
        check(configure(**other))
    with pytest.raises(OptionError, match=r"names no trainer, got 'pods_cero_synk'.*did you mean 'pods_cero_sync'"):
        check(configure(**OFF, **{"trainer.v1.trainer_mode": "pods_cero_synk"}))


def rule_of_two_arguments(rewards, mask):
    return mask


@needs("lenght")
def needs_more(rewards, mask, keep, rng, values):
    return mask & (mask.cumsum(axis=1) <= keep)


# option that the message must name, options to set, what the message must say
BAD = [
    ("keep > n", {FILTER + "keep": 9}, [FILTER + "keep", "8", "9"]),
    ("keep < 2", {FILTER + "keep": 1}, [FILTER + "keep", "2", "1"]),
    ("fraction 0", {FILTER + "keep": None, FILTER + "keep_fraction": 0.0}, [FILTER + "keep_fraction", "0.0"]),
    ("fraction > 1", {FILTER + "keep": None, FILTER + "keep_fraction": 1.5}, [FILTER + "keep_fraction", "1.5"]),
    ("both given", {FILTER + "keep_fraction": 0.5}, [FILTER + "keep", FILTER + "keep_fraction"]),
    ("neither given", {FILTER + "keep": None}, [FILTER + "keep", FILTER + "keep_fraction"]),
    ("unknown rule", {FILTER + "rule": "max_varience"}, [FILTER + "rule", "max_varience", "'max_variance'"]),
    ("unknown option", {FILTER + "kepe": 4}, [FILTER + "kepe", "'keep'"]),
    ("unknown group", {"pods_cero.filtre": {}}, ["pods_cero.filtre", "'filter'"]),
    ("wrong type", {FILTER + "keep": "many"}, [FILTER + "keep", "many"]),
    ("one rollout", {"actor_rollout_ref.rollout.n": 1}, ["actor_rollout_ref.rollout.n", "at least 2", "1"]),
    ("unknown mode", {"trainer.v1.trainer_mode": "pods_sync"}, ["trainer.v1.trainer_mode", "'pods_cero_sync'"]),
    ("stock trainer", {"trainer.v1.trainer_mode": "sync"}, ["trainer.v1.trainer_mode", "pods_cero_sync"]),
    ("v0 trainer", {"trainer.use_v1": False}, ["trainer.use_v1", "true"]),
    (
        "indivisible mini-batch",
        {"actor_rollout_ref.actor.ppo_mini_batch_size": 5},
        ["actor_rollout_ref.actor.ppo_mini_batch_size", "data.train_batch_size=16", "1, 2, 4, 8, 16"],
    ),
    ("statistics", {FILTER + "advantage_stats": "ful_group"}, [FILTER + "advantage_stats", "'full_group'"]),
    (
        "group statistics of tokens",
        {FILTER + "advantage_stats": "full_group", "algorithm.adv_estimator": "reinforce_plus_plus"},
        [FILTER + "advantage_stats", "reinforce_plus_plus", "grpo"],
    ),
    (
        "group statistics with a KL penalty",
        {FILTER + "advantage_stats": "full_group", "algorithm.use_kl_in_reward": True},
        [FILTER + "advantage_stats", "use_kl_in_reward", "use_kl_loss"],
    ),
    ("remax", {"algorithm.adv_estimator": "remax"}, ["algorithm.adv_estimator", "remax"]),
    ("floor alone", {FILTER + "min_prompts": 2}, [FILTER + "min_prompts", "drop_zero_variance"]),
    (
        "floor above the batch",
        {FILTER + "min_prompts": 17, FILTER + "drop_zero_variance": True},
        [FILTER + "min_prompts", "data.train_batch_size=16"],
    ),
    ("empty key", {FILTER + "ranking_key": ""}, [FILTER + "ranking_key"]),
    ("keep without enable", {FILTER + "enable": False}, [FILTER + "keep", "enable"]),
    ("poll interval", {"pods_cero.poll_interval_s": 0}, ["pods_cero.poll_interval_s", "0"]),
    ("an hour between looks", {"pods_cero.poll_interval_s": 3600.0}, ["poll_interval_s", "at most 60", "3600.0"]),
    ("no interval", {"pods_cero.poll_interval_s": float("nan")}, ["pods_cero.poll_interval_s", "nan"]),
    ("all equal", {"pods_cero.zero_variance_tolerance": 1.0}, ["pods_cero.zero_variance_tolerance", "below 1", "1.0"]),
    ("no tolerance", {"pods_cero.zero_variance_tolerance": float("nan")}, ["zero_variance_tolerance", "nan"]),
    ("a text for all options", {"pods_cero": "foo"}, ["pods_cero must be a group of options", "'foo'"]),
    ("a text for a group", {"pods_cero.filter": "on"}, ["pods_cero.filter must be a group of options", "'on'"]),
    ("a group for a number", {FILTER + "keep": {"a": 1}}, [FILTER + "keep must be a whole number or null", "{'a': 1}"]),
    ("a text for a number", {FILTER + "keep_fraction": "half"}, [FILTER + "keep_fraction must be a number", "'half'"]),
    ("nothing for a switch", {FILTER + "enable": None}, [FILTER + "enable must be true or false", "None"]),
    ("a name that leads nowhere", {FILTER + "keep": "${none}"}, ["pods_cero", "Interpolation key 'none' not found"]),
    ("no GPU", {"trainer.n_gpus_per_node": 0}, ["trainer.n_gpus_per_node", "at least 1", "0"]),
    ("half a GPU", {"trainer.n_gpus_per_node": 1.5}, ["trainer.n_gpus_per_node", "whole number", "1.5"]),
    ("too many GPUs", {"trainer.n_gpus_per_node": 1e308}, ["trainer.n_gpus_per_node", "whole number", "1e+308"]),
    ("no steps", {"trainer.total_training_steps": 0}, ["trainer.total_training_steps", "at least 1", "0"]),
    ("steps for ever", {"trainer.total_training_steps": float("inf")}, ["total_training_steps", "whole number", "inf"]),
    ("a text for steps", {"trainer.total_training_steps": "foo"}, ["total_training_steps", "whole number", "'foo'"]),
    ("a text for a limit", {"actor_rollout_ref.rollout.max_model_len": "foo"}, ["rollout.max_model_len", "'foo'"]),
    ("never saved", {"trainer.save_freq": "foo"}, ["trainer.save_freq", "whole number", "'foo'"]),
    ("no way to resume", {"trainer.resume_mode": "aut"}, ["trainer.resume_mode", "'aut'", "'auto'"]),
    ("a text for prompts", {"data.train_batch_size": "foo"}, ["data.train_batch_size", "whole number", "'foo'"]),
    ("filter seed", {FILTER + "seed": -1}, [FILTER + "seed", "-1"]),
    (
        "two steps a sync",
        {"trainer.v1.sync": {"parameter_sync_step": 2}},
        ["trainer.v1.sync.parameter_sync_step", "must be 1"],
    ),
    ("more prompts than rows", {"data.train_batch_size": 4096}, ["data.train_batch_size", "number of rows", "4096"]),
    ("larger loader batches than rows", {"data.gen_batch_size": 4096}, ["data.gen_batch_size", "number of rows"]),
    (
        "a rule that fails",
        {FILTER + "rule": "tests.unit.test_options:rule_of_two_arguments"},
        [FILTER + "rule", "must choose", "TypeError"],
    ),
    (
        "a key where a reward model scores",
        {"reward.reward_model.enable": True, FILTER + "ranking_key": "acc"},
        [FILTER + "ranking_key", "must be reward", "enable_resource_pool=true"],
    ),
    (
        "a scorer that is not there",
        {
            "reward.custom_reward_function.path": "pkg://verl_pods_cero.rewards",
            "reward.custom_reward_function.name": "compute_scor",
        },
        ["reward.custom_reward_function must lead to a function", "compute_scor"],
    ),
    (
        "a rule's value that our scorer does not report",
        {SCORER + "path": "pkg://verl_pods_cero.rewards", FILTER + "rule": "tests.unit.test_options:needs_more"},
        [FILTER + "rule (needs lenght)", "is no key of the scorer's", "got 'lenght'"],
    ),
    (
        "a key that our scorer does not report",
        {SCORER + "path": "pkg://verl_pods_cero.rewards", FILTER + "ranking_key": "accc"},
        [FILTER + "ranking_key", "did you mean 'acc'"],
    ),
    (
        "a text to rank by",
        {SCORER + "path": "pkg://verl_pods_cero.rewards", FILTER + "ranking_key": "pred"},
        [FILTER + "ranking_key must be a number", "'pred'", "use reward or acc"],
    ),
    ("half a rollout", {"actor_rollout_ref.rollout.n": 64.5}, ["actor_rollout_ref.rollout.n", "whole number", "64.5"]),
    ("no prompts", {"data.train_batch_size": -1}, ["data.train_batch_size", "at least 1", "-1"]),
    ("no file", {"data.train_files": "/none/train.parquet"}, ["data.train_files", "/none/train.parquet"]),
]

# The same of the allocator's own options.
BAD_ALLOCATOR = [
    ("rounds without end", {"rounds": 10**20}, ["rounds", "at most 1,000,000,000"]),
    ("rollouts without end", {"n_max": 10**20}, ["n_max", "at most 1,000,000,000"]),
    ("lam that leaves no duals", {"lam": 1e-308}, ["lam", "between 1e-06 and 1e+06", "1e-308"]),
    ("a prior that is all", {"prior_failures": 1e308}, ["prior_failures", "1e+308"]),
    ("no success key", {"success_key": ""}, ["success_key", "use acc"]),
    ("no threshold", {"success_threshold": float("nan")}, ["success_threshold", "finite", "nan"]),
    ("out of reach", {"success_threshold": float("inf")}, ["success_threshold", "finite", "inf"]),
]
BAD += [
    (name, {ALLOCATOR + "enable": True, **{ALLOCATOR + option: value for option, value in options.items()}}, words)
    for name, options, words in BAD_ALLOCATOR
]


@pytest.mark.parametrize(("options", "words"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_bad_input_is_refused_with_the_option_the_value_and_the_fix(configure, options, words):
    with pytest.raises(OptionError) as caught:
        check(configure(**options))
    message = str(caught.value)
    for word in [*words, "Fix: "]:
        assert word in message, message


def test_a_data_file_without_the_columns_is_refused_with_those_it_has(configure, tmp_path):
    path = tmp_path / "rows.parquet"
    pd.DataFrame([{"question": "1+1", "answer": "2"}]).to_parquet(path)
    message = r"data\.val_files must have the columns .*: prompt, data_source, reward_model missing.*question"
    with pytest.raises(OptionError, match=message):
        check(configure(**{"data.val_files": str(path)}))


def test_a_data_file_that_is_no_parquet_is_refused(configure, tmp_path):
    path = tmp_path / "rows.parquet"
    path.write_text("not parquet")
    with pytest.raises(OptionError, match=r"data\.train_files must name parquet files"):
        check(configure(**{"data.train_files": str(path)}))


def test_our_trainer_without_our_options_is_refused(configure):
    config = configure()
    del config["pods_cero"]
    with pytest.raises(OptionError, match="pods_cero_schema"):
        check(config)


def test_micro_batches_of_a_fixed_size_must_split_the_kept_rows(configure):
    fixed = {
        "actor_rollout_ref.actor.use_dynamic_bsz": False,
        "actor_rollout_ref.rollout.log_prob_use_dynamic_bsz": False,
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu": 8,
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": 8,
    }
    assert check(configure(**fixed)).filter.keep == 4
    with pytest.raises(OptionError, match=r"ppo_micro_batch_size_per_gpu.*use_dynamic_bsz=true"):
        check(configure(**fixed, **{FILTER + "keep": 3}))


@pytest.mark.parametrize(
    ("options", "ranks"),
    [
        ({"trainer.n_gpus_per_node": 8}, 8),
        ({"trainer.n_gpus_per_node": 8, "trainer.nnodes": 2}, 16),
        ({"trainer.n_gpus_per_node": 8, "actor_rollout_ref.actor.ulysses_sequence_parallel_size": 2}, 4),
        ({"trainer.n_gpus_per_node": 8, "actor_rollout_ref.actor.fsdp_config.ulysses_sequence_parallel_size": 4}, 2),
    ],
)
def test_ranks_that_share_rows_are_counted_without_the_parallel_ones(configure, options, ranks):
    assert data_parallel_size(configure(**options)) == ranks


# Values of every kind, those that numbers go wrong at among them.
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([-1, 0, 1, 2, 4, 8, 10**9, 10**20, 10**400]),
    st.floats(),
    st.sampled_from(
        ["", "acc", "reward", "cero", "knapsack", "epoch", "loader", "percentile", "a.b:c", ".:x", "os:path"]
    ),
    st.text(max_size=8),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=4), st.integers(), max_size=2),
)
GROUPS = {"filter": FilterOptions, "allocator": AllocatorOptions}
NAMES = ["poll_interval_s", "zero_variance_tolerance"]
NAMES += [f"{group}.{field.name}" for group, options in GROUPS.items() for field in dataclasses.fields(options)]
SIZES = [
    "trainer.n_gpus_per_node",
    "trainer.total_training_steps",
    "data.train_batch_size",
    "actor_rollout_ref.rollout.n",
]


@pytest.fixture
def config(configure):
    return configure(**{"trainer.total_training_steps": 8})


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    filtering=st.booleans(),
    allocating=st.booleans(),
    options=st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=4),
    size=st.tuples(st.sampled_from(SIZES), VALUES | st.just(4)),
)
def test_whatever_is_written_is_accepted_or_refused_in_one_line(config, filtering, allocating, options, size):
    config.pods_cero = schema().pods_cero
    given_options = {
        "filter.enable": filtering,
        "filter.keep": 4 if filtering else None,
        "allocator.enable": allocating,
    }
    for name, value in {**given_options, **options}.items():
        OmegaConf.update(config, f"pods_cero.{name}", value, force_add=True)
    before = OmegaConf.select(config, size[0])
    OmegaConf.update(config, *size)
    try:
        check(config)
    except OptionError as error:
        assert "Fix: " in str(error)
    finally:
        OmegaConf.update(config, size[0], before)


def test_a_critic_of_other_ranks_than_the_actors_is_refused(configure):
    options = {"trainer.n_gpus_per_node": 8, "actor_rollout_ref.actor.ulysses_sequence_parallel_size": 2}
    config = configure(**options)
    with pytest.raises(OptionError, match=r"critic's data-parallel size must be the actor's, 4.*got 8"):
        validate(config, use_critic=True, use_reference=False)
    config.critic.ulysses_sequence_parallel_size = 2
    assert validate(config, use_critic=True, use_reference=False)


def test_the_schema_holds_every_option_with_its_default():
    assert parse(schema()).filter.keep is None


def test_an_estimator_that_is_nearly_one_of_verls_is_refused_before_the_first_generation(configure):
    config = configure(**{"algorithm.adv_estimator": "gpro"})
    with pytest.raises(OptionError, match=r"adv_estimator names no estimator, got 'gpro'. Fix: did you mean 'grpo'"):
        validate(config, use_critic=False, use_reference=False)
    own = configure(**{"algorithm.adv_estimator": "registered_by_a_user"})
    assert validate(own, use_critic=False, use_reference=False) is not None


def test_a_scorer_that_says_what_it_reports_is_held_to_it(configure):
    scorer = {"reward.custom_reward_function.path": "pkg://verl_pods_cero.quickstart.tasks"}
    config = configure(**scorer, **{"pods_cero.filter.ranking_key": "accuracy"})
    with pytest.raises(OptionError, match=r"ranking_key is no key .* got 'accuracy'. Fix: did you mean 'acc'"):
        validate(config, use_critic=False, use_reference=False)


def test_an_allocator_that_serves_every_prompt_in_every_round_is_warned_of(configure, caplog):
    check(configure(**OFF, **{ALLOCATOR + "enable": True, "data.train_batch_size": 32}))
    assert (
        "pods_cero.allocator.name=cero changes nothing here: a round has rollouts enough for all of its 32"
        in caplog.text
    )
