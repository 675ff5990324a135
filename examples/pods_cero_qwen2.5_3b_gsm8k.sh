#!/usr/bin/env bash
# Both on Qwen2.5-3B-Instruct and GSM8K, from a plain verl script: the last two options are all that is added.
# CERO chooses the prompts of a step, under the budget of the run without it; of the 32 rollouts of each, PODS keeps
# the 8 with the largest reward variance for the update.
#
#   verl-pods-cero data gsm8k && verl-pods-cero data gsm8k --split test    (or verl's own files of GSM8K)
#   bash examples/pods_cero_qwen2.5_3b_gsm8k.sh [more options]
#
# What it would do, in numbers: put `verl-pods-cero dry-run` in place of `python3 -m verl.trainer.main_ppo`.
# Hardware: one node of 8 GPUs. Composed and checked, never run on GPUs.
set -euo pipefail

DATA=${DATA:-$PWD/data/gsm8k}
MODEL=${MODEL:-Qwen/Qwen2.5-3B-Instruct}

python3 -m verl.trainer.main_ppo \
    algorithm.adv_estimator=grpo \
    data.train_files="$DATA/train.parquet" \
    data.val_files="$DATA/test.parquet" \
    data.train_batch_size=128 \
    data.max_prompt_length=512 \
    data.max_response_length=1024 \
    data.filter_overlong_prompts=True \
    data.truncation=error \
    actor_rollout_ref.model.path="$MODEL" \
    actor_rollout_ref.model.use_remove_padding=True \
    actor_rollout_ref.model.enable_gradient_checkpointing=True \
    actor_rollout_ref.actor.optim.lr=1e-6 \
    actor_rollout_ref.actor.ppo_mini_batch_size=64 \
    actor_rollout_ref.actor.use_dynamic_bsz=True \
    actor_rollout_ref.actor.ppo_max_token_len_per_gpu=16384 \
    actor_rollout_ref.actor.use_kl_loss=False \
    actor_rollout_ref.rollout.name=vllm \
    actor_rollout_ref.rollout.n=32 \
    actor_rollout_ref.rollout.tensor_model_parallel_size=1 \
    actor_rollout_ref.rollout.gpu_memory_utilization=0.6 \
    actor_rollout_ref.rollout.log_prob_use_dynamic_bsz=True \
    trainer.logger='["console","file"]' \
    trainer.project_name=pods_cero_examples \
    trainer.experiment_name=pods_cero_qwen2.5_3b_gsm8k \
    trainer.n_gpus_per_node=8 \
    trainer.nnodes=1 \
    trainer.save_freq=20 \
    trainer.test_freq=5 \
    trainer.total_epochs=5 \
    +pods_cero=pods_cero \
    pods_cero.filter.keep=8 \
    "$@"
