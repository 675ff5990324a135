"""Every recipe for the CPU composes over verl's configuration and passes verl's checks and ours."""

from __future__ import annotations

from pathlib import Path

import pytest
import verl  # noqa: F401 - loads the plugin, which puts the recipes on Hydra's search path
from hydra import compose, initialize_config_module
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.utils.config import validate_config

from verl_pods_cero.plugin import recipes_folder

RECIPES = sorted(path.stem for path in Path(recipes_folder()).glob("*_cpu.yaml"))


def compose_recipe(name: str, data_file: str, *overrides: str):
    # Outside a job there is no output folder to interpolate.
    folders = ("trainer.default_local_dir=run", "ray_kwargs.ray_init.runtime_env.env_vars.VERL_FILE_LOGGER_ROOT=run")
    files = (f"data.train_files={data_file}", f"data.val_files={data_file}", *folders)
    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose(name, overrides=[*files, *overrides])


@pytest.fixture(scope="session")
def many_rows(tmp_path_factory):
    import pandas as pd

    from tests.conftest import ROW

    path = tmp_path_factory.mktemp("data") / "rows.parquet"
    pd.DataFrame([ROW] * 64).to_parquet(path)
    return str(path)


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_composes_and_passes_verls_checks_and_ours(name, many_rows):
    config = compose_recipe(name, many_rows)
    validate_config(config, use_reference_policy=need_reference_policy(config), use_critic=need_critic(config))
    assert config.trainer.v1.trainer_mode == "pods_cero_sync"


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_says_what_it_is_and_how_it_is_launched(name):
    head = (Path(recipes_folder()) / f"{name}.yaml").read_text().split("defaults:")[0]
    assert f"python -m verl.trainer.main_ppo --config-name={name}" in head


def test_the_recipes_differ_in_what_they_are_about(many_rows):
    switches = {
        name: (config.pods_cero.filter.enable, config.pods_cero.allocator.enable, config.pods_cero.allocator.name)
        for name in RECIPES
        for config in [compose_recipe(name, many_rows)]
    }
    assert switches == {
        "quickstart_cpu": (True, False, "cero"),
        "cero_cpu": (False, True, "cero"),
        "uniform_cpu": (False, True, "uniform"),
        "random_matched_cpu": (False, True, "random_matched"),
        "pods_cero_cpu": (True, True, "cero"),
        "pods_cero_smollm2_cpu": (True, True, "cero"),
    }
