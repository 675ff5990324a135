"""An agent-loop worker that does once what verl does anew for each rollout of a prompt."""

from __future__ import annotations

import logging
from typing import Any

from verl.experimental.agent_loop.agent_loop import DictConfigWrap, _agent_loop_registry
from verl.experimental.agent_loop.single_turn_agent_loop import SingleTurnAgentLoop
from verl.utils.rollout_trace import RolloutTraceConfig

from verl_pods_cero.errors import LOGGER
from verl_pods_cero.hooks.agent_loop import TaggingWorker
from verl_pods_cero.hooks.contract import missing_optional_names, overrides
from verl_pods_cero.hooks.generation.combined_writes import CombinedWrites
from verl_pods_cero.hooks.generation.server_leases import with_leases

logger = logging.getLogger(LOGGER)

# As verl registers it.
_SINGLE_TURN = {"_target_": f"{SingleTurnAgentLoop.__module__}.{SingleTurnAgentLoop.__qualname__}"}


def can_share_loop(agent_name: str) -> bool:
    """Whether all rollouts may go through one loop: verl's own for a single turn, which keeps nothing of a rollout.

    A loop of another class may keep state, one that the user configured has arguments, and a trace is opened for
    each rollout: verl makes these anew.
    """
    return _agent_loop_registry.get(agent_name) == _SINGLE_TURN and RolloutTraceConfig.get_backend() is None


def leased(client: Any) -> Any:
    """Return a client that leases servers, or the same one where verl has nothing to lease by, as verl 0.9.0."""
    if missing := missing_optional_names():
        text = "no server leases: the installed verl lacks %s; its load balancer is asked for each rollout"
        logger.warning(text, ", ".join(missing))
        return client
    return with_leases(client)


class FastWorker(TaggingWorker):
    """Shares one loop among rollouts, leases of servers among those of a prompt, and writes among those that finish."""

    @overrides
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._single_turn: Any = None

    def row_store(self, store: Any) -> Any:
        """Return a store that combines writes."""
        return CombinedWrites(store)

    @overrides
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
                server_manager=leased(self.llm_client),
                tokenizer=self.tokenizer,
                processor=self.processor,
                hf_model_type=vars(self).get("hf_model_type"),  # verl 0.9.0 has none, and takes any keyword
                dataset_cls=self.dataset_cls,
                data_config=DictConfigWrap(self.config.data),
            )
        return self._single_turn
