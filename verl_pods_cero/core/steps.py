"""From an allocator's rounds to a trainer's steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TypeAlias

import numpy as np

from verl_pods_cero.core.allocators import Allocation, Allocator, resolve_allocator
from verl_pods_cero.core.arrays import Ints
from verl_pods_cero.core.budget import BudgetedAllocator, in_range, refuse_state
from verl_pods_cero.core.settings import AllocatorSettings

# Sets the stream of shuffles apart from the allocator's own, which has the same seed.
_SHUFFLE = 1

# Before the names of the allocator's arrays in a state.
_INNER = "allocator_"


def group_sizes(name: str, settings: AllocatorSettings) -> tuple[int, int]:
    """Return the least and the most rollouts of a prompt that the allocator of that name serves.

    One of your own may say so by a class method `group_sizes`, as `BudgetedAllocator` has it.
    """
    sizes: tuple[int, int] = getattr(resolve_allocator(name), "group_sizes", BudgetedAllocator.group_sizes)(settings)
    return sizes


def most_steps(settings: AllocatorSettings, group: int | None = None) -> int:
    """Return a bound on the training steps that an allocator's rounds make.

    Formula:
        a `round` run has a step a round. An `epoch` run splits a round over steps of batch_prompts prompts: as many
        as the budget has groups for, and one more a round for the remainder.

    Args:
        settings: of the run.
        group: the least rollouts of a prompt that is served, by `group_sizes`; the unit by default.
    """
    if settings.schedule == "round":
        return settings.rounds
    prompts = min(settings.budget // (group or settings.unit), settings.rounds * settings.num_prompts)
    return math.ceil(prompts / settings.batch_prompts) + settings.rounds


State: TypeAlias = dict[str, np.ndarray]


def extension(allocator: Allocator) -> Callable[[State, int], State]:
    """Return what makes a state of a shorter run one of this run, as `BudgetedAllocator.extended` does.

    Raises:
        ValueError: the allocator has none.
    """
    extended: Callable[[State, int], State] | None = getattr(allocator, "extended", None)
    if extended is None:
        raise ValueError(
            f"{type(allocator).__name__} has no method `extended`, and cannot go on with a larger budget than it was "
            "saved with; set the budget back, or derive it from verl_pods_cero.core.budget.BudgetedAllocator"
        )
    return extended


class Steps:
    """Hands a run's rounds out as training steps, one step ahead of the trainer.

    A round with nothing to generate is closed at once and takes no step. Rounds are finite, so this ends.

    Args:
        allocator: plans rounds.
        settings: what it was built from.
        next_candidates: the next positions in the loader's order, or None to let the allocator choose any row.

    >>> from verl_pods_cero.core.allocators import create_allocator
    >>> settings = AllocatorSettings(num_prompts=4, budget=32, rounds=2, batch_prompts=2, n=8)
    >>> steps = Steps(create_allocator("uniform", settings), settings)
    >>> steps.prepare(); step = steps.take(); step.total, steps.last
    (16, False)
    """

    def __init__(
        self,
        allocator: Allocator,
        settings: AllocatorSettings,
        next_candidates: Callable[[], Ints] | None = None,
    ) -> None:
        self.allocator = allocator
        self.settings = settings
        self._next_candidates = next_candidates
        self.pending = Allocation.empty()
        self._upcoming: Allocation | None = None
        self._round_open = False
        self._rounds_closed = 0
        self.rollouts_taken = 0

    @property
    def exhausted(self) -> bool:
        """Whether `prepare` found nothing left to do."""
        return self._upcoming is None

    @property
    def last(self) -> bool:
        """Whether no step can follow the one prepared: the budget or the rounds end with it."""
        if len(self.pending):
            return False
        return self.allocator.remaining == 0 or self._rounds_closed + 1 >= self.settings.rounds

    def prepare(self) -> None:
        """Plan the next step: the rest of an open round, or the next round that hands anything out."""
        self._upcoming = None
        while not len(self.pending):
            if self._round_open:
                self.close_round()
                continue
            if self.allocator.finished or self._rounds_closed >= self.settings.rounds:
                break
            self.pending = self._plan_round()
            self._round_open = True
        if len(self.pending):
            size = len(self.pending) if self.settings.schedule == "round" else self.settings.batch_prompts
            self._upcoming, self.pending = _split(self.pending, size)

    def take(self) -> Allocation:
        """Return the step that `prepare` planned, once.

        Raises:
            RuntimeError: there is none, or it was taken.
        """
        if self._upcoming is None:
            raise RuntimeError("the rollout budget is spent: no step is left to take")
        if not len(self._upcoming):
            raise RuntimeError(
                "the prompts of this step were taken: something asks for more of them than the allocator planned. "
                "Fix: use a sampler (trainer.v1.sampler.custom_sampler) that does not refill"
            )
        step, self._upcoming = self._upcoming, Allocation.empty()
        self.rollouts_taken += step.total
        return step

    def observe(self, rows: Ints, successes: Ints, failures: Ints) -> None:
        """Take in a step's outcomes; the round closes with its last step."""
        self.allocator.observe(rows, successes, failures)
        if not len(self.pending):
            self.close_round()

    def close_round(self) -> None:
        """Let duals and price move."""
        self.allocator.advance()
        self._round_open = False
        self._rounds_closed += 1

    def _plan_round(self) -> Allocation:
        if self._next_candidates is None:
            plan = self.allocator.plan()
            if self.settings.schedule == "round":
                return plan
            # Steps of an epoch mix prompts as an epoch of a shuffling loader does.
            rng = np.random.default_rng([self.settings.seed, self._rounds_closed, _SHUFFLE])
            order = rng.permutation(len(plan))
            return Allocation(plan.indices[order], plan.rollouts[order])
        parts, seen = [Allocation.empty()], 0
        # One pass over the data at most: a round that finds no more takers ends, and does not circle.
        while self.allocator.room and seen < self.settings.num_prompts:
            candidates = self._next_candidates()
            seen += len(candidates)
            # The loader may have begun its next epoch: a row is served once a round.
            served = np.concatenate([part.indices for part in parts])
            parts.append(self.allocator.plan(candidates[~np.isin(candidates, served)]))
        return Allocation(*(np.concatenate([getattr(p, f) for p in parts]) for f in ("indices", "rollouts")))

    def state_dict(self) -> dict[str, np.ndarray]:
        """Return the allocator's state and the steps of the open round that are still to come."""
        return {_INNER + name: value for name, value in self.allocator.state_dict().items()} | self._own_state()

    def _own_state(self) -> dict[str, np.ndarray]:
        return {
            "pending_indices": self.pending.indices.copy(),
            "pending_rollouts": self.pending.rollouts.copy(),
            "round_open": np.array(self._round_open),
            "rounds_closed": np.array(self._rounds_closed),
            "rollouts_taken": np.array(self.rollouts_taken),
        }

    def load_state_dict(self, state: dict[str, np.ndarray], added: int = 0) -> None:
        """Go on from a saved state.

        Args:
            state: what `state_dict` returned.
            added: rollouts of this run's budget that the run that saved it did not have.

        Raises:
            ValueError: it lacks an array, or holds what cannot be, or an allocator of one's own cannot be made to
                spend more than it was to. Nothing has changed then.
        """
        inner = {name.removeprefix(_INNER): value for name, value in state.items() if name.startswith(_INNER)}
        refuse_state(self._state_rules(state))
        if added and int(state["rounds_closed"]) >= self.settings.rounds:
            raise ValueError(f"{added} rollouts were added to the budget, and no round is left to spend them in")
        if added:
            inner = extension(self.allocator)(inner, added)
        self.allocator.load_state_dict(inner)
        self.pending = Allocation(state["pending_indices"], state["pending_rollouts"])
        self._round_open = bool(state["round_open"])
        self._rounds_closed = int(state["rounds_closed"])
        self.rollouts_taken = int(state["rollouts_taken"])
        self._upcoming = None

    def _state_rules(self, state: dict[str, np.ndarray]) -> Iterator[tuple[bool, str]]:
        missing = [name for name in self._own_state() if name not in state]
        yield not missing, f"no {', '.join(missing)}"
        rows, rollouts = state["pending_indices"], state["pending_rollouts"]
        fits = rows.ndim == 1 and rows.shape == rollouts.shape and bool((rollouts > 0).all())
        yield fits and in_range(rows, self.settings.num_prompts), "steps to come that do not fit the prompts"
        closed, budget = int(state["rounds_closed"]), self.settings.budget
        yield 0 <= closed <= self.settings.rounds, f"round {closed} of {self.settings.rounds}"
        taken = int(state["rollouts_taken"])
        handed = taken + int(rollouts.sum())
        yield taken >= 0 and handed <= budget, f"{handed} rollouts in its steps, outside the budget of {budget}"


def _split(plan: Allocation, size: int) -> tuple[Allocation, Allocation]:
    first, rest = (Allocation(plan.indices[part], plan.rollouts[part]) for part in (slice(size), slice(size, None)))
    return first, rest
