"""verl's data set and loader by row positions, for an allocator to choose from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict
from torchdata.stateful_dataloader import StatefulDataLoader
from verl.utils import tensordict_utils as tu
from verl.utils.dataset.rl_dataset import collate_fn

from verl_pods_cero.core.allocators import Allocation
from verl_pods_cero.core.arrays import Ints
from verl_pods_cero.errors import OptionError
from verl_pods_cero.hooks.prompts import new_uid

FIRST_SESSION = "pods_cero_first_session"
"""A prompt's column: the number of its first rollout in this batch, where it had others before."""


def position_loader(loader: StatefulDataLoader) -> StatefulDataLoader:
    """Make a loader of row positions out of verl's loader of rows, in the same order.

    It takes the place of `trainer.train_dataloader`, so that verl saves and restores it: rows of a position are
    read when they are submitted, and a row that gets no rollouts is never read.
    """
    return StatefulDataLoader(
        dataset=range(len(loader.dataset)),
        batch_size=loader.batch_size,
        sampler=loader.sampler,
        drop_last=loader.drop_last,
        collate_fn=_positions,
    )


def _positions(rows: list[int]) -> Ints:
    return np.array(rows, dtype=np.int64)


class PositionStream:
    """Endless batches of positions, an epoch after the other.

    Args:
        loader: of positions.
        size: the option that sets the size of its batches.

    Raises:
        OptionError: the loader has no whole batch.
    """

    def __init__(self, loader: StatefulDataLoader, size: str) -> None:
        if not len(loader):
            rows = len(loader.dataset)
            rule = f"must be at most the number of rows that verl kept ({rows}), or an epoch has no batch"
            raise OptionError(size, rule, loader.batch_size, f"use {rows} or less")
        self._loader = loader
        self._iterator: Iterator[Ints] | None = None

    def __call__(self) -> Ints:
        """Return the next batch."""
        while True:
            if self._iterator is None:
                self._iterator = iter(self._loader)
            batch: Ints | None = next(self._iterator, None)
            if batch is not None:
                return batch
            self._iterator = None


def prompt_batch(
    dataset: Any, step: Allocation, global_step: int, more_of: tuple[Sequence[str], Ints] | None = None
) -> TensorDict:
    """Make the batch that verl submits to its agent loops.

    Args:
        dataset: verl's training data set.
        step: rows and how many rollouts each gets.
        global_step: the training step.
        more_of: names of prompts that had some rollouts already, and how many, (k,); by default these are new ones.

    Returns:
        Rows of the data set with `uid` and `__rollout_n__`, which verl's workers read, and of prompts that had some
        already `FIRST_SESSION`, which ours read.
    """
    rows = collate_fn([dataset[int(row)] for row in step.indices])
    uids: Iterable[str] = map(new_uid, step.indices.tolist())
    if more_of is not None:
        uids, already = more_of
        rows[FIRST_SESSION] = torch.from_numpy(already.astype(np.int64))
    rows["uid"] = np.array(list(uids), dtype=object)
    rows["__rollout_n__"] = torch.from_numpy(step.rollouts.astype(np.int64))
    batch = tu.get_tensordict(rows)
    tu.assign_non_tensor_data(batch, "global_steps", global_step)
    return batch
