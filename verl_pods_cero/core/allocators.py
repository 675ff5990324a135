"""What an allocator is, and how one is found by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from verl_pods_cero.core.arrays import Ints
from verl_pods_cero.core.import_names import imported
from verl_pods_cero.core.settings import AllocatorSettings
from verl_pods_cero.errors import OptionError, verbatim

_HOME = "verl_pods_cero.core"
KNOWN = {
    "cero": f"{_HOME}.cero:Cero",
    "fixed_pacing": f"{_HOME}.cero:FixedPacing",
    "greedy_marginal": f"{_HOME}.greedy_marginal:GreedyMarginal",
    "greso": f"{_HOME}.greso:Greso",
    "knapsack": f"{_HOME}.knapsack:Knapsack",
    "prioritized": f"{_HOME}.prioritized:Prioritized",
    "random_matched": f"{_HOME}.cero:RandomMatched",
    "thompson": f"{_HOME}.thompson:Thompson",
    "uniform": f"{_HOME}.uniform:Uniform",
}


@dataclass(frozen=True)
class Allocation:
    """Who gets rollouts, and how many.

    Shapes and units:
        indices: (k,) int64, positions of rows in the data set. rollouts: (k,) int64, > 0, for each of them.

    >>> Allocation(np.array([7, 3]), np.array([8, 4])).total
    12
    """

    indices: Ints
    rollouts: Ints

    @classmethod
    def empty(cls) -> Allocation:
        """An allocation to nobody."""
        none = np.zeros(0, dtype=np.int64)
        return cls(none, none)

    @property
    def total(self) -> int:
        """Rollouts in all."""
        return int(self.rollouts.sum())

    def __len__(self) -> int:
        return len(self.indices)


class Allocator(Protocol):
    """Decides before generation which prompts get rollouts and how many, under a budget for the whole run.

    A round is one or more calls of `plan`, the outcomes through `observe`, and `advance`. An implementation is
    built with an `AllocatorSettings` as its only argument.
    """

    @property
    def spent(self) -> int:
        """Rollouts handed out so far."""

    @property
    def remaining(self) -> int:
        """Rollouts of the budget that are left."""

    @property
    def room(self) -> int:
        """Rollouts that the open round may still get; at 0 the batch is full."""

    @property
    def finished(self) -> bool:
        """Whether no more rollouts will be handed out."""

    def plan(self, candidates: ArrayLike | None = None) -> Allocation:
        """Hand out rollouts to any row (None), or to these rows only, in their order."""

    def observe(self, indices: ArrayLike, successes: ArrayLike, failures: ArrayLike) -> None:
        """Take in how many rollouts of each prompt passed and how many did not."""

    def advance(self) -> None:
        """Close the round, whether or not it handed anything out."""

    def state_dict(self) -> dict[str, np.ndarray]:
        """All that is needed to go on from here, as plain arrays (no objects)."""

    def load_state_dict(self, state: dict[str, np.ndarray]) -> None:
        """Go on from a saved state."""

    def metrics(self) -> dict[str, float]:
        """Numbers worth logging after a round."""


def resolve_allocator(name: str) -> Callable[[AllocatorSettings], Allocator]:
    """Find an allocator's class by its name, or by `package.module:Class` for one of your own.

    Raises:
        OptionError: No such name, module or class.

    >>> resolve_allocator("greso").__name__
    'Greso'
    """
    return imported("name", KNOWN.get(name, name), KNOWN, "Class")


def create_allocator(name: str, settings: AllocatorSettings) -> Allocator:
    """Build an allocator from its name, or from `package.module:Class` for one of your own.

    Raises:
        OptionError: No such name, module or class, or one that cannot be built, or lacks a part of the protocol.

    >>> settings = AllocatorSettings(num_prompts=4, budget=32, rounds=2, batch_prompts=2)
    >>> create_allocator("uniform", settings).remaining
    32
    >>> create_allocator("unifrom", settings)
    Traceback (most recent call last):
    verl_pods_cero.errors.OptionError: name must be a known name or package.module:Class, got \
'unifrom'. Fix: did you mean 'uniform'? Known: cero, fixed_pacing, greedy_marginal, greso, knapsack, \
prioritized, random_matched, thompson, uniform.
    """
    kind = resolve_allocator(name)
    try:
        made = kind(settings)
    except OptionError:
        raise
    except Exception as error:  # whatever a class of the user's own raises
        rule = f"must name a class that can be built ({type(error).__name__}: {verbatim(error)})"
        raise OptionError("name", rule, name, "give it one argument, an AllocatorSettings") from error
    if missing := missing_parts(made):
        rule = f"must name a class with every part of {_HOME}.allocators.Allocator; it lacks {', '.join(missing)}"
        raise OptionError("name", rule, name, f"add them, or derive it from {_HOME}.budget.BudgetedAllocator")
    return made


def missing_parts(made: object) -> list[str]:
    """Return what an object lacks of the `Allocator` protocol."""
    return sorted(part for part in vars(Allocator) if not part.startswith("_") and not hasattr(made, part))
