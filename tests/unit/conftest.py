"""Fixtures of the recipes' tests: composed once a session, checked as verl does before it starts Ray."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from omegaconf import DictConfig


@pytest.fixture(scope="session")
def recipe_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.unit.gpu_recipes import write_data

    folder = tmp_path_factory.mktemp("recipe_data")
    write_data(folder)
    return folder


@pytest.fixture(scope="session")
def recipe(recipe_data: Path) -> Callable[..., DictConfig]:
    from tests.unit.gpu_recipes import composer

    return composer(recipe_data)


@pytest.fixture
def verl_checks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[DictConfig], None]]:
    """Verl's own validation, with ours in it, and what its workers assert later.

    For LoRA verl asks vLLM which ranks it takes. Importing vLLM takes long, and only its CPU build is here: the
    ranks that verl itself falls back on stand in for it.
    """
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config

    from tests.unit.gpu_recipes import check_what_workers_assert

    name = "verl.workers.rollout.vllm_rollout.utils"
    utilities = types.ModuleType(name)
    ranks = (1, 8, 16, 32, 64, 128, 256, 320, 512)
    utilities.get_vllm_max_lora_rank = lambda rank: min(known for known in ranks if rank <= known)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, name.rpartition(".")[0], types.ModuleType(name.rpartition(".")[0]))
    monkeypatch.setitem(sys.modules, name, utilities)

    def check(config: DictConfig) -> None:
        critic, reference = need_critic(config), need_reference_policy(config)
        validate_config(config, use_reference_policy=reference, use_critic=critic)
        check_what_workers_assert(config)

    yield check


@pytest.fixture
def vllm_rollout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let modules of verl's vLLM rollout be imported without its package, which imports vLLM itself."""
    from verl.workers import rollout

    package = types.ModuleType("verl.workers.rollout.vllm_rollout")
    package.__path__ = [str(Path(rollout.__path__[0]) / "vllm_rollout")]
    monkeypatch.setitem(sys.modules, package.__name__, package)
