"""What the tests of the GPU recipes share: their names, how they are composed, and the checks that they must pass."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import verl  # noqa: F401 - loads the plugin, which puts the recipes on Hydra's search path
from hydra import compose, initialize_config_module
from omegaconf import DictConfig

from tests.conftest import ROW
from verl_pods_cero.plugin import recipes_folder
from verl_pods_cero.tools.datasets.catalog import CATALOG

FOLDER = Path(recipes_folder())
RECIPES = sorted(path.stem for path in FOLDER.glob("*.yaml") if not path.stem.endswith("_cpu"))
SWEEPS = [name for name in RECIPES if name.startswith("sweep_")]
RUNS = [name for name in RECIPES if name not in SWEEPS]

# Settings that no paper gives.
CHOSEN = {
    "pods_sciknoweval_qwen2.5_3b_lora",
    "grpo_sciknoweval_qwen2.5_3b_lora",
    "pods_cero_dapo_qwen3_4b_base",
    "pods_cero_gsm8k_qwen2.5_3b_lora",
}

# Rows of the training sets that a recipe depends on: DAPO-Math-17K without duplicates.
ROWS = {"dapo_math_17k": 17_398}

# Tokens that a model takes; from the config.json of each.
LONGEST = {
    "Qwen/Qwen2.5-3B-Instruct": 32_768,
    "Qwen/Qwen2.5-7B-Instruct": 32_768,
    "meta-llama/Llama-3.2-3B-Instruct": 131_072,
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B": 131_072,
    "Qwen/Qwen3-4B-Base": 32_768,
    "Qwen/Qwen3-4B-Instruct-2507": 262_144,
    "Qwen/Qwen2.5-Math-7B": 4_096,
}

Recipe = Callable[..., DictConfig]


def write_data(folder: Path) -> None:
    """Write the files that `verl-pods-cero data` would write, with one row over and over."""
    for entry in CATALOG.values():
        table = pa.Table.from_pylist([{**ROW, "data_source": entry.data_source}])
        many = table.take(pa.array([0] * ROWS.get(entry.name, 128)))
        (folder / entry.name).mkdir()
        for split in ("train", "test"):
            pq.write_table(many, folder / entry.name / f"{split}.parquet")


def composer(data_folder: Path) -> Recipe:
    """Return a function that composes a recipe with overrides, each choice once."""
    # Outside a Hydra job there is no working directory and no output folder to interpolate.
    folders = (f"recipe.data_folder={data_folder}", "recipe.run_folder=run")
    composed: dict[tuple[object, ...], DictConfig] = {}

    def recipe(name: str, *overrides: str, hydra: bool = False) -> DictConfig:
        key = (name, hydra, *overrides)
        if key not in composed:
            with initialize_config_module("verl.trainer.config", version_base=None):
                composed[key] = compose(name, overrides=[*folders, *overrides], return_hydra_config=hydra)
        return composed[key].copy()

    return recipe


def header(name: str) -> str:
    """Return what a recipe says before its first key."""
    return re.split(r"^[a-z]", (FOLDER / f"{name}.yaml").read_text(), maxsplit=1, flags=re.MULTILINE)[0]


def rows_a_step(config: DictConfig) -> int:
    """Return the rows of the update of a step in which every prompt gets n rollouts."""
    options = config.pods_cero.filter
    return int(config.data.train_batch_size * (options.keep if options.enable else config.actor_rollout_ref.rollout.n))


def check_what_workers_assert(config: DictConfig) -> None:
    """Check the rules that verl and vLLM check in a worker, minutes into a run."""
    from verl.utils.config import omega_conf_to_dataclass

    actor, rollout, data = config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout, config.data
    longest = data.max_prompt_length + data.max_response_length
    assert longest <= rollout.max_model_len <= LONGEST[config.actor_rollout_ref.model.path]
    assert rollout.max_num_batched_tokens >= max(rollout.max_num_seqs, rollout.max_model_len)
    assert actor.use_dynamic_bsz == rollout.log_prob_use_dynamic_bsz
    if actor.use_dynamic_bsz:
        assert min(actor.ppo_max_token_len_per_gpu, rollout.log_prob_max_token_len_per_gpu) >= longest
    else:
        assert min(actor.ppo_micro_batch_size_per_gpu, rollout.log_prob_micro_batch_size_per_gpu) > 0
    gpus = config.trainer.nnodes * config.trainer.n_gpus_per_node
    assert gpus % (rollout.tensor_model_parallel_size * rollout.data_parallel_size) == 0
    if config.actor_rollout_ref.model.lora_rank:
        assert rollout.load_format == "safetensors"
    for part in (actor, actor.optim, actor.fsdp_config, rollout, config.algorithm):
        omega_conf_to_dataclass(part)
