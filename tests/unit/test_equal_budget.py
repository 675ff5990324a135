"""The check of equal budgets: a part of what `python -m benchmarks.equal_budget` plays, and that it can fail."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import equal_budget
from benchmarks.equal_budget import REFUSED, SPENT, BudgetError, configuration, counts, outcome
from verl_pods_cero.core.uniform import Uniform


def test_every_allocator_spends_exactly_its_budget_or_refuses_it() -> None:
    found = counts(360)
    assert all(counted[SPENT] > 9 and counted[REFUSED] > 9 for counted in found.values())
    assert sum(sum(counted.values()) for counted in found.values()) == 360


class Stingy(Uniform):
    """Never hands out the last unit of a round."""

    def _round_limit(self) -> int:
        return super()._round_limit() - 1


@pytest.mark.parametrize("schedule", ["round", "epoch"])
def test_an_allocator_that_keeps_something_back_is_found(schedule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: dict[str, Any] = {"num_prompts": 20, "batch_prompts": 4, "n": 8, "steps": 10, "schedule": schedule}
    assert outcome("uniform", sizes) == SPENT
    monkeypatch.setattr(equal_budget, "create_allocator", lambda _, settings: Stingy(settings))
    with pytest.raises(BudgetError, match="uniform spent"):
        outcome("uniform", sizes)


def test_configurations_are_drawn_from_their_number_and_reach_beyond_the_defaults() -> None:
    assert configuration(7) == configuration(7) != configuration(8)
    made = [drawn for _, drawn in map(configuration, range(200))]
    for name in ("n_max", "unit", "budget", "capacity"):
        assert len({drawn[name] is None for drawn in made}) == 2
    assert {drawn["schedule"] for drawn in made} == {"round", "epoch"}
