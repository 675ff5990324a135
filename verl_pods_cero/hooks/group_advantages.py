"""Advantages over all generated rollouts, for the rows that were kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import transfer_queue as tq
from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from verl.protocol import DataProto
from verl.trainer.ppo.ray_trainer import compute_advantage

from verl_pods_cero.hooks.rollouts import Rollouts


def session_advantages(rollouts: Rollouts, algorithm: Any) -> torch.Tensor:
    """Compute verl's advantage of every generated session from scores alone.

    The estimators that `validation.SCORE_ONLY_ESTIMATORS` lists spread one number over a response, so
    one-token responses give the number itself.

    Args:
        rollouts: all generated rollouts.
        algorithm: verl's `algorithm` options.

    Returns:
        float32, shape (S,).
    """
    scores = torch.from_numpy(rollouts.rewards.astype(np.float32))[:, None]
    uids = np.array(rollouts.index.uids, dtype=object)[rollouts.index.group_of_session]
    data = DataProto(
        batch=TensorDict(
            {"token_level_rewards": scores, "response_mask": torch.ones_like(scores)}, batch_size=len(scores)
        ),
        non_tensor_batch={"uid": uids},
    )
    scored: torch.Tensor = compute_advantage(
        data,
        adv_estimator=algorithm.adv_estimator,
        norm_adv_by_std_in_grpo=algorithm.get("norm_adv_by_std_in_grpo", True),
        config=algorithm,
    ).batch["advantages"]
    return scored[:, 0]


def full_group_advantages(batch: KVBatchMeta, rollouts: Rollouts, algorithm: Any) -> None:
    """Overwrite the batch's advantages by those over all generated rollouts.

    Padding rows have an empty response mask and keep advantage 0.
    """
    per_session = session_advantages(rollouts, algorithm)
    session_of_key = dict(zip(rollouts.keys, rollouts.index.session_of_row.tolist(), strict=True))
    masks = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=["response_mask"])
    rows = []
    for key, mask in zip(batch.keys, masks["response_mask"].unbind(), strict=True):
        session = session_of_key.get(key)
        advantage = per_session[session] if session is not None else torch.zeros(())
        rows.append(advantage * mask)
    advantages = torch.nested.as_nested_tensor(rows, layout=torch.jagged)
    fields = TensorDict({"advantages": advantages, "returns": advantages}, batch_size=len(rows))
    tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=fields)
