"""Agent-loop workers that tell the driver of each rollout in its rows' tags.

verl stores a reward as the last entry of a tensor as long as the response, which is slow to read for many rollouts.
Tags travel with the keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ray
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ, AgentLoopWorkerTQ
from verl.utils.tensordict_utils import list_of_dict_to_tensordict

from verl_pods_cero.hooks import patches
from verl_pods_cero.hooks.contract import overrides
from verl_pods_cero.hooks.loader import FIRST_SESSION
from verl_pods_cero.hooks.rollouts import rollout_values
from verl_pods_cero.hooks.rows import row_tag
from verl_pods_cero.options.schema import parse
from verl_pods_cero.options.scorer import value_keys

VALUES = "pods_cero_values"

_VerlWorker: Any = AgentLoopWorkerTQ.__ray_metadata__.modified_class


class TaggingWorker(_VerlWorker):
    """verl's worker, with the numbers that the driver reads of a rollout among the tags of its rows."""

    @overrides
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.tag_rows()

    def tag_rows(self) -> None:
        """Send what this process writes through `TaggedWrites`."""
        options = parse(self.config)
        assert options is not None, "our trainers choose this worker, and they have options"
        self._keys = value_keys(options)
        patches.ROW_DICTS.replace(lambda _: list)
        patches.ROW_WRITES.replace(lambda store: TaggedWrites(self.row_store(store)))

    def row_store(self, store: Any) -> Any:
        """Return what writes the rows: TransferQueue's module itself, or what stands for it."""
        return RowBatches(store)

    @overrides
    async def _compute_score(self, outputs: list[Any], kwargs: dict[str, Any]) -> None:
        await super()._compute_score(outputs, kwargs)
        final = outputs[-1]
        if final.reward_score is None:
            if self.reward_loop_worker_handles is None:  # a colocated reward model scores later, on the driver
                return
            raise ValueError("the scorer returned None in place of a score: the rollout counts as failed")
        info = final.extra_fields.get("reward_extra_info") or {}
        # verl adds everything in kwargs to the rows of this session; TaggedWrites takes it off them.
        kwargs[VALUES] = rollout_values(float(final.reward_score), info, self._keys)

    @overrides
    async def _agent_loop_postprocess(self, output: Any, validate: Any, **kwargs: Any) -> None:
        # A prompt's second part goes on where its first ended: verl counts from 0 each time.
        if (first := kwargs.pop(FIRST_SESSION, None)) is not None:
            kwargs["session_id"] += int(first)
        await super()._agent_loop_postprocess(output, validate, **kwargs)


class Store:
    """TransferQueue's module in a worker, or what stands for it; all but the batched write is its own.

    Args:
        store: the module `transfer_queue`, or another of these.
    """

    def __init__(self, store: Any) -> None:
        self.store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)


class RowBatches(Store):
    """Makes verl's batch of rows that come as a list."""

    async def async_kv_batch_put(self, fields: list[dict[str, Any]], **rows: Any) -> None:
        """Write rows."""
        await self.store.async_kv_batch_put(fields=list_of_dict_to_tensordict(fields), **rows)


class TaggedWrites(Store):
    """Moves a rollout's values from its rows to their tags."""

    async def async_kv_batch_put(
        self, fields: list[dict[str, Any]], tags: list[Mapping[str, Any]], **rows: Any
    ) -> None:
        """Write rows, with `row_tag` among the tags of those that have values."""
        told = [row.pop(VALUES, None) for row in fields]
        tags = [
            tag if values is None else {**tag, **row_tag(values, int(row.get("num_turns", 0)))}
            for tag, values, row in zip(tags, told, fields, strict=True)
        ]
        await self.store.async_kv_batch_put(fields=fields, tags=tags, **rows)


class PodsCeroManager(AgentLoopManagerTQ):
    """verl's manager over our workers."""

    @overrides
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        options = parse(self.config)
        assert options is not None, "our trainers choose this manager, and they have options"
        if options.fast_generation:
            from verl_pods_cero.hooks.generation.worker import FastWorker

            self.agent_loop_workers_class = ray.remote(FastWorker)
        else:
            self.agent_loop_workers_class = ray.remote(TaggingWorker)
