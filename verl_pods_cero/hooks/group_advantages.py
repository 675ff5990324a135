"""Advantages over all generated rollouts, for the rows that were kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from tensordict import TensorDict
from verl.protocol import DataProto
from verl.trainer.ppo.ray_trainer import compute_advantage

from verl_pods_cero.core.arrays import Floats
from verl_pods_cero.hooks.rollouts import Rollouts


def session_advantages(rollouts: Rollouts, algorithm: Any) -> Floats:
    """Compute verl's advantage of every generated session from scores alone.

    The estimators that `filter.advantage_stats=full_group` allows spread one number over a response, so
    one-token responses give the number itself.

    Args:
        rollouts: all generated rollouts.
        algorithm: verl's `algorithm` options.

    Returns:
        Shape (S,), in verl's float32 precision.
    """
    scores = torch.from_numpy(rollouts.rewards.astype(np.float32))[:, None]
    uids = np.array(rollouts.index.uids, dtype=object)[rollouts.index.group_of_session]
    columns = {"token_level_rewards": scores, "response_mask": torch.ones_like(scores)}
    scored = compute_advantage(
        DataProto(batch=TensorDict(columns, batch_size=len(scores)), non_tensor_batch={"uid": uids}),
        adv_estimator=algorithm.adv_estimator,
        norm_adv_by_std_in_grpo=algorithm.get("norm_adv_by_std_in_grpo", True),
        config=algorithm,
    )
    return np.asarray(scored.batch["advantages"][:, 0].numpy(), dtype=np.float64)


def row_advantages(keys: list[str], rollouts: Rollouts, algorithm: Any) -> Floats:
    """Return the advantage of each of some rows over all generated rollouts, shape (rows,); 0 of a padding row.

    Args:
        keys: of the rows, in any order.
        rollouts: all generated rollouts.
        algorithm: verl's `algorithm` options.
    """
    per_session = session_advantages(rollouts, algorithm)[rollouts.index.session_of_row]
    of_key = dict(zip(rollouts.keys, per_session.tolist(), strict=True))
    return np.array([of_key.get(key, 0.0) for key in keys])
