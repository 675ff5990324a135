"""Training steps that are left with nothing to update on."""

from __future__ import annotations

import logging
from typing import Any

import transfer_queue as tq
from omegaconf import DictConfig
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1 import trainer_base

from verl_pods_cero.errors import LOGGER
from verl_pods_cero.hooks.allocating import AllocatorMixin

logger = logging.getLogger(LOGGER)

FAILED_STEPS = 3
"""So many steps in a row of which every rollout fails end the run."""


class NothingKept(Exception):  # noqa: N818 - leaves verl's step early, and is no error
    """No row is left to update on; carries the empty batch."""

    def __init__(self, batch: KVBatchMeta) -> None:
        super().__init__("no rollout was kept")
        self.batch = batch


class EmptyStepsMixin(AllocatorMixin):
    """Lets a run go on after a step that kept none of its rollouts, or of which none came back."""

    replay_buffer: Any
    _balanced: bool
    _submitted: list[str]

    def __init__(self, config: DictConfig) -> None:
        self._failed_in_a_row = 0
        super().__init__(config)

    def _step_once(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        try:
            batch = super()._step_once(*args, **kwargs)
            self._failed_in_a_row = 0
            return batch
        except NothingKept as nothing:
            logger.warning("step %d kept none of its rollouts and makes no update; the run goes on", self.global_steps)
            self._failed_in_a_row = 0
            empty = nothing.batch
        except RuntimeError:
            if not self._all_failed():
                raise
            self._failed_in_a_row += 1
            if self._failed_in_a_row == FAILED_STEPS:
                raise
            empty = self._after_failures()
        # verl clears a step's rows at its end, and TransferQueue refuses to clear none.
        trainer_base.tq = ClearsNothing()
        return empty

    def _all_failed(self) -> bool:
        """Whether verl's buffer refused the step because not one rollout came back."""
        buffer = self.replay_buffer
        waiting = buffer.pending_keys["train"] | buffer.running_keys["train"]
        stored = buffer.partitions["train"]
        return not (self._balanced or waiting or stored) and bool(buffer.failure_keys["train"])

    def _after_failures(self) -> KVBatchMeta:
        """Clear up what verl's step would have: a step of few prompts may be unlucky once."""
        logger.warning(
            "every rollout of step %d failed: no update; the run goes on until %d such steps follow each other. "
            "The agent loop's errors are above",
            self.global_steps,
            FAILED_STEPS,
        )
        self._balanced = True
        tq.kv_clear(keys=list(self.replay_buffer.failure_keys["train"]), partition_id="train")
        self.on_sample_end()
        self._submitted = []
        self._learn_outcomes(None)
        return KVBatchMeta(partition_id="train", keys=[], tags=[])


class ClearsNothing:
    """TransferQueue's module, but clearing no rows does nothing."""

    def __getattr__(self, name: str) -> Any:
        return getattr(tq, name)

    def kv_clear(self, keys: list[str], partition_id: str) -> None:
        """Clear the rows, if there are any."""
        if keys:
            tq.kv_clear(keys=keys, partition_id=partition_id)
