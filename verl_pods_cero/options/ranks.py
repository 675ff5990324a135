"""The ranks that share the rows of a step."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from omegaconf import DictConfig


def data_parallel_size(config: DictConfig, model: DictConfig | None = None) -> int:
    """Return the number of ranks that share a step's rows, of the actor or of the critic."""
    ranks = int(config.trainer.n_gpus_per_node) * int(config.trainer.nnodes)
    model = config.actor_rollout_ref.actor if model is None else model
    if model.strategy == "megatron":
        names = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size")
        for name in names:
            ranks //= int(model.megatron.get(name) or 1)
        return max(1, ranks)
    return max(1, ranks // sequence_parallel_size(model))


def sequence_parallel_size(model: DictConfig) -> int:
    """Return the ranks that share a sequence (Ulysses): the model's own option, which verl deprecates, comes first."""
    engine = model.get("fsdp_config") or model.get("fsdp") or {}
    sizes = [int(part.get("ulysses_sequence_parallel_size") or 1) for part in (model, engine)]
    return sizes[0] if sizes[0] > 1 else sizes[1]
