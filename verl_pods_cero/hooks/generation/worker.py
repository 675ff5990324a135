"""Agent loops that leave a rollout's values where the driver can read them cheaply, and cost less themselves.

verl stores a reward as the last entry of a tensor as long as the response. The workers here
store it, and what the filter ranks by, once more as a few numbers a rollout. Many rollouts a
prompt are PODS' trade: what verl does anew for each of them, and need not, is done once here.
"""

from __future__ import annotations

from typing import Any

import ray
import torch
from verl.experimental.agent_loop.agent_loop import DictConfigWrap, _agent_loop_registry
from verl.experimental.agent_loop.single_turn_agent_loop import SingleTurnAgentLoop
from verl.trainer.ppo.v1 import agent_loop_tq
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ, AgentLoopWorkerTQ
from verl.utils.rollout_trace import RolloutTraceConfig

from verl_pods_cero.hooks.generation.combined_writes import CombinedWrites
from verl_pods_cero.hooks.generation.server_leases import with_leases
from verl_pods_cero.options.schema import PodsCeroOptions, parse

VALUES_FIELD = "pods_cero_values"
OUTCOME_KEY = "acc"

# The columns of VALUES_FIELD; NaN where the scorer gave none.
REWARD, RANKING, OUTCOME, SUCCESS = range(4)

# As verl registers it.
_SINGLE_TURN = {"_target_": f"{SingleTurnAgentLoop.__module__}.{SingleTurnAgentLoop.__qualname__}"}

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


def can_share_loop(agent_name: str) -> bool:
    """Whether all rollouts may go through one loop: verl's own for a single turn, which keeps nothing of a rollout.

    A loop of another class may keep state, one that the user configured has arguments, and a trace is opened for
    each rollout: verl makes these anew.
    """
    return _agent_loop_registry.get(agent_name) == _SINGLE_TURN and RolloutTraceConfig.get_backend() is None


class ValuesWorker(_VerlWorker):
    """verl's worker, which also stores `rollout_values` with each row, shares loops and combines writes."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        options = parse(self.config)
        assert options is not None, "our trainers choose this worker, and they have options"
        self._pods_cero = options
        self._single_turn: Any = None
        # In this process only: the names under which verl's worker makes a batch of its rows, and stores it.
        if not isinstance(agent_loop_tq.tq, CombinedWrites):
            agent_loop_tq.list_of_dict_to_tensordict = list
            agent_loop_tq.tq = CombinedWrites(agent_loop_tq.tq)

    async def _run_agent_loop(
        self,
        sampling_params: dict[str, Any],
        trajectory: dict[str, Any],
        *,
        agent_name: str,
        trace: bool = True,
        **kwargs: Any,
    ) -> Any:
        if not can_share_loop(agent_name):
            return await super()._run_agent_loop(
                sampling_params, trajectory, agent_name=agent_name, trace=trace, **kwargs
            )
        output = await self._single_turn_loop().run(sampling_params, **kwargs)
        return await self._agent_loop_postprocess(output, trajectory["validate"], **kwargs)

    def _single_turn_loop(self) -> Any:
        """Return the one loop of this worker, which takes longer to build than to run."""
        if self._single_turn is None:
            self._single_turn = SingleTurnAgentLoop(
                trainer_config=DictConfigWrap(self.config),
                server_manager=with_leases(self.llm_client),
                tokenizer=self.tokenizer,
                processor=self.processor,
                hf_model_type=self.hf_model_type,
                dataset_cls=self.dataset_cls,
                data_config=DictConfigWrap(self.config.data),
            )
        return self._single_turn

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
