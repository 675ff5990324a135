from __future__ import annotations

import asyncio

import torch

from verl_pods_cero.hooks.generation.combined_writes import CombinedWrites


class Store:
    """Keeps what it is given, after a turn of the event loop; refuses the keys named."""

    passed_through = "as it is"

    def __init__(self, refused: tuple[str, ...] = ()) -> None:
        self.writes: list[list[str]] = []
        self.rows: dict[str, list[int]] = {}
        self.refused = refused

    async def async_kv_batch_put(self, keys, partition_id, fields, tags):
        await asyncio.sleep(0)
        if set(keys) & set(self.refused):
            raise RuntimeError(f"refused {keys}")
        self.writes.append(keys)
        for i, key in enumerate(keys):
            self.rows[f"{partition_id}/{key}"] = [*fields["ids"][i].tolist(), tags[i]["place"]]


def row(length: int, **more):
    return [{"ids": torch.arange(length), "info": {"length": length}, **more}]


async def put(writes, key, fields, partition="train", place=0):
    await writes.async_kv_batch_put(keys=[key], partition_id=partition, fields=fields, tags=[{"place": place}])


def test_rows_that_arrive_during_a_write_share_the_next_one():
    store = Store()
    writes = CombinedWrites(store)

    async def run():
        await asyncio.gather(*(put(writes, f"k{n}", row(n + 1), place=n) for n in range(5)))

    asyncio.run(run())
    assert store.writes == [["k0", "k1", "k2", "k3", "k4"]]
    assert store.rows == {f"train/k{n}": [*range(n + 1), n] for n in range(5)}


def test_a_lone_row_is_written_at_once_and_the_caller_waits_for_it():
    store = Store()
    writes = CombinedWrites(store)

    async def run():
        for n in range(3):
            await put(writes, f"k{n}", row(2))
            assert f"train/k{n}" in store.rows

    asyncio.run(run())
    assert store.writes == [["k0"], ["k1"], ["k2"]]


def test_partitions_and_rows_of_other_fields_are_not_mixed():
    store = Store()
    writes = CombinedWrites(store)

    async def run():
        await asyncio.gather(
            put(writes, "a", row(1)),
            put(writes, "b", row(1), partition="val"),
            put(writes, "c", row(1, extra=torch.ones(2))),
            put(writes, "d", row(3)),
        )

    asyncio.run(run())
    assert sorted(store.writes) == [["a", "d"], ["b"], ["c"]]


def test_a_row_that_the_store_refuses_fails_alone():
    store = Store(refused=("bad",))
    writes = CombinedWrites(store)

    async def run():
        return await asyncio.gather(*(put(writes, key, row(1)) for key in ("a", "bad", "c")), return_exceptions=True)

    done = asyncio.run(run())
    assert done[0] is None and done[2] is None and "refused ['bad']" in str(done[1])
    assert set(store.rows) == {"train/a", "train/c"}


def test_a_caller_that_was_cancelled_does_not_stop_the_others():
    store = Store()
    writes = CombinedWrites(store)

    async def run():
        tasks = [asyncio.create_task(put(writes, f"k{n}", row(1))) for n in range(3)]
        await asyncio.sleep(0)
        tasks[1].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(run())
    assert set(store.rows) == {"train/k0", "train/k2"}


def test_a_cancelled_write_leaves_nobody_waiting_and_the_next_one_works():
    class Cancelled(Store):
        async def async_kv_batch_put(self, keys, partition_id, fields, tags):
            if "cancelled" in keys:
                raise asyncio.CancelledError
            await super().async_kv_batch_put(keys, partition_id, fields, tags)

    store = Cancelled()
    writes = CombinedWrites(store)

    async def run():
        others = (put(writes, "a", row(1), partition="val"), put(writes, "b", row(2)))
        done = await asyncio.wait_for(
            asyncio.gather(put(writes, "cancelled", row(1)), *others, return_exceptions=True), timeout=10
        )
        await asyncio.wait_for(put(writes, "c", row(1)), timeout=10)
        return done

    assert all(isinstance(one, asyncio.CancelledError) for one in asyncio.run(run()))
    assert set(store.rows) == {"train/c"}


def test_a_write_without_rows_fails_alone():
    store = Store()
    writes = CombinedWrites(store)

    async def run():
        work = asyncio.gather(put(writes, "none", []), put(writes, "a", row(1)), return_exceptions=True)
        return await asyncio.wait_for(work, timeout=10)

    done = asyncio.run(run())
    assert isinstance(done[0], IndexError) and done[1] is None
    assert set(store.rows) == {"train/a"}


def test_everything_else_is_the_stores_own():
    assert CombinedWrites(Store()).passed_through == "as it is"
