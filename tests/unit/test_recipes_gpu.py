"""The recipes of the published settings compose over verl's configuration and pass every check there is."""

from __future__ import annotations

import re

import pytest
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

from tests.unit.gpu_recipes import RUNS
from verl_pods_cero.errors import OptionError
from verl_pods_cero.options.allocator import allocator_settings
from verl_pods_cero.options.schema import parse
from verl_pods_cero.options.update_shape import data_parallel_size


def flat(node, path=""):
    """Options by their full names."""
    if not isinstance(node, dict) or not node:
        return {path: node}
    parts = [flat(value, f"{path}.{key}" if path else key) for key, value in node.items()]
    return {name: value for part in parts for name, value in part.items()}


@pytest.mark.parametrize("name", RUNS)
def test_a_recipe_passes_verls_checks_and_ours(name, recipe, verl_checks):
    config = recipe(name)
    verl_checks(config)
    assert config.trainer.v1.trainer_mode == "pods_cero_sync"
    assert config.reward.custom_reward_function.path == "pkg://verl_pods_cero.rewards"


@pytest.mark.parametrize(
    ("option", "value", "error"),
    [
        ("pods_cero.filter.keep", 65, OptionError),
        ("actor_rollout_ref.model.lora_rank", 600, ValueError),
        ("actor_rollout_ref.rollout.max_model_len", 1000, AssertionError),
        ("data.train_files", "nowhere.parquet", OptionError),
    ],
)
def test_a_recipe_with_a_wrong_number_does_not_pass(option, value, error, recipe, verl_checks):
    config = recipe("pods_gsm8k_qwen2.5_3b_lora")
    OmegaConf.update(config, option, value)
    with pytest.raises(error):
        verl_checks(config)


@pytest.mark.parametrize("hardware", ["gpu_1", "gpus_8", "nodes_2x8"])
@pytest.mark.parametrize("name", ["pods_gsm8k_qwen2.5_3b_lora", "grpo_ga_gsm8k_qwen2.5_3b_full"])
def test_a_recipe_fits_other_hardware(name, hardware, recipe, verl_checks):
    config = recipe(name, f"hardware={hardware}")
    verl_checks(config)
    assert data_parallel_size(config) == {"gpu_1": 1, "gpus_8": 8, "nodes_2x8": 16}[hardware]
    assert config.ray_kwargs.ray_init.get("address") == ("auto" if hardware == "nodes_2x8" else None)


# What recipes add to verl's configuration; whatever else is new is misspelt.
ADDED = re.compile(
    r"(recipe|pods_cero)\..*|reward\.custom_reward_function\.reward_kwargs\.(format|tag)_weight"
    r"|ray_kwargs\.ray_init\.runtime_env\.env_vars\.VERL_FILE_LOGGER_ROOT"
)


@pytest.fixture(scope="module")
def verls_options():
    with initialize_config_module("verl.trainer.config", version_base=None):
        return set(flat(OmegaConf.to_container(compose("ppo_trainer"))))


@pytest.mark.parametrize("name", RUNS)
def test_every_option_of_a_recipe_is_one_of_verls_or_ours(name, recipe, verls_options):
    options = set(flat(OmegaConf.to_container(recipe(name))))
    assert {option for option in options - verls_options if not ADDED.fullmatch(option)} == set()


BASELINES = {name: re.sub("^grpo(_ga)?", "pods", name) for name in RUNS if name.startswith("grpo")}


@pytest.mark.parametrize("baseline", BASELINES)
def test_a_baseline_differs_from_its_recipe_in_the_method_alone(baseline, recipe):
    theirs, ours = (flat(OmegaConf.to_container(recipe(name))) for name in (baseline, BASELINES[baseline]))
    differs = {name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name)}
    sizes = {"data.train_batch_size", "actor_rollout_ref.actor.ppo_mini_batch_size"}
    method = {"actor_rollout_ref.rollout.n", "pods_cero.filter.enable", "pods_cero.filter.keep"}
    assert differs == method | {"trainer.experiment_name"} | (sizes if "_ga_" in baseline else set())


@pytest.mark.parametrize("schedule", ["round", "epoch"])
@pytest.mark.parametrize("allocator", ["random_matched", "uniform"])
def test_a_control_has_ceros_budget(schedule, allocator, recipe, verl_checks):
    name = f"cero_{schedule}_dapo_qwen3_4b_base"
    control = recipe(name, f"algo={allocator}_{schedule}")
    assert control.trainer.experiment_name == f"{allocator}_{schedule}_dapo_qwen3_4b_base"
    assert control.pods_cero.allocator.name == allocator
    cero, other = (
        allocator_settings(config, parse(config).allocator, num_prompts=8960) for config in (recipe(name), control)
    )
    assert cero.budget == other.budget == {"round": 64_000 * 4, "epoch": 5 * 140 * 64 * 8}[schedule]
    verl_checks(control)


def test_a_seed_reaches_everything_random(recipe):
    config = recipe("pods_gsm8k_qwen2.5_3b_lora", "recipe.seed=7")
    seeds = ("data", "actor_rollout_ref.rollout", "actor_rollout_ref.actor.fsdp_config")
    ours = ("pods_cero.filter", "pods_cero.allocator")
    assert {OmegaConf.select(config, f"{part}.seed") for part in (*seeds, *ours)} == {7}
