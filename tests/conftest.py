"""Fixtures that the unit and the end-to-end tests share."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import settings
from omegaconf import DictConfig, OmegaConf

# The rows of the tests' data files: verl's schema, one prompt each.
ROW = {
    "data_source": "openai/gsm8k",
    "prompt": [{"role": "user", "content": "1+1"}],
    "reward_model": {"style": "rule", "ground_truth": "2"},
    "extra_info": {"index": 0},
}

# A busy machine is no failure.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")

Compose = Callable[..., DictConfig]


@pytest.fixture(scope="session", autouse=True)
def interrupts() -> None:
    """Let Ctrl-C reach the tests' processes where the shell that started them in the background had it ignored."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def repository() -> Path:
    return Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def data_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("data") / "rows.parquet"
    pd.DataFrame([ROW] * 32).to_parquet(path)
    return str(path)


@pytest.fixture(scope="session")
def verl_config(data_file: str) -> DictConfig:
    """Verl's own configuration with our schema, composed once."""
    from hydra import compose, initialize_config_module

    from verl_pods_cero.options.schema import schema

    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose("ppo_trainer")
    OmegaConf.set_struct(config, False)
    config = OmegaConf.merge(config, {"pods_cero": schema().pods_cero})
    config.data.train_files = config.data.val_files = data_file
    config.data.train_batch_size = 16
    config.actor_rollout_ref.actor.ppo_mini_batch_size = 4
    config.actor_rollout_ref.actor.use_dynamic_bsz = True
    config.actor_rollout_ref.rollout.n = 8
    config.algorithm.adv_estimator = "grpo"
    config.trainer.n_gpus_per_node = 1
    config.trainer.v1.trainer_mode = "pods_cero_sync"
    assert isinstance(config, DictConfig)
    return config


@pytest.fixture
def configure(verl_config: DictConfig) -> Compose:
    """Return a function that copies the configuration and sets options on it by name."""

    def with_options(**options: object) -> DictConfig:
        config = verl_config.copy()
        for name, value in {"pods_cero.filter.enable": True, "pods_cero.filter.keep": 4, **options}.items():
            OmegaConf.update(config, name, value, force_add=True)
        return config

    return with_options


@pytest.fixture(scope="session")
def clean_environment() -> dict[str, str]:
    """The environment of a user's shell: nothing of verl's or of ours is set."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("VERL_", "VLLM_", "RAY_"))}
