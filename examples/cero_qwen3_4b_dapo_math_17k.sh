#!/usr/bin/env bash
# CERO on Qwen3-4B-Base and DAPO-Math-17K, from a plain verl script: the last option is all that is added.
# The run generates the rollouts that it would have generated without it, and CERO chooses for which prompts.
#
#   verl-pods-cero data dapo_math_17k && verl-pods-cero data aime24    (or verl's own files of them)
#   bash examples/cero_qwen3_4b_dapo_math_17k.sh [more options]
#
# What it would do, in numbers: put `verl-pods-cero dry-run` in place of `python3 -m verl.trainer.main_ppo`.
# Hardware: one node of 8 GPUs. Composed and checked, never run on GPUs.
set -euo pipefail

DATA=${DATA:-$PWD/data}
MODEL=${MODEL:-Qwen/Qwen3-4B-Base}

python3 -m verl.trainer.main_ppo \
    algorithm.adv_estimator=grpo \
    data.train_files="$DATA/dapo_math_17k/train.parquet" \
    data.val_files="$DATA/aime24/test.parquet" \
    data.train_batch_size=64 \
    data.max_prompt_length=2048 \
    data.max_response_length=8192 \
    data.filter_overlong_prompts=True \
    data.truncation=error \
    actor_rollout_ref.model.path="$MODEL" \
    actor_rollout_ref.model.use_remove_padding=True \
    actor_rollout_ref.model.enable_gradient_checkpointing=True \
    actor_rollout_ref.actor.optim.lr=1e-6 \
    actor_rollout_ref.actor.ppo_mini_batch_size=32 \
    actor_rollout_ref.actor.use_dynamic_bsz=True \
    actor_rollout_ref.actor.ppo_max_token_len_per_gpu=16384 \
    actor_rollout_ref.actor.use_kl_loss=False \
    actor_rollout_ref.rollout.name=vllm \
    actor_rollout_ref.rollout.n=8 \
    actor_rollout_ref.rollout.tensor_model_parallel_size=1 \
    actor_rollout_ref.rollout.gpu_memory_utilization=0.6 \
    actor_rollout_ref.rollout.log_prob_use_dynamic_bsz=True \
    trainer.logger='["console","file"]' \
    trainer.project_name=pods_cero_examples \
    trainer.experiment_name=cero_qwen3_4b_dapo_math_17k \
    trainer.n_gpus_per_node=8 \
    trainer.nnodes=1 \
    trainer.save_freq=20 \
    trainer.test_freq=5 \
    trainer.total_training_steps=500 \
    +pods_cero=cero \
    "$@"
