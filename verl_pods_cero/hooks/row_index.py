"""Which row of a step belongs to which rollout of which prompt."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verl_pods_cero.core.arrays import Floats, Ints, Mask


@dataclass(frozen=True)
class RowIndex:
    """Which row belongs to which session (one rollout) of which group (one prompt).

    verl names a row `{uid}_{session}_{index}`: an agent loop may split one rollout over several rows.
    Sessions are numbered by group, in the order in which prompts were submitted, then by session id, so
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
    def from_keys(cls, keys: Sequence[str], submitted: Iterable[str] = ()) -> RowIndex:
        """Read the index off the rows' keys.

        Args:
            keys: of the rows.
            submitted: prompts in the order of the groups; those that are not named follow as they appear.

        >>> index = RowIndex.from_keys(["p_1_0", "q_0_0", "p_0_0", "p_0_1"])
        >>> index.uids, index.session_of_row.tolist(), index.final_row.tolist()
        (['p', 'q'], [1, 2, 0, 0], [3, 0, 1])
        >>> RowIndex.from_keys(["p_0_0", "q_0_0"], submitted=["r", "q", "p"]).uids
        ['q', 'p']
        """
        parts = [key.rsplit("_", 2) for key in keys]
        there = dict.fromkeys(uid for uid, _, _ in parts)
        ordered_uids = dict.fromkeys([*(uid for uid in submitted if uid in there), *there])
        groups = {uid: number for number, uid in enumerate(ordered_uids)}
        group = np.array([groups[uid] for uid, _, _ in parts], dtype=np.int64)
        session = np.array([int(part[1]) for part in parts], dtype=np.int64)
        row = np.array([int(part[2]) for part in parts], dtype=np.int64)
        span = int(session.max(initial=0)) + 1
        ids, session_of_row = np.unique(group * span + session, return_inverse=True)
        ordered = np.lexsort((row, session_of_row))
        last = np.searchsorted(session_of_row[ordered], np.arange(len(ids)), side="right") - 1
        return cls(list(groups), session_of_row, ids // span, ordered[last])

    @cached_property
    def sizes(self) -> Ints:
        """Sessions of each group, shape (B,)."""
        return np.bincount(self.group_of_session, minlength=len(self.uids))

    @cached_property
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

    def sessions(self, table: NDArray[Any]) -> NDArray[Any]:
        """Take the entries of a (B, n) table back to sessions, shape (S,)."""
        return table[self.group_of_session, self.place_in_group]
