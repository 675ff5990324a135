"""The recipes hold the numbers of the papers: PODS, arXiv 2504.13818; CERO, arXiv 2606.05606 and 2610.09679."""

from __future__ import annotations

import pytest
from omegaconf import OmegaConf

from tests.unit.gpu_recipes import CHOSEN, RUNS, header, rows_a_step
from verl_pods_cero.options.update_shape import update_shape

# The columns of the tables below, by the option that holds each.
MODEL, ACTOR, ROLLOUT = (f"actor_rollout_ref.{part}" for part in ("model", "actor", "rollout"))
OPTIONS = {
    "model": f"{MODEL}.path",
    "n": f"{ROLLOUT}.n",
    "m": "pods_cero.filter.keep",
    "filter": "pods_cero.filter.enable",
    "rule": "pods_cero.filter.rule",
    "prompts": "data.train_batch_size",
    "mini-batch": f"{ACTOR}.ppo_mini_batch_size",
    "prompt tokens": "data.max_prompt_length",
    "response tokens": "data.max_response_length",
    "T": f"{ROLLOUT}.temperature",
    "lr": f"{ACTOR}.optim.lr",
    "lr schedule": f"{ACTOR}.optim.lr_scheduler_type",
    "warm-up": f"{ACTOR}.optim.lr_warmup_steps_ratio",
    "betas": f"{ACTOR}.optim.betas",
    "weight decay": f"{ACTOR}.optim.weight_decay",
    "gradient norm": f"{ACTOR}.optim.clip_grad",
    "KL in the loss": f"{ACTOR}.use_kl_loss",
    "KL in the reward": "algorithm.use_kl_in_reward",
    "KL weight": f"{ACTOR}.kl_loss_coef",
    "clip low": f"{ACTOR}.clip_ratio_low",
    "clip high": f"{ACTOR}.clip_ratio_high",
    "LoRA r": f"{MODEL}.lora_rank",
    "LoRA alpha": f"{MODEL}.lora_alpha",
    "GPUs": "trainer.n_gpus_per_node",
    "allocator": "pods_cero.allocator.enable",
    "allocator name": "pods_cero.allocator.name",
    "schedule": "pods_cero.allocator.schedule",
    "budget": "pods_cero.allocator.budget",
    "rounds": "pods_cero.allocator.rounds",
    "unit": "pods_cero.allocator.unit",
    "N_max": "pods_cero.allocator.n_max",
    "capacity": "pods_cero.allocator.capacity",
    "rho": "pods_cero.allocator.rho",
    "lambda": "pods_cero.allocator.lam",
    "pool": "pods_cero.allocator.candidates",
    "training rows": "data.train_max_samples",
}

ONE_GPU = {
    "GPUs": 1,
    "prompts": 1,
    "mini-batch": 1,
    "prompt tokens": 512,
    "response tokens": 512,
    "T": 0.9,
    "lr": 5e-6,
    "lr schedule": "constant",
    "warm-up": 0.01,
    "betas": [0.9, 0.99],
    "weight decay": 0.1,
    "gradient norm": 0.1,
    "KL in the reward": False,
    "LoRA r": 64,
    "LoRA alpha": 64,
    "allocator": False,
}
QWEN_ONE_GPU = {**ONE_GPU, "model": "Qwen/Qwen2.5-3B-Instruct", "KL in the loss": False}
LLAMA_ONE_GPU = {
    **ONE_GPU,
    "model": "meta-llama/Llama-3.2-3B-Instruct",
    "KL in the loss": True,
    "KL weight": 0.04,
}
EIGHT_GPUS = {
    "GPUs": 8,
    "prompt tokens": 512,
    "response tokens": 1024,
    "lr": 2e-5,
    "lr schedule": "cosine",
    "warm-up": 0.1,
    "KL in the loss": False,
    "KL in the reward": False,
    "LoRA r": 0,
    "allocator": False,
}
CERO = {
    "filter": False,
    "allocator": True,
    "allocator name": "cero",
    "pool": "pool",
    "rho": 1.0,
    "lambda": 1.0,
    "lr": 1e-6,
    "lr schedule": "constant",
    "T": 1.0,
    "clip low": 0.2,
    "clip high": 0.28,
    "mini-batch": 32,
    "prompt tokens": 2048,
    "response tokens": 2048,
    "training rows": 8960,
}
# in rollouts: 64,000, 132 and 2 units of 4
ROUND = {**CERO, "schedule": "round", "unit": 4, "N_max": 8, "capacity": 528, "budget": 256_000, "rounds": 500}
EPOCH = {**CERO, "schedule": "epoch", "capacity": None}


