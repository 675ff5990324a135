"""A step's rollouts: from verl's rows to groups, and from kept groups back to rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import transfer_queue as tq
from transfer_queue import KVBatchMeta

from verl_pods_cero.config import PodsCeroOptions
from verl_pods_cero.errors import OptionError, nearest
from verl_pods_cero.hooks.agent_loop import (
    OUTCOME,
    RANKING,
    REWARD,
    SUCCESS,
    VALUES_FIELD,
    rollout_values,
)

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class RowIndex:
    """Which row belongs to which session (one rollout) of which group (one prompt).

    verl names a row `{uid}_{session}_{index}`: an agent loop may split one rollout over several rows.
    Sessions are numbered by group, in the order in which groups appear, then by session id, so
    that the same rollouts are numbered alike whatever order they finished in.

    Attributes:
        uids: the prompt of each group, length B.
        session_of_row: shape (rows,).
        group_of_session: ascending, shape (S,).
        final_row: the row that ends each session, shape (S,).
    """

    uids: list[str]
    session_of_row: Ints
    group_of_session: Ints
    final_row: Ints

    @classmethod
    def from_keys(cls, keys: Sequence[str]) -> RowIndex:
        """Read the index off the rows' keys.

        >>> index = RowIndex.from_keys(["p_1_0", "q_0_0", "p_0_0", "p_0_1"])
        >>> index.uids, index.session_of_row.tolist(), index.final_row.tolist()
        (['p', 'q'], [1, 2, 0, 0], [3, 0, 1])
        """
        parts = [key.rsplit("_", 2) for key in keys]
        groups: dict[str, int] = {}
        group = np.array([groups.setdefault(uid, len(groups)) for uid, _, _ in parts], dtype=np.int64)
        session = np.array([int(part[1]) for part in parts], dtype=np.int64)
        row = np.array([int(part[2]) for part in parts], dtype=np.int64)
        span = int(session.max(initial=0)) + 1
        ids, session_of_row = np.unique(group * span + session, return_inverse=True)
        ordered = np.lexsort((row, session_of_row))
        last = np.searchsorted(session_of_row[ordered], np.arange(len(ids)), side="right") - 1
        return cls(list(groups), session_of_row, ids // span, ordered[last])

    @property
    def sizes(self) -> Ints:
        """Sessions of each group, shape (B,)."""
        return np.bincount(self.group_of_session, minlength=len(self.uids))

    @property
    def place_in_group(self) -> Ints:
        """Rank of each session in its group, shape (S,)."""
        starts = np.cumsum(self.sizes) - self.sizes
        return np.arange(len(self.group_of_session)) - starts[self.group_of_session]

    def grouped(self, values: Floats) -> tuple[Floats, Mask]:
        """Lay one value a session out as (B, n), with a mask of the sessions there are."""
        shape = (len(self.uids), int(self.sizes.max(initial=0)))
        table, mask = np.zeros(shape), np.zeros(shape, dtype=bool)
        at = (self.group_of_session, self.place_in_group)
        table[at] = values
        mask[at] = True
        return table, mask

    def sessions(self, table: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Take the entries of a (B, n) table back to sessions, shape (S,)."""
        return table[self.group_of_session, self.place_in_group]


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

    @property
    def rewards(self) -> Floats:
        """Total reward of each session, shape (S,)."""
        return self.values[:, REWARD]

    @property
    def outcomes(self) -> Floats | None:
        """Success of each session (`acc`), shape (S,), or None where the scorer reports none."""
        outcomes = self.values[:, OUTCOME]
        return None if np.isnan(outcomes).any() else outcomes


def read_rollouts(batch: KVBatchMeta, options: PodsCeroOptions) -> Rollouts:
    """Read the scored rollouts of `batch`.

    Raises:
        OptionError: the scorer reports no value under a key that an enabled part needs.
        ValueError: a reward is NaN or infinite; the message names the prompt.
    """
    data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=[VALUES_FIELD, "num_turns"])
    index = RowIndex.from_keys(batch.keys)
    if VALUES_FIELD in data.keys():  # noqa: SIM118 - a TensorDict is no mapping
        # TransferQueue hands vectors back as a ragged tensor.
        values = np.stack([row.numpy() for row in data[VALUES_FIELD].unbind()])[index.final_row]
    else:
        values = _values_from_scores(batch, index, options)
    _check_values(batch, index, values, options)

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


def _check_values(batch: KVBatchMeta, index: RowIndex, values: Floats, options: PodsCeroOptions) -> None:
    needed = {REWARD: ("the reward", "reward")}
    if options.filter.enable:
        needed[RANKING] = ("pods_cero.filter.ranking_key", options.filter.ranking_key)
    if options.allocator.enable:
        needed[SUCCESS] = ("pods_cero.allocator.success_key", options.allocator.success_key)
    for column, (option, key) in needed.items():
        bad = np.flatnonzero(~np.isfinite(values[:, column]))
        if len(bad):
            _refuse_values(batch, index, values[:, column], bad, option, key)


def _refuse_values(batch: KVBatchMeta, index: RowIndex, column: Floats, bad: Ints, option: str, key: str) -> NoReturn:
    row = batch.keys[index.final_row[bad[0]]]
    data = tq.kv_batch_get(keys=[row], partition_id=batch.partition_id, select_fields=["extra_fields", "extra_info"])
    info = _extra_info(next(iter(data["extra_fields"])))
    if key != "reward" and key not in info:
        known = ["reward", *info]
        raise OptionError(option, "is no key of the scorer's reward_extra_info", key, nearest(key, known))
    prompts = len(np.unique(index.group_of_session[bad]))
    about = f", extra_info {next(iter(data['extra_info']))}" if "extra_info" in data.keys() else ""  # noqa: SIM118
    raise ValueError(
        f"the scorer returned a {key} that is not finite for {len(bad)} rollouts of {prompts} prompts "
        f"(first: {column[bad[0]]} for rollout {row}{about}). Fix: make the reward function return finite numbers."
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
