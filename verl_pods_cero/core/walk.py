"""Prompts met in a given order: a shuffled walk over the data set, pass after pass, or the caller's candidates."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from verl_pods_cero.core.arrays import Ints
from verl_pods_cero.core.budget import BudgetedAllocator
from verl_pods_cero.core.settings import AllocatorSettings


class Walk:
    """Visits M rows in a seeded order, and again in another one when the pass is over.

    One number, `visited`, says where the walk is: pass `visited // M`, place `visited % M` in its order. The
    order of a pass depends on the seed and the pass alone, so nothing else has to be saved.

    >>> walk = Walk(num_prompts=3, seed=0)
    >>> first = walk.next_rows(2); walk.step_past(first[-1])
    >>> walk.visited, sorted(walk.next_rows(3).tolist())
    (2, [0, 1, 2])
    """

    def __init__(self, num_prompts: int, seed: int) -> None:
        self.visited = 0
        self._num_prompts = num_prompts
        self._seed = seed
        self._orders: dict[int, Ints] = {}

    def next_rows(self, count: int) -> Ints:
        """The next `count` different rows (at most M), in the order of the walk; does not move."""
        turn, place = divmod(self.visited, self._num_prompts)
        rows = self._order(turn)[place : place + count]
        if len(rows) < count and place:
            # What is left of this pass comes first; the next pass then skips it.
            following = self._order(turn + 1)
            following = following[~np.isin(following, rows)]
            rows = np.concatenate([rows, following[: count - len(rows)]])
        return rows

    def step_past(self, row: int) -> None:
        """Move to just after the next visit of a row."""
        turn, place = divmod(self.visited, self._num_prompts)
        ahead = np.flatnonzero(self._order(turn)[place:] == row)
        if len(ahead):
            self.visited += int(ahead[0]) + 1
        else:
            following = np.flatnonzero(self._order(turn + 1) == row)
            self.visited = (turn + 1) * self._num_prompts + int(following[0]) + 1

    def _order(self, turn: int) -> Ints:
        if turn not in self._orders:
            self._orders = {kept: order for kept, order in self._orders.items() if kept == turn - 1}
            generator = np.random.default_rng([self._seed, turn])
            self._orders[turn] = generator.permutation(self._num_prompts)
        return self._orders[turn]


class WalkingAllocator(BudgetedAllocator):
    """An allocator that meets prompts in a given order: the candidates', or a shuffled walk over the data.

    In a round it meets a prompt of the walk at most once; candidates are the caller's business.
    """

    def __init__(self, settings: AllocatorSettings) -> None:
        super().__init__(settings)
        self._walk = Walk(settings.num_prompts, settings.seed)

    def _met(self, candidates: Ints | None, count: int) -> Ints:
        """The next `count` prompts to decide on."""
        if candidates is not None:
            return candidates[:count]
        rows = self._walk.next_rows(min(count + len(self._open_rows), self.settings.num_prompts))
        rows = rows[~np.isin(rows, self._open_rows)][:count]
        if len(rows):
            self._walk.step_past(int(rows[-1]))
        return rows

    def state_dict(self) -> dict[str, np.ndarray]:
        """Adds how far the walk is."""
        return super().state_dict() | {"visited": np.array(self._walk.visited)}

    def _state_rules(self, state: dict[str, np.ndarray]) -> Iterator[tuple[bool, str]]:
        yield from super()._state_rules(state)
        yield int(state["visited"]) >= 0, "less than no prompts visited"

    def load_state_dict(self, state: dict[str, np.ndarray]) -> None:
        """Go on from a saved state."""
        super().load_state_dict(state)
        self._walk.visited = int(state["visited"])