def pods(n, m):
    return {"n": n, "m": m, "filter": True, "rule": "max_variance"}


def grpo(n):
    return {"n": n, "m": None, "filter": False}


PUBLISHED = {
    "pods_gsm8k_qwen2.5_3b_lora": {**QWEN_ONE_GPU, **pods(64, 16)},
    "grpo_gsm8k_qwen2.5_3b_lora": {**QWEN_ONE_GPU, **grpo(16)},
    "pods_math_qwen2.5_3b_lora": {**QWEN_ONE_GPU, **pods(32, 8)},
    "grpo_math_qwen2.5_3b_lora": {**QWEN_ONE_GPU, **grpo(8)},
    "pods_gsm8k_llama3.2_3b_lora": {**LLAMA_ONE_GPU, **pods(64, 16)},
    "grpo_gsm8k_llama3.2_3b_lora": {**LLAMA_ONE_GPU, **grpo(16)},
    "pods_gsm8k_qwen2.5_3b_full": {**EIGHT_GPUS, **pods(128, 32), "model": "Qwen/Qwen2.5-3B-Instruct"},
    "grpo_ga_gsm8k_qwen2.5_3b_full": {**EIGHT_GPUS, **grpo(32), "model": "Qwen/Qwen2.5-3B-Instruct"},
    "pods_gsm8k_qwen2.5_7b_full": {**EIGHT_GPUS, **pods(128, 32), "model": "Qwen/Qwen2.5-7B-Instruct"},
    "grpo_ga_gsm8k_qwen2.5_7b_full": {**EIGHT_GPUS, **grpo(32), "model": "Qwen/Qwen2.5-7B-Instruct"},
    **{
        f"cero_{schedule}_dapo_{short}": {**numbers, "model": model}
        for schedule, numbers in (("round", ROUND), ("epoch", EPOCH))
        for short, model in (
            ("deepseek_r1_1.5b", "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B"),
            ("qwen3_4b_base", "Qwen/Qwen3-4B-Base"),
            ("qwen3_4b_instruct", "Qwen/Qwen3-4B-Instruct-2507"),
            ("qwen2.5_math_7b", "Qwen/Qwen2.5-Math-7B"),
        )
    },
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_recipe_holds_the_published_numbers(name, recipe):
    config = recipe(name)
    found = {column: OmegaConf.select(config, OPTIONS[column]) for column in PUBLISHED[name]}
    assert found == PUBLISHED[name]


def test_a_recipe_that_is_not_published_says_so():
    assert set(RUNS) == set(PUBLISHED) | CHOSEN
    assert all("chosen here" in header(name).lower() for name in CHOSEN)


@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("pods_gsm8k_qwen2.5_3b_full", 4),
        ("pods_gsm8k_qwen2.5_7b_full", 4),
        ("grpo_ga_gsm8k_qwen2.5_3b_full", 16),
        ("grpo_ga_gsm8k_qwen2.5_7b_full", 16),
    ],
)
def test_an_update_accumulates_the_published_number_of_micro_batches(name, steps, recipe):
    config = recipe(name)
    updates = update_shape(config, use_critic=False, use_reference=False).actor_updates
    rows_a_gpu = rows_a_step(config) // 8 // updates
    assert updates == 1
    assert rows_a_gpu == steps * config.actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu
    assert config.data.train_batch_size * config.actor_rollout_ref.rollout.n == 4096


@pytest.mark.parametrize("name", [name for name in PUBLISHED if name.endswith("_lora")])
def test_an_update_on_one_gpu_is_one_micro_batch(name, recipe):
    config = recipe(name)
    assert config.actor_rollout_ref.actor.ppo_max_token_len_per_gpu >= rows_a_step(config) * (512 + 512)
    assert update_shape(config, use_critic=False, use_reference=False).actor_updates == 1
