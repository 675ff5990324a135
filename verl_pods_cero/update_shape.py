"""How many optimiser updates a step makes, and how many rows they need."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from verl_pods_cero.config import BASE_MODES

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
        rank_multiple: rows of one data-parallel rank must be a multiple of this.

    >>> UpdateShape(actor_updates=4, critic_updates=0, rank_multiple=4).padded(rows=30, data_parallel=2)
    32
    """

    actor_updates: int
    critic_updates: int
    rank_multiple: int

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
    multiples = [
        actor_updates * actor_micro,
        _fixed(rollout, "log_prob_micro_batch_size_per_gpu", "log_prob_use_dynamic_bsz"),
    ]
    if use_reference:
        multiples.append(_fixed(ref, "log_prob_micro_batch_size_per_gpu", "log_prob_use_dynamic_bsz"))
    if use_critic:
        critic = config.critic
        multiples.append(critic_updates * _fixed(critic, "ppo_micro_batch_size_per_gpu", "use_dynamic_bsz"))
        multiples.append(_fixed(critic, "forward_micro_batch_size_per_gpu", "use_dynamic_bsz"))
    return UpdateShape(actor_updates, critic_updates, math.lcm(*multiples))


def _fixed(section: Any, size: str, dynamic: str) -> int:
    """Return the fixed micro-batch size, or 1 where token limits make the micro-batches."""
    return 1 if section.get(dynamic) else int(section.get(size) or 1)
