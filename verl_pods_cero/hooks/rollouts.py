"""A step's rollouts: from verl's rows to groups, and from kept groups back to rows."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import transfer_queue as tq
from transfer_queue import KVBatchMeta

from verl_pods_cero.errors import LOGGER
from verl_pods_cero.hooks.generation.worker import (
    OUTCOME,
    RANKING,
    REWARD,
    SUCCESS,
    VALUES_FIELD,
    rollout_values,
)
from verl_pods_cero.hooks.row_index import Floats, Ints, Mask, RowIndex
from verl_pods_cero.options.schema import PodsCeroOptions
from verl_pods_cero.options.scorer import check_key

logger = logging.getLogger(LOGGER)


@dataclass(frozen=True)
class Rollouts:
    """What the driver knows of a step's rollouts: a few numbers each, however long the responses.

    Attributes:
        keys: verl's key of each row.
        index: rows, sessions and groups.
        values: columns REWARD, RANKING, OUTCOME and SUCCESS of each session, shape (S, 4).
        prompt_length: tokens, shape (rows,).
        response_length: tokens, shape (rows,).
        turns: conversation turns, shape (rows,).
    """

    keys: list[str]
    index: RowIndex
    values: Floats
    prompt_length: Ints
    response_length: Ints
    turns: Ints

    def only(self, sessions: Mask) -> Rollouts:
        """Return some of the sessions, shape (S,), as if the others had not come back."""
        rows = np.flatnonzero(sessions[self.index.session_of_row])
        keys = [self.keys[row] for row in rows]
        lengths = (column[rows] for column in (self.prompt_length, self.response_length, self.turns))
        return Rollouts(keys, RowIndex.from_keys(keys, self.index.uids), self.values[sessions], *lengths)

    @property
    def rewards(self) -> Floats:
        """Total reward of each session, shape (S,)."""
        return self.values[:, REWARD]

    @property
    def outcomes(self) -> Floats | None:
        """Success of each session (`acc`), shape (S,), or None where the scorer reports none."""
        outcomes = self.values[:, OUTCOME]
        return None if np.isnan(outcomes).any() else outcomes


def read_rollouts(batch: KVBatchMeta, options: PodsCeroOptions, submitted: Iterable[str] = ()) -> Rollouts:
    """Read the rollouts of `batch`, which may lack values that an enabled part needs: see `scored`.

    Args:
        batch: every row of a step.
        options: name the values.
        submitted: prompts, in the order of the groups.
    """
    data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=[VALUES_FIELD, "num_turns"])
    index = RowIndex.from_keys(batch.keys, submitted)
    if VALUES_FIELD in data.keys():  # noqa: SIM118 - a TensorDict is no mapping
        # TransferQueue hands vectors back as a ragged tensor.
        values = np.stack([row.numpy() for row in data[VALUES_FIELD].unbind()])[index.final_row]
    else:
        values = _values_from_scores(batch, index, options)

    def lengths(tag: str) -> Ints:
        return np.array([row[tag] for row in batch.tags], dtype=np.int64)

    turns = np.array([int(turn) for turn in list(data["num_turns"])], dtype=np.int64)
    return Rollouts(list(batch.keys), index, values, lengths("prompt_len"), lengths("response_len"), turns)


def _extra_info(extra_fields: Any) -> dict[str, Any]:
    fields = getattr(extra_fields, "data", extra_fields)
    return (fields.get("reward_extra_info") or {}) if isinstance(fields, dict) else {}


def _values_from_scores(batch: KVBatchMeta, index: RowIndex, options: PodsCeroOptions) -> Floats:
    """Read values where another agent loop or a reward model on the driver wrote them."""
    final = [batch.keys[row] for row in index.final_row]
    data = tq.kv_batch_get(keys=final, partition_id=batch.partition_id, select_fields=["rm_scores", "extra_fields"])
    scores = [float(row.sum()) for row in data["rm_scores"].unbind()]
    infos = [_extra_info(row) for row in list(data["extra_fields"])]
    return np.stack([rollout_values(*pair, options).numpy() for pair in zip(scores, infos, strict=True)])


def scored(batch: KVBatchMeta, rollouts: Rollouts, options: PodsCeroOptions) -> Mask:
    """Return which sessions have every value that the enabled parts need, shape (S,).

    verl takes a scorer that raises for a failed rollout and trains on; one that returns no number once in a night
    is no more than that. It is a mistake in the options, or in the scorer, where no rollout of a step has the value.

    Raises:
        OptionError: no rollout has a value under a key that is needed.
        ValueError: every reward is NaN or infinite; the message names a prompt.
    """
    needed = {REWARD: ("the reward", "reward")}
    if options.filter.enable:
        needed[RANKING] = ("pods_cero.filter.ranking_key", options.filter.ranking_key)
    if options.allocator.enable:
        needed[SUCCESS] = ("pods_cero.allocator.success_key", options.allocator.success_key)
    finite = np.isfinite(rollouts.values)
    for column, (option, key) in needed.items():
        if not finite[:, column].any():
            _refuse_values(batch, rollouts.index, rollouts.values[:, column], option, key)
    usable = np.asarray(finite[:, list(needed)].all(axis=1))
    if bad := np.count_nonzero(~usable):
        names = " or ".join(key for _, key in needed.values())
        first = rollouts.keys[rollouts.index.final_row[usable.argmin()]]
        logger.warning("%d of %d rollouts (%s is the first) have no finite %s: failed", bad, len(usable), first, names)
    return usable


def _refuse_values(batch: KVBatchMeta, index: RowIndex, column: Floats, option: str, key: str) -> NoReturn:
    row = batch.keys[index.final_row[0]]
    data = tq.kv_batch_get(keys=[row], partition_id=batch.partition_id, select_fields=["extra_fields", "extra_info"])
    info = _extra_info(next(iter(data["extra_fields"])))
    check_key(option, key, ("reward", *info))
    about = f", extra_info {next(iter(data['extra_info']))}" if "extra_info" in data.keys() else ""  # noqa: SIM118
    raise ValueError(
        f"the scorer returned no finite {key} for any of {len(column)} rollouts of {len(index.uids)} prompts "
        f"(first: {column[0]} for rollout {row}{about}). Fix: make the reward function return finite numbers."
    )


def keep_rows(batch: KVBatchMeta, index: RowIndex, kept: Mask) -> tuple[KVBatchMeta, list[str]]:
    """Split a batch by a mask of kept sessions, whole sessions at a time.

    Args:
        batch: every row.
        index: its sessions.
        kept: shape (S,).

    Returns:
        The batch of the rows of kept sessions, in their order, and the keys of the others.
    """
    row_kept = kept[index.session_of_row]
    dropped = [key for key, stays in zip(batch.keys, row_kept, strict=True) if not stays]
    rows = KVBatchMeta(
        partition_id=batch.partition_id,
        keys=[key for key, stays in zip(batch.keys, row_kept, strict=True) if stays],
        tags=[tag for tag, stays in zip(batch.tags, row_kept, strict=True) if stays],
        fields=batch.fields,
        extra_info=batch.extra_info,
    )
    return rows, dropped
