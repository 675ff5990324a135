"""Sizes that decide what fits: micro-batches, logits, the engine's cache, the driver's reading."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verl_pods_cero.options.update_shape import data_parallel_size, sequence_parallel_size, update_shape
from verl_pods_cero.tools.dry_run.checks import Checked
from verl_pods_cero.tools.dry_run.work import Work

if TYPE_CHECKING:
    from omegaconf import DictConfig

# Bytes that the driver reads of a rollout: float64 of the reward, the ranking value, the outcome and the success.
DRIVER_BYTES = 4 * 8

# Engines of which the logits are known to be tokens times vocabulary on each GPU.
_WHOLE_LOGITS = ("fsdp", "fsdp2")


@dataclass(frozen=True)
class MicroBatches:
    """How the rows of one GPU are split.

    Attributes:
        count: micro-batches, at most.
        rows: of one, at full length.
        tokens: of one on a GPU, at most; padding counts where sequences are padded.
    """

    count: int
    rows: int
    tokens: int


@dataclass(frozen=True)
class Update:
    """What becomes of a step's rows.

    Attributes:
        updates: optimiser updates of the actor a step, `ppo_epochs` passes counted.
        critic_updates: the same of the critic.
        multiple: what the number of rows is padded to a multiple of.
        padded: rows of the step with padding.
        rows: of one update.
        gpu_rows: of one update on a GPU (a group of GPUs, where these share sequences).
        log_prob_rows: through the passes without gradient, before the update.
        split: of `gpu_rows`.
        log_prob_split: of a step's rows on a GPU.
    """

    updates: int
    critic_updates: int
    multiple: int
    padded: int
    rows: int
    gpu_rows: int
    log_prob_rows: int
    split: MicroBatches
    log_prob_split: MicroBatches


def longest_sequence(config: DictConfig) -> int:
    """Return the tokens of the longest prompt and the longest response."""
    return int(config.data.max_prompt_length) + int(config.data.max_response_length)


def update_tokens(config: DictConfig, rows: int) -> int:
    """Return the tokens that updates on so many rows go through, at full length and in all `ppo_epochs` passes."""
    return rows * longest_sequence(config) * _ppo_epochs(config)


def _ppo_epochs(config: DictConfig) -> int:
    return int(config.actor_rollout_ref.actor.get("ppo_epochs") or 1)


def log_prob_passes(checked: Checked) -> tuple[str, ...]:
    """Return the passes without gradient that every row makes before the update."""
    bypass = (checked.config.algorithm.get("rollout_correction") or {}).get("bypass_mode")
    passes = {"old policy": not bypass, "reference": checked.use_reference, "critic": checked.use_critic}
    return tuple(name for name, made in passes.items() if made)


def update(checked: Checked, work: Work) -> Update:
    """Follow the rows of a step into updates, GPUs and micro-batches, by `verl_pods_cero.options.update_shape`."""
    config = checked.config
    actor, rollout = config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout
    ranks = data_parallel_size(config)
    shape = update_shape(config, use_critic=checked.use_critic, use_reference=checked.use_reference)
    padded = shape.padded(work.rows, ranks)
    rows = padded // shape.actor_updates
    critic_epochs = int(config.critic.get("ppo_epochs") or 1)
    return Update(
        updates=shape.actor_updates * _ppo_epochs(config),
        critic_updates=shape.critic_updates * critic_epochs,
        multiple=shape.multiple(ranks),
        padded=padded,
        rows=rows,
        gpu_rows=rows // ranks,
        log_prob_rows=padded * len(log_prob_passes(checked)),
        split=_split(config, rows // ranks, actor, "ppo", actor.use_dynamic_bsz),
        log_prob_split=_split(config, padded // ranks, rollout, "log_prob", rollout.log_prob_use_dynamic_bsz),
    )


def _split(config: DictConfig, rows: int, section: Any, prefix: str, dynamic: bool) -> MicroBatches:
    longest = longest_sequence(config)
    sharing = sequence_parallel_size(config.actor_rollout_ref.actor)
    if not dynamic:
        size = min(rows, int(section.get(f"{prefix}_micro_batch_size_per_gpu") or 1))
        return MicroBatches(-(-rows // size), size, -(-size * longest // sharing))
    limit = int(section[f"{prefix}_max_token_len_per_gpu"]) * sharing
    size = min(rows, max(1, limit // longest))
    tokens = rows * longest
    if config.actor_rollout_ref.model.use_remove_padding:
        # The limit is one on real tokens: padded ones come on top where there are any.
        tokens = min(tokens, limit)
    return MicroBatches(-(-rows // size), size, -(-tokens // sharing))


def token_logits_bytes(config: DictConfig) -> int | str:
    """Return the bytes of one token's logits, or why they are unknown.

    Formula:
        vocabulary * bytes of a number in the precision of the forward pass.
    """
    actor, model = config.actor_rollout_ref.actor, config.actor_rollout_ref.model
    if actor.strategy not in _WHOLE_LOGITS:
        return f"worked out for {' and '.join(_WHOLE_LOGITS)} alone, and not for {actor.strategy}"
    if model.get("use_fused_kernels"):
        return "fused kernels never hold all of them"
    vocabulary = vocabulary_size(config)
    if vocabulary is None:
        return f"model config not on this machine ({model.path})"
    from verl.utils.torch_dtypes import PrecisionType

    precision = (actor.fsdp_config.get("mixed_precision") or {}).get("param_dtype") or "bf16"
    return int(vocabulary * PrecisionType.to_dtype(precision).itemsize)


def vocabulary_size(config: DictConfig) -> int | None:
    """Return `vocab_size` of the model's config.json, from its folder or the Hugging Face cache; nothing is fetched."""
    path = str(config.actor_rollout_ref.model.path)
    file = Path(path).expanduser() / "config.json"
    if not file.is_file():
        from huggingface_hub import try_to_load_from_cache
        from huggingface_hub.errors import HFValidationError

        try:
            cached = try_to_load_from_cache(path, "config.json")
        except HFValidationError:  # a path, and no name on the hub
            return None
        if not isinstance(cached, str):
            return None
        file = Path(cached)
    known = json.loads(file.read_text(encoding="utf-8"))
    size = known.get("vocab_size") or (known.get("text_config") or {}).get("vocab_size")
    return None if size is None else int(size)


def engine_sequences(config: DictConfig, rollouts: int) -> int:
    """Return the sequences that one rollout engine holds at a time, at most.

    Formula:
        min(max_num_seqs, ceil(rollouts / engines)).
    """
    rollout, trainer = config.actor_rollout_ref.rollout, config.trainer
    gpus = int(trainer.n_gpus_per_node) * int(trainer.nnodes)
    parts = int(rollout.tensor_model_parallel_size) * int(rollout.get("pipeline_model_parallel_size") or 1)
    engines = max(1, gpus // parts)
    return min(int(rollout.max_num_seqs), -(-rollouts // engines))


def cache_tokens(config: DictConfig, sequences: int) -> int:
    """Return the tokens that an engine's key-value cache would hold, were all of its sequences at full length."""
    most = config.actor_rollout_ref.rollout.get("max_model_len")
    longest = longest_sequence(config)
    return sequences * (longest if most is None else min(int(most), longest))
