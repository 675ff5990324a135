"""Agent loops that leave a rollout's values where the driver can read them cheaply.

verl stores a reward as the last entry of a tensor as long as the response. The workers here
store it, and what the filter ranks by, once more as a few numbers a rollout.
"""

from __future__ import annotations

from typing import Any

import ray
import torch
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ, AgentLoopWorkerTQ

from verl_pods_cero.config import PodsCeroOptions, parse

VALUES_FIELD = "pods_cero_values"
OUTCOME_KEY = "acc"

# The columns of VALUES_FIELD; NaN where the scorer gave none.
REWARD, RANKING, OUTCOME, SUCCESS = range(4)

_VerlWorker: Any = AgentLoopWorkerTQ.__ray_metadata__.modified_class


def rollout_values(reward: float, info: dict[str, Any], options: PodsCeroOptions) -> torch.Tensor:
    """Pack what the driver needs of a rollout.

    Args:
        reward: the scorer's total.
        info: the scorer's `reward_extra_info`.
        options: name the values that rank rollouts and that tell success.

    Returns:
        float64 of shape (4,): columns REWARD, RANKING, OUTCOME and SUCCESS, NaN where `info` lacks the key.
    """
    known = {**info, "reward": reward}
    keys = ("reward", options.filter.ranking_key, OUTCOME_KEY, options.allocator.success_key)
    return torch.tensor([_number(known.get(key)) for key in keys], dtype=torch.float64)


def _number(value: Any) -> float:
    # An error here would count as a failed rollout. NaN is refused on the driver, where the value is needed.
    try:
        return float(value)
    except (TypeError, ValueError):
        return float("nan")


class ValuesWorker(_VerlWorker):
    """verl's worker, which also stores `rollout_values` with each row."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        options = parse(self.config)
        assert options is not None, "our trainers choose this worker, and they have options"
        self._pods_cero = options

    async def _compute_score(self, outputs: list[Any], kwargs: dict[str, Any]) -> None:
        await super()._compute_score(outputs, kwargs)
        final = outputs[-1]
        if final.reward_score is None:  # a colocated reward model scores later, on the driver
            return
        info = final.extra_fields.get("reward_extra_info") or {}
        # verl stores everything in kwargs with the rows of this session.
        kwargs[VALUES_FIELD] = rollout_values(float(final.reward_score), info, self._pods_cero)


class ValuesManager(AgentLoopManagerTQ):
    """verl's manager over `ValuesWorker`s."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.agent_loop_workers_class = ray.remote(ValuesWorker)
