"""How many optimiser updates a step makes, how many ranks share its rows, and how many rows they need."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from verl_pods_cero.options.schema import BASE_MODES

if TYPE_CHECKING:
    from omegaconf import DictConfig


@dataclass(frozen=True)
class UpdateShape:
    """Updates a step and the row counts that its workers accept.

    A step of `prompts` prompts makes `ceil(prompts / ppo_mini_batch_size)` optimiser updates
    (verl's `actor.ppo_mini_batch_size` counts prompts), however many rows a prompt has left. A rank's
    rows must split into that many mini-batches, and, where micro-batches have a fixed size, each of these
    into whole micro-batches.

    Attributes:
        actor_updates: optimiser updates of the actor a step.
        critic_updates: the same of the critic, 0 without one.
        actor_micro: rows of an actor's micro-batch, 1 where token limits make them.
        critic_micro: the same of the critic.
        forward_micro: what the passes without gradient need a rank's rows to be a multiple of.

    >>> UpdateShape(actor_updates=4, critic_updates=0).padded(rows=30, data_parallel=2)
    32
    """

    actor_updates: int
    critic_updates: int
    actor_micro: int = 1
    critic_micro: int = 1
    forward_micro: int = 1

    @property
    def rank_multiple(self) -> int:
        """Rows of one data-parallel rank must be a multiple of this.

        Formula:
            lcm(actor_updates actor_micro, critic_updates critic_micro, forward_micro), without the critic's where
            there is none.
        """
        critic = self.critic_updates * self.critic_micro or 1
        return math.lcm(self.actor_updates * self.actor_micro, critic, self.forward_micro)

    def fitted(self, rows: int, data_parallel: int) -> UpdateShape:
        """Return a shape with fewer updates where so few rows would leave one of them nothing but padding.

        A loss over padding alone is 0 / 0, or a step of the optimiser on no gradient at all.

        Formula:
            the most u <= updates with ceil(rows / P) > (u - 1) padded(u) / (P u), for P data-parallel ranks: padding
            comes last on a rank, and the last mini-batch of the fullest rank must begin before it.

        >>> UpdateShape(actor_updates=2, critic_updates=0).fitted(rows=8, data_parallel=8).actor_updates
        1
        """
        shape = self
        while True:
            updates = max(shape.actor_updates, shape.critic_updates)
            before_last = (updates - 1) * shape.padded(rows, data_parallel) // (data_parallel * updates)
            if updates == 1 or -(-rows // data_parallel) > before_last:
                return shape
            fewer = updates - 1
            shape = replace(
                shape,
                actor_updates=min(shape.actor_updates, fewer),
                critic_updates=min(shape.critic_updates, fewer),
            )

    def multiple(self, data_parallel: int) -> int:
        """Return what the step's number of rows must be a multiple of."""
        return data_parallel * self.rank_multiple

    def padded(self, rows: int, data_parallel: int) -> int:
        """Return the number of rows after padding."""
        multiple = self.multiple(data_parallel)
        return -(-rows // multiple) * multiple


def update_shape(
    config: DictConfig, *, use_critic: bool, use_reference: bool, actor_trains: bool = True
) -> UpdateShape:
    """Read the shape of a step's updates from verl's configuration.

    Args:
        config: verl's whole configuration.
        use_critic: a critic is trained.
        use_reference: log-probabilities of a reference policy are computed.
        actor_trains: false during `trainer.critic_warmup`.
    """
    mode = BASE_MODES.get(config.trainer.v1.trainer_mode, config.trainer.v1.trainer_mode)
    sync_steps = config.trainer.v1.get(mode, {}).get("parameter_sync_step", 1)
    prompts = config.data.train_batch_size // sync_steps
    actor, rollout, ref = (config.actor_rollout_ref[part] for part in ("actor", "rollout", "ref"))

    def updates(mini_batch_prompts: int) -> int:
        return max(1, -(-int(prompts) // int(mini_batch_prompts)))

    actor_updates = updates(actor.ppo_mini_batch_size) if actor_trains else 1
    actor_micro = _fixed(actor, "ppo_micro_batch_size_per_gpu", "use_dynamic_bsz") if actor_trains else 1
    critic_updates = updates(config.critic.ppo_mini_batch_size) if use_critic else 0
    critic_micro = _fixed(config.critic, "ppo_micro_batch_size_per_gpu", "use_dynamic_bsz") if use_critic else 1
    forward = [_fixed(rollout, "log_prob_micro_batch_size_per_gpu", "log_prob_use_dynamic_bsz")]
    if use_reference:
        forward.append(_fixed(ref, "log_prob_micro_batch_size_per_gpu", "log_prob_use_dynamic_bsz"))
    if use_critic:
        forward.append(_fixed(config.critic, "forward_micro_batch_size_per_gpu", "use_dynamic_bsz"))
    return UpdateShape(actor_updates, critic_updates, actor_micro, critic_micro, math.lcm(*forward))


def _fixed(section: Any, size: str, dynamic: str) -> int:
    """Return the fixed micro-batch size, or 1 where token limits make the micro-batches."""
    return 1 if section.get(dynamic) else int(section.get(size) or 1)


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
