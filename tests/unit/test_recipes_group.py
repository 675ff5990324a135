"""`+pods_cero=pods`, `cero` or `pods_cero` brings the plugin to any configuration, as the scripts of examples/ do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from verl_pods_cero.errors import OptionError
from verl_pods_cero.options.schema import parse
from verl_pods_cero.tools.dry_run.checks import check
from verl_pods_cero.tools.dry_run.composition import compose_jobs

EXAMPLES = sorted((Path(__file__).parent.parent.parent / "examples").glob("*.sh"))

# What verl's example scripts set on the default configuration, and nothing of ours.
PLAIN = [
    "algorithm.adv_estimator=grpo",
    "data.train_batch_size=64",
    "actor_rollout_ref.rollout.n=32",
    "actor_rollout_ref.actor.ppo_mini_batch_size=32",
    "actor_rollout_ref.actor.use_dynamic_bsz=True",
    "actor_rollout_ref.rollout.log_prob_use_dynamic_bsz=True",
    'trainer.logger=["console","file"]',
    "trainer.n_gpus_per_node=8",
    "trainer.total_training_steps=10",
]


# What the command `verl-pods-cero` runs.
MAIN = "from verl_pods_cero.tools.cli import main; raise SystemExit(main())"


def jobs(*arguments: str, plain: list[str] = PLAIN):
    return compose_jobs([*arguments, *plain])[1]


@pytest.mark.parametrize(
    ("choice", "parts"), [("pods", (True, False)), ("cero", (False, True)), ("pods_cero", (True, True))]
)
def test_a_choice_switches_its_parts_and_our_trainer_on(choice, parts):
    keep = ["pods_cero.filter.keep=16"] if parts[0] else []
    [job] = jobs(f"+pods_cero={choice}", *keep)
    options = check(job.config).options
    assert (options.filter.enable, options.allocator.enable) == parts
    assert options.filter.keep == (16 if parts[0] else None)
    assert job.config.trainer.v1.trainer_mode == "pods_cero_sync"


@pytest.mark.parametrize("name", ["ppo_trainer", "ppo_megatron_trainer"])
def test_nothing_else_of_the_users_run_changes(name):
    [stock] = jobs(f"--config-name={name}")
    [ours] = jobs(f"--config-name={name}", "+pods_cero=pods", "pods_cero.filter.keep=16")
    OmegaConf.set_struct(ours.config, False)
    del ours.config["pods_cero"]
    ours.config.trainer.v1.trainer_mode = stock.config.trainer.v1.trainer_mode
    assert ours.config == stock.config


@pytest.mark.parametrize("plus", ["", "+"])
def test_a_misspelt_option_gets_its_nearest_match(plus):
    [job] = jobs("+pods_cero=pods", f"{plus}pods_cero.filter.kep=3")
    with pytest.raises(OptionError, match=r"pods_cero\.filter\.kep is no option.*got 3.*did you mean 'keep'"):
        parse(job.config)


def test_pods_asks_for_the_number_that_is_kept():
    [job] = jobs("+pods_cero=pods")
    with pytest.raises(OptionError, match=r"pods_cero\.filter\.keep or .* must be set.*set pods_cero\.filter\.keep=8"):
        check(job.config)


def test_a_sweep_has_a_job_for_each_value():
    three = jobs("-m", "+pods_cero=pods", "pods_cero.filter.keep=8,16,32")
    assert [check(job.config).options.filter.keep for job in three] == [8, 16, 32]
    parts = jobs("-m", "+pods_cero=pods,cero")
    assert [parse(job.config).allocator.enable for job in parts] == [False, True]


def test_every_job_of_a_sweep_gets_a_ray_session_of_its_own():
    from hydra import compose, initialize_config_module

    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose("ppo_trainer", overrides=["+pods_cero=pods"], return_hydra_config=True)
    assert "RayPerJob" in config.hydra.callbacks.pods_cero._target_


def test_the_options_of_a_recipe_stay_where_a_choice_is_added_to_it():
    [job] = jobs("--config-name=quickstart_cpu", "+pods_cero=pods", plain=[])
    assert parse(job.config).filter.keep == 4


def arguments_of(script: Path, folder: Path, python: str) -> subprocess.CompletedProcess[str]:
    """Run a script of verl's kind with another `python3` in front of the real one."""
    stub = folder / "python3"
    stub.write_text(f"#!/bin/sh\nshift 2\n{python}\n")
    stub.chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "DATA": "/none"}
    return subprocess.run(
        ["bash", script, "data.train_max_samples=7473"],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
        cwd=folder,
    )


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_composes_and_passes_verls_checks_and_ours(script, tmp_path):
    given = arguments_of(script, tmp_path, "printf '%s\\n' \"$@\"").stdout.splitlines()
    composed = jobs(plain=given)
    assert len({job.config.trainer.experiment_name for job in composed}) == len(composed)
    for job in composed:
        options = check(job.config).options
        assert ("cero" in script.stem.replace("pods_cero", "cero")) == options.allocator.enable
        assert ("pods" in script.stem or "keep" in script.stem) == options.filter.enable


def test_the_dry_run_takes_the_arguments_of_an_example(tmp_path):
    [script] = [path for path in EXAMPLES if path.stem == "sweep_keep_qwen2.5_3b_gsm8k"]
    out = arguments_of(script, tmp_path, f"exec {sys.executable} -c '{MAIN}' dry-run \"$@\"").stdout
    assert [f"job {number}: pods_cero.filter.keep={m}" in out for number, m in enumerate((8, 16, 32))] == [True] * 3
