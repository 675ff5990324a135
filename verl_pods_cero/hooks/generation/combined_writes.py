"""Writes to TransferQueue that would wait for each other, sent as one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from verl.utils.tensordict_utils import list_of_dict_to_tensordict

from verl_pods_cero.errors import LOGGER
from verl_pods_cero.hooks.agent_loop import Store

logger = logging.getLogger(LOGGER)

Rows = list[dict[str, Any]]


@dataclass
class _Write:
    keys: list[str]
    rows: Rows
    tags: list[dict[str, Any]]
    partition_id: str
    fields: frozenset[str]
    done: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def joins(self, other: _Write) -> bool:
        """Whether both can be one batch: the same partition and the same fields."""
        return (self.partition_id, self.fields) == (other.partition_id, other.fields)

    def settle(self, error: Exception | None = None) -> None:
        """Wake whoever waits, unless it was cancelled."""
        if not self.done.done():
            self.done.set_result(None) if error is None else self.done.set_exception(error)


class CombinedWrites(Store):
    """TransferQueue's module, with rows that arrive while a write is under way written together after it.

    verl's agent loops write each rollout by itself: four round trips and a thread's wake-up, whatever its size.
    With one write under way at a time, a lone rollout is written at once, and the more of them finish
    together, the more share the next write. Whoever awaits a write still wakes when its rows are stored.

    For one event loop. A write whose caller was cancelled before its turn came is dropped.

    Args:
        store: the module `transfer_queue`, or what stands for it; everything but the batched write is its own.
    """

    def __init__(self, store: Any) -> None:
        super().__init__(store)
        self._waiting: list[_Write] = []
        self._writer: asyncio.Task[None] | None = None

    async def async_kv_batch_put(
        self, keys: list[str], partition_id: str, fields: Rows, tags: list[dict[str, Any]]
    ) -> None:
        """Return when the rows are stored.

        Args:
            keys: names of the rows.
            partition_id: where they belong.
            tags: what the store is to tell of each row.
            fields: the rows themselves, not yet a TensorDict: making one takes as long for one row as for many.

        Raises:
            Exception: what the store raised for these rows; IndexError if there are none.
        """
        write = _Write(keys, fields, tags, partition_id, frozenset(fields[0]))
        self._waiting.append(write)
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._write_all())
        await write.done

    async def _write_all(self) -> None:
        batch: list[_Write] = []
        try:
            while waiting := [write for write in self._waiting if not write.done.done()]:
                batch = [write for write in waiting if write.joins(waiting[0])]
                self._waiting = [write for write in waiting if not write.joins(waiting[0])]
                if len(batch) == 1 or not await self._stored(batch):
                    # One bad row must not cost the others: each then stands or falls by itself.
                    for write in batch:
                        await self._store_alone(write)
        finally:
            # A cancellation gets here with writes that nobody would wake any more.
            for write in (*batch, *self._waiting):
                write.done.cancel()
            self._waiting = []

    async def _stored(self, batch: Sequence[_Write]) -> bool:
        try:
            await self._put(batch)
        except Exception:
            logger.warning("a write of %d rows failed; each is tried by itself", len(batch), exc_info=True)
            return False
        for write in batch:
            write.settle()
        return True

    async def _store_alone(self, write: _Write) -> None:
        try:
            await self._put([write])
        except Exception as error:
            write.settle(error)
        else:
            write.settle()

    async def _put(self, batch: Sequence[_Write]) -> None:
        await self.store.async_kv_batch_put(
            keys=[key for write in batch for key in write.keys],
            partition_id=batch[0].partition_id,
            fields=list_of_dict_to_tensordict([row for write in batch for row in write.rows]),
            tags=[tag for write in batch for tag in write.tags],
        )
