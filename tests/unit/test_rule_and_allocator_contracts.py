"""The contract checks pass what the package has, and say what is wrong with rules and allocators that break them."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from verl_pods_cero.contracts import check_allocator, check_rule
from verl_pods_cero.core.allocators import KNOWN, Allocation
from verl_pods_cero.core.pods import needs
from verl_pods_cero.core.rules import RULES
from verl_pods_cero.core.uniform import Uniform


@pytest.mark.parametrize("rule", sorted(RULES))
def test_every_rule_of_the_package_keeps_the_contract(rule: str) -> None:
    check_rule(rule)


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_every_allocator_of_the_package_keeps_the_contract(name: str) -> None:
    check_allocator(name)


@needs("response_length", "acc")
def shortest(rewards: Any, mask: Any, keep: int, rng: Any, values: Any) -> Any:
    order = np.lexsort((values["response_length"], -values["acc"], -rewards), axis=1)
    kept = np.zeros_like(mask)
    np.put_along_axis(kept, order[:, :keep], True, axis=1)
    return kept


def test_a_rule_that_needs_more_values_gets_them_in_its_check() -> None:
    check_rule(shortest)
    check_rule(f"{__name__}:shortest")


def first(rewards: Any, mask: Any, keep: int, rng: Any) -> Any:
    return mask & (mask.cumsum(axis=1) <= keep)


def test_a_plain_rule_passes() -> None:
    check_rule(first)


def too_many(rewards: Any, mask: Any, keep: int, rng: Any) -> Any:
    return mask & (mask.cumsum(axis=1) <= keep + 1)


def outside(rewards: Any, mask: Any, keep: int, rng: Any) -> Any:
    return np.arange(mask.shape[1])[::-1] < np.full((len(mask), 1), keep)


def by_chance(rewards: Any, mask: Any, keep: int, rng: Any) -> Any:
    draws = np.where(mask, np.random.random(mask.shape), 2.0)  # noqa: NPY002 - what a rule must not do
    return draws <= np.sort(draws, axis=1)[:, keep - 1 : keep]


def in_place(rewards: Any, mask: Any, keep: int, rng: Any) -> Any:
    rewards.sort(axis=1)
    return first(rewards, mask, keep, rng)


def by_the_other_groups(rewards: Any, mask: Any, keep: int, rng: Any) -> Any:
    back = np.arange(len(mask))[:, None] % 2
    return np.where(back, first(rewards, mask[:, ::-1], keep, rng)[:, ::-1], first(rewards, mask, keep, rng))


def indices(rewards: Any, mask: Any, keep: int, rng: Any) -> Any:
    return np.argsort(rewards, axis=1)[:, :keep]


def by_nothing() -> None: ...


@pytest.mark.parametrize(
    ("rule", "complaint"),
    [
        (too_many, "must keep exactly 2 rollouts of each group, inside the mask"),
        (outside, "of them inside"),
        (by_chance, "the same generator gave another choice"),
        (by_the_other_groups, "depends on the order of the groups"),
        (in_place, "changed what it was given"),
        (by_nothing, "TypeError"),
        (indices, "must return bool"),
    ],
)
def test_a_rule_that_breaks_the_contract_is_told_how(rule: Any, complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        check_rule(rule)


class Generous(Uniform):
    def plan(self, candidates: Any = None) -> Allocation:
        given = super().plan(candidates)
        return Allocation(given.indices, given.rollouts + 4)


class Backwards(Uniform):
    def plan(self, candidates: Any = None) -> Allocation:
        given = super().plan(candidates)
        return Allocation(given.indices[::-1], given.rollouts)


class Twice(Uniform):
    def plan(self, candidates: Any = None) -> Allocation:
        given = super().plan(candidates)
        return Allocation(np.repeat(given.indices[:1], len(given)), given.rollouts)


class Chance(Uniform):
    def plan(self, candidates: Any = None) -> Allocation:
        given = super().plan(candidates)
        if candidates is None:
            rows = np.random.permutation(self.settings.num_prompts)[: len(given)]  # noqa: NPY002
            return Allocation(rows, given.rollouts)
        return given


class Forgetful(Uniform):
    def load_state_dict(self, state: dict[str, np.ndarray]) -> None:
        super().load_state_dict(state | {"a": np.ones_like(state["a"])})


class Endless(Uniform):
    finished = False


class Halves(Uniform):
    def plan(self, candidates: Any = None) -> Allocation:
        given = super().plan(candidates)
        return Allocation(given.indices, given.rollouts / 1.0)


class Objects(Uniform):
    def state_dict(self) -> dict[str, np.ndarray]:
        return super().state_dict() | {"names": np.array([None])}


class Half:
    def __init__(self, settings: Any) -> None: ...
    def plan(self, candidates: Any = None) -> None: ...


@pytest.mark.parametrize(
    ("kind", "complaint"),
    [
        (Generous, "rollouts where there is room for"),
        (Backwards, "not in the candidates' order"),
        (Twice, "served twice in a round"),
        (Chance, "the same run went another way"),
        (Forgetful, "comes back different: a"),
        (Endless, "not finished after its 10 rounds"),
        (Halves, "must be whole numbers, above 0"),
        (Objects, "more than plain arrays: names"),
        (Half, "lacks advance, finished"),
    ],
)
def test_an_allocator_that_breaks_the_contract_is_told_how(kind: Any, complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        check_allocator(kind)


def test_the_checks_need_nothing_but_numpy() -> None:
    import subprocess

    program = (
        "import verl_pods_cero.contracts, sys; print(*sorted({'pytest', 'torch', 'verl', 'pandas'} & {*sys.modules}))"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "\n"
