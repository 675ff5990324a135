"""Agent loops that leave a rollout's values where the driver can read them cheaply.

verl stores a reward as the last entry of a tensor as long as the response. The workers here
store it, and what the filter ranks by, once more as a few numbers a rollout.
"""

from __future__ import annotations

from typing import Any

import ray
import torch
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ, AgentLoopWorkerTQ

VALUES_FIELD = "pods_cero_values"
OUTCOME_KEY = "acc"

# The columns of VALUES_FIELD; NaN where the scorer gave none.
REWARD, RANKING, OUTCOME = range(3)

_VerlWorker: Any = AgentLoopWorkerTQ.__ray_metadata__.modified_class


def rollout_values(reward: float, info: dict[str, Any], ranking_key: str) -> torch.Tensor:
    """Pack a rollout's reward, ranking value and outcome.

    Args:
        reward: the scorer's total.
        info: the scorer's `reward_extra_info`.
        ranking_key: "reward", or a key of `info`.

    Returns:
        float64 of shape (3,): columns REWARD, RANKING and OUTCOME, NaN where `info` lacks the key.
    """
    ranking = reward if ranking_key == "reward" else info.get(ranking_key, float("nan"))
    return torch.tensor([reward, ranking, info.get(OUTCOME_KEY, float("nan"))], dtype=torch.float64)


class ValuesWorker(_VerlWorker):
    """verl's worker, which also stores `rollout_values` with each row."""

    async def _compute_score(self, outputs: list[Any], kwargs: dict[str, Any]) -> None:
        await super()._compute_score(outputs, kwargs)
        final = outputs[-1]
        if final.reward_score is None:  # a colocated reward model scores later, on the driver
            return
        info = final.extra_fields.get("reward_extra_info") or {}
        # verl stores everything in kwargs with the rows of this session.
        kwargs[VALUES_FIELD] = rollout_values(
            float(final.reward_score), info, self.config.pods_cero.filter.ranking_key
        )


class ValuesManager(AgentLoopManagerTQ):
    """verl's manager over `ValuesWorker`s."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.agent_loop_workers_class = ray.remote(ValuesWorker)
