"""What the README and the pages show runs."""

from __future__ import annotations

import re

import verl  # noqa: F401 - loads the plugin, which puts the schema where Hydra finds it
from hydra import compose, initialize_config_dir, initialize_config_module
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.utils.config import validate_config

from tests.unit.test_recipes import many_rows  # noqa: F401 - a fixture
from verl_pods_cero.options.schema import parse


def test_the_recipe_of_the_page_on_pods_is_grpo_with_pods_and_passes_every_check(repository, tmp_path, many_rows):  # noqa: F811
    page = (repository / "docs" / "pods.md").read_text()
    block = re.search(r"```yaml\n(# my_grpo\.yaml\n.*?)```", page, re.DOTALL)
    (tmp_path / "my_grpo.yaml").write_text(block[1])
    command = re.search(
        r"--config-name=my_grpo (data\..*)$", (repository / "docs" / "pods.md").read_text(), re.MULTILINE
    )
    given = [option.partition("=")[0] for option in command[1].split()]
    assert given == ["data.train_files", "data.val_files", "actor_rollout_ref.model.path"]
    files = (f"data.train_files={many_rows}", f"data.val_files={many_rows}", "trainer.total_training_steps=2")
    with initialize_config_dir(str(tmp_path), version_base=None):
        config = compose(
            "my_grpo",
            overrides=["hydra.searchpath=[pkg://verl.trainer.config]", *files],
        )
    assert not need_critic(config), "GRPO has no critic"
    validate_config(config, use_reference_policy=need_reference_policy(config), use_critic=False)
    options = parse(config)
    assert (options.filter.keep, config.actor_rollout_ref.rollout.n) == (16, 64)


def test_the_two_overrides_of_the_readme_turn_verls_default_configuration_into_pods(repository, many_rows):  # noqa: F811
    text = (repository / "README.md").read_text()
    (overrides,) = re.findall(r"^    (\+pods_cero=pods .*)$", text, re.MULTILINE)
    own = [
        f"data.train_files={many_rows}",
        f"data.val_files={many_rows}",
        "algorithm.adv_estimator=grpo",
        "actor_rollout_ref.rollout.n=64",
        "data.train_batch_size=16",
        "actor_rollout_ref.actor.ppo_mini_batch_size=16",
        "actor_rollout_ref.actor.use_dynamic_bsz=true",
    ]
    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose("ppo_trainer", overrides=[*own, *overrides.split()])
    validate_config(config, use_reference_policy=need_reference_policy(config), use_critic=False)
    options = parse(config)
    assert (options.filter.enable, options.filter.keep, config.trainer.v1.trainer_mode) == (True, 16, "pods_cero_sync")
