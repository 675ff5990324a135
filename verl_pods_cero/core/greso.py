"""GRESO: prompts that gave no signal lately are skipped, more surely the longer it lasts."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from verl_pods_cero.core.arrays import Floats, Ints, Mask, SmallInts
from verl_pods_cero.core.settings import AllocatorSettings
from verl_pods_cero.core.walk import WalkingAllocator

# Index 0 is for streaks of groups that all passed (easy), 1 for groups that all failed (hard).
_START = 0.5
_STEP = 0.01
_LEAST = 0.05
_TARGETS = (1 / 12, 1 / 6)


class Greso(WalkingAllocator):
    """Selective rollouts: a prompt whose last groups had no variance is met again only now and then.

    Formula:
        a prompt whose last s groups were all-passed or all-failed is kept with probability e^s, else skipped;
        e is the exploration probability of easy or hard prompts (by the latest group). After a round each e
        falls by 0.01 if the share of such groups in it reached its target (1/12 easy, 1/6 hard), and rises by
        0.01 if not; 0.05 <= e <= 1, starting from 0.5. Prompts kept get n rollouts each (`group_units`).

    Differences from the publication:
        1. No dynamic sampling: a group without variance is not sampled again, and the batch size is not adapted.
           The budget counts every rollout, so all allocators are asked the same.
        2. When a whole pass over the data keeps fewer prompts than the batch holds, the skipped ones fill it in the
           order met, so that the budget is spent. Among candidates nothing is filled: the caller brings more. In the
           schedule `epoch`, where C would hold every prompt, a round spends an even share of what is left.
        3. The published code keeps a prompt with probability max(e^s, 0.01), caps e at 0.95, counts easy and hard
           groups in streaks of their own (a hard group ends an easy streak; in the paper and here s counts both), and
           first adjusts e in the second pass over the data: 0.1 to 0.9 points fewer effective prompts in the worlds of
           `verl-pods-cero simulate`. It takes mean rewards for easy and hard, here all passed and all failed.

    Source:
        GRESO, "Act only when it pays", arXiv 2506.02177, sections on probabilistic filtering and self-adjusting
        exploration, and the code of its authors.

    >>> a = Greso(AllocatorSettings(num_prompts=4, budget=64, rounds=4, batch_prompts=2, n=8))
    >>> a.observe([0], [8], [0]); a.observe([1], [3], [5])
    >>> a.streak.tolist()
    [1, 0, 0, 0]
    """

    _paced = ("epoch",)

    @classmethod
    def group_sizes(cls, settings: AllocatorSettings) -> tuple[int, int]:
        """Whoever is served gets n."""
        each = settings.group_units * settings.unit
        return each, each

    @classmethod
    def takes_everyone(cls, settings: AllocatorSettings, offered: int) -> bool:
        """Not of a batch of the loader, of which it skips what taught nothing: of all prompts alone."""
        return offered >= settings.num_prompts and super().takes_everyone(settings, offered)

    def __init__(self, settings: AllocatorSettings) -> None:
        super().__init__(settings)
        self.streak: SmallInts = np.zeros(settings.num_prompts, dtype=np.int32)
        self._explore = np.full(2, _START)
        self._open_counts = np.zeros(3, dtype=np.int64)

    def _choose(self, candidates: Ints | None) -> tuple[Ints, Ints]:
        each = self.settings.group_units
        count = -(-self._room // each)
        rows = candidates if candidates is not None else self._kept_of_walk(count)
        if candidates is not None:
            rows = rows[self._kept(rows, self._generator())][:count]
        return rows, np.clip(self._room - each * np.arange(len(rows)), 0, each)

    def _kept_of_walk(self, count: int) -> Ints:
        """The next `count` prompts that are not skipped, and skipped ones when a whole pass has too few."""
        look = 4 * count + len(self._open_rows)
        while True:
            rows = self._walk.next_rows(min(look, self.settings.num_prompts))
            rows = rows[~np.isin(rows, self._open_rows)]
            # A generator made anew gives the rows of a shorter look the same draws in a longer one.
            kept = self._kept(rows, self._generator())
            if np.count_nonzero(kept) >= count or look >= self.settings.num_prompts:
                break
            look *= 4
        missing = count - np.count_nonzero(kept)
        if missing > 0:
            kept[np.flatnonzero(~kept)[:missing]] = True
        chosen = rows[np.flatnonzero(kept)[:count]]
        if len(chosen):
            self._walk.step_past(int(chosen[-1]))
        return chosen

    def _kept(self, rows: Ints, generator: np.random.Generator) -> Mask:
        streak = self.streak[rows]
        explore = np.where(streak > 0, self._explore[0], self._explore[1])
        return np.asarray(generator.random(len(rows)) < explore ** np.abs(streak))

    def _learn(self, rows: Ints, wins: Floats, losses: Floats) -> None:
        super()._learn(rows, wins, losses)
        self._open_counts += self._streaks(rows, wins, losses)

    def _recall(self, rows: Ints, wins: Floats, losses: Floats) -> None:
        super()._recall(rows, wins, losses)
        self._streaks(rows, wins, losses)

    def _streaks(self, rows: Ints, wins: Floats, losses: Floats) -> list[int]:
        """Lengthen and end streaks; count prompts that were all right, all wrong, and all."""
        seen = wins + losses > 0
        rows, easy, hard = rows[seen], losses[seen] == 0, wins[seen] == 0
        longer = np.abs(self.streak[rows]) + 1
        self.streak[rows] = np.where(easy, longer, np.where(hard, -longer, 0))
        return [int(easy.sum()), int(hard.sum()), len(rows)]

    def advance(self) -> None:
        """Close the round and adjust how much is explored."""
        easy_hard, groups = self._open_counts[:2], int(self._open_counts[2])
        if groups:
            reached = easy_hard / groups >= _TARGETS
            self._explore = np.clip(self._explore + np.where(reached, -_STEP, _STEP), _LEAST, 1.0)
        self._open_counts = np.zeros(3, dtype=np.int64)
        super().advance()

    def metrics(self) -> dict[str, float]:
        """Adds explore_easy and explore_hard, the two exploration probabilities."""
        explore = {"explore_easy": float(self._explore[0]), "explore_hard": float(self._explore[1])}
        return super().metrics() | explore

    def state_dict(self) -> dict[str, np.ndarray]:
        """Adds the streaks, the exploration probabilities and the counts of the open round."""
        own = {
            "streak": self.streak.copy(),
            "explore": self._explore.copy(),
            "open_counts": self._open_counts.copy(),
        }
        return super().state_dict() | own

    def _state_rules(self, state: dict[str, np.ndarray]) -> Iterator[tuple[bool, str]]:
        yield from super()._state_rules(state)
        explore, counts = state["explore"], state["open_counts"]
        yield bool(((explore >= _LEAST) & (explore <= 1)).all()), f"chances to explore outside {_LEAST} to 1"
        fits = counts.shape == (3,) and bool((counts >= 0).all()) and counts[:2].sum() <= counts[2]
        yield fits, "counts of an open round that do not add up"

    def load_state_dict(self, state: dict[str, np.ndarray]) -> None:
        """Go on from a saved state."""
        super().load_state_dict(state)
        self.streak[:] = state["streak"]
        self._explore = state["explore"].astype(np.float64)
        self._open_counts = state["open_counts"].astype(np.int64)
