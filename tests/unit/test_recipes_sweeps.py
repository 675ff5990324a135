"""The sweep recipes run the published values, each job checked and in its own folder."""

from __future__ import annotations

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from tests.unit.gpu_recipes import SWEEPS

SWEPT = {
    "sweep_n_gsm8k_qwen2.5_3b_lora": {"actor_rollout_ref.rollout.n": [16, 32, 64, 128, 256]},
    "sweep_m_gsm8k_qwen2.5_3b_lora": {"pods_cero.filter.keep": [16, 8, 4, 2]},
    "sweep_rules_gsm8k_qwen2.5_3b_lora": {
        "pods_cero.filter.rule": ["max_variance", "max_reward", "random", "percentile"]
    },
    "sweep_seeds_gsm8k_qwen2.5_3b_lora": {"recipe.seed": list(range(10))},
    "sweep_allocators_dapo_qwen3_4b_base": {
        "algo": ["cero_round", "random_matched_round", "uniform_round"],
        "recipe.seed": [0, 1, 2],
    },
}


def test_every_sweep_is_in_the_table():
    assert set(SWEPT) == set(SWEEPS)


@pytest.mark.parametrize("name", SWEEPS)
def test_a_sweep_runs_the_published_values_without_a_flag(name, recipe):
    config = recipe(name, hydra=True)
    assert config.hydra.mode.name == "MULTIRUN"
    params = config.hydra.sweeper.params
    parsed = OverridesParser.create().parse_overrides([f"{key}={value}" for key, value in params.items()])
    swept = {part.key_or_group: [str(value) for value in part.sweep_string_iterator()] for part in parsed}
    assert swept == {key: [str(value) for value in values] for key, values in SWEPT[name].items()}


@pytest.mark.parametrize("name", SWEEPS)
def test_every_job_of_a_sweep_passes_the_checks(name, recipe, verl_checks):
    values = SWEPT[name]
    for group in values.get("algo", [None]):
        config = recipe(name, *([f"algo={group}"] if group else []))
        options = {option: choices for option, choices in values.items() if option not in ("algo", "recipe.seed")}
        for option, choices in (options or {"recipe.seed": [1]}).items():
            for choice in choices:
                job = config.copy()
                OmegaConf.update(job, option, choice)
                verl_checks(job)


def test_a_job_of_a_multirun_has_a_folder_named_by_its_options_and_a_ray_session_of_its_own(recipe):
    job = ("actor_rollout_ref.rollout.n=32", "pods_cero.filter.rule=random", "hardware=gpus_8")
    hydra = recipe("sweep_n_gsm8k_qwen2.5_3b_lora", *job, hydra=True).hydra
    assert hydra.sweep.subdir == "actor_rollout_ref.rollout.n=32,pods_cero.filter.rule=random"
    assert hydra.sweep.dir.startswith("multirun/sweep_n_gsm8k_qwen2.5_3b_lora/")
    assert "RayPerJob" in hydra.callbacks.pods_cero._target_
