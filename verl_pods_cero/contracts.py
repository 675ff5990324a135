"""What every rule and every allocator keeps to, as checks for one's own tests: they raise an AssertionError.

>>> def test_my_rule() -> None:
...     check_rule("my_package.rules:shortest")
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from verl_pods_cero.core.allocators import Allocation, Allocator, missing_parts, resolve_allocator
from verl_pods_cero.core.arrays import Floats, Ints, Mask
from verl_pods_cero.core.pods import Rule, Selection, resolve_rule, rule_needs, select
from verl_pods_cero.core.settings import AllocatorSettings

Build: TypeAlias = Callable[[AllocatorSettings], Allocator]

_SMALL = AllocatorSettings(num_prompts=24, budget=480, rounds=10, batch_prompts=6, n=8, n_max=16, unit=4)
SETTINGS = (_SMALL, replace(_SMALL, schedule="epoch", rounds=3, budget=640), replace(_SMALL, rounds=30, n_max=8))


def _demand(condition: bool, text: str) -> None:
    if not condition:
        raise AssertionError(text)


# ---------------------------------------------------------------------------------------------------------- rules


def check_rule(rule: str | Rule) -> None:
    """Check a rule of the filter on groups of every size, with equal, two-valued and distinct rewards.

    What holds of a rule: it keeps exactly m of every group of more than m rollouts, all inside the mask; the same
    generator gives the same choice; it changes nothing that it is given; and without draws, what it keeps of a group
    does not depend on the other groups.

    Args:
        rule: a name, `package.module:function`, or the function.

    Raises:
        AssertionError: one of these does not hold.
        OptionError: there is no such rule.

    >>> check_rule("max_variance")
    >>> check_rule(lambda rewards, mask, keep, rng: mask)
    Traceback (most recent call last):
        ...
    AssertionError: rewards (8, 7), m = 2: OptionError: rule must keep exactly 2 rollouts of each group, inside the \
mask, got '7 kept, 7 of them inside the mask, in group 0'. Fix: let the function <lambda> return bool (B, n) with 2 \
true in each row, where the mask is true.
    """
    function = resolve_rule(rule) if isinstance(rule, str) else rule
    for number, (rewards, mask, keep) in enumerate(_groups()):
        where = f"rewards {rewards.shape}, m = {keep}"
        rng = np.random.default_rng(number)
        values = {name: rng.random(rewards.shape) for name in rule_needs(function)}
        before = [each.copy() for each in (rewards, mask, *values.values())]
        chosen = [_chosen(function, rewards, mask, keep, seed, values, where) for seed in (0, 0, 1)]
        _demand(_alike(chosen[0], chosen[1]), f"{where}: the same generator gave another choice")
        unchanged = all(map(np.array_equal, before, (rewards, mask, *values.values())))
        _demand(unchanged, f"{where}: the rule changed what it was given")
        if _alike(chosen[0], chosen[2]):
            turned = {name: table[::-1] for name, table in values.items()}
            backwards = _chosen(function, rewards[::-1], mask[::-1], keep, 0, turned, where)
            same = np.array_equal(backwards.kept[::-1], chosen[0].kept)
            _demand(same, f"{where}: what is kept of a group depends on the order of the groups")


def _groups() -> Iterator[tuple[Floats, Mask, int]]:
    rng = np.random.default_rng(0)
    for n, keep in ((7, 2), (8, 4), (9, 8), (33, 5)):
        mask = np.arange(n) < np.array([n, n, n, n, 1, 0, keep, keep + 1])[:, None]
        mask[3] = rng.permutation(mask[7])
        kinds = (rng.normal(size=mask.shape), rng.integers(0, 2, mask.shape), np.full(mask.shape, 0.5))
        for rewards in kinds:
            yield np.asarray(rewards, dtype=np.float64), mask, keep
            # Without gaps a rule is handed the caller's own tables.
            yield np.asarray(rewards, dtype=np.float64), np.ones_like(mask), keep


def _chosen(
    rule: Rule, rewards: Floats, mask: Mask, keep: int, seed: int, values: Mapping[str, Floats], where: str
) -> Selection:
    try:
        return select(rewards, mask, keep, rule, np.random.default_rng(seed), values)
    except Exception as error:
        raise AssertionError(f"{where}: {type(error).__name__}: {error}") from error


def _alike(one: Selection, other: Selection) -> bool:
    return all(map(np.array_equal, one, other))


# ----------------------------------------------------------------------------------------------------- allocators


def check_allocator(allocator: str | Build) -> None:
    """Check an allocator over whole runs of small sizes, with any row and with candidates.

    What holds of an allocator: it has every part of the protocol; it hands out whole rollouts to rows that exist, each
    once a round, and with candidates to these only, in their order; it keeps to the room of the round and to the
    budget, and counts what it spent; it is finished after its rounds, and hands out nothing then; the same settings
    and outcomes give the same run; and a new one that loads a saved state goes on as the old one does, also in the
    middle of a round.

    Args:
        allocator: a name, `package.module:Class`, or the class.

    Raises:
        AssertionError: one of these does not hold.
        OptionError: there is no such allocator.

    >>> check_allocator("cero")
    """
    build = resolve_allocator(allocator) if isinstance(allocator, str) else allocator
    for settings in SETTINGS:
        for parts in (0, 3):
            where = f"schedule {settings.schedule}, {'candidates' if parts else 'any row'}"
            _check_run(build, settings, parts, where)


def _check_run(build: Build, settings: AllocatorSettings, parts: int, where: str) -> None:
    first, second = build(settings), build(settings)
    if missing := missing_parts(first):
        raise AssertionError(f"{where}: the class lacks {', '.join(missing)} of the protocol")
    for number in range(settings.rounds):
        served: set[int] = set()
        for candidates in _candidates(settings, parts, number):
            given = _checked_plan(first, settings, candidates, served, f"{where}, round {number}")
            _demand_equal(given, second.plan(candidates), f"{where}, round {number}: the same run went another way")
            # From here on the second is one that was resumed.
            second = _resumed(build, settings, second, f"{where}, round {number}")
            for each in (first, second):
                _observe(each, given, number)
        for each in (first, second):
            each.advance()
            odd = [name for name, value in each.metrics().items() if not np.isfinite(value)]
            _demand(not odd, f"{where}, round {number}: metrics that are not finite: {', '.join(odd)}")
        second = _resumed(build, settings, second, f"{where}, after round {number}")
    _demand(first.finished, f"{where}: not finished after its {settings.rounds} rounds")
    _demand(len(first.plan()) == 0, f"{where}: it hands out rollouts after it is finished")


def _candidates(settings: AllocatorSettings, parts: int, number: int) -> list[Ints | None]:
    if not parts:
        return [None]
    rows = np.random.default_rng(number).permutation(settings.num_prompts)
    return list(np.array_split(rows, parts))


def _checked_plan(
    allocator: Allocator, settings: AllocatorSettings, candidates: Ints | None, served: set[int], where: str
) -> Allocation:
    room, spent = allocator.room, allocator.spent
    given = allocator.plan(candidates)
    rows = given.indices.tolist()
    _demand(given.indices.shape == given.rollouts.shape, f"{where}: as many rollouts as rows are needed")
    whole = all(np.issubdtype(each.dtype, np.integer) for each in (given.indices, given.rollouts))
    _demand(whole and bool((given.rollouts > 0).all()), f"{where}: rows and rollouts must be whole numbers, above 0")
    _demand(all(0 <= row < settings.num_prompts for row in rows), f"{where}: a row that the data set has not")
    _demand(len({*rows} | served) == len(rows) + len(served), f"{where}: a row is served twice in a round")
    served.update(rows)
    if candidates is not None:
        _demand(
            rows == [row for row in candidates.tolist() if row in {*rows}], f"{where}: not in the candidates' order"
        )
    _demand(given.total <= room, f"{where}: {given.total} rollouts where there is room for {room}")
    _demand(allocator.spent == spent + given.total, f"{where}: spent does not count the {given.total} handed out")
    _demand(
        allocator.spent + allocator.remaining == settings.budget, f"{where}: spent and remaining are not the budget"
    )
    _demand(allocator.remaining >= 0, f"{where}: the budget of {settings.budget} is exceeded")
    return given


def _demand_equal(one: Allocation, other: Allocation, text: str) -> None:
    same = np.array_equal(one.indices, other.indices) and np.array_equal(one.rollouts, other.rollouts)
    _demand(same, f"{text}: {other.indices.tolist()} where it was {one.indices.tolist()}")


def _observe(allocator: Allocator, given: Allocation, number: int) -> None:
    rate = (given.indices * 7 % 11) / 10
    wins = np.random.default_rng(number).binomial(given.rollouts, rate)
    allocator.observe(given.indices, wins, given.rollouts - wins)


def _resumed(build: Build, settings: AllocatorSettings, old: Allocator, where: str) -> Allocator:
    state = old.state_dict()
    odd = [name for name, value in state.items() if not isinstance(value, np.ndarray) or value.dtype.hasobject]
    _demand(not odd, f"{where}: the state has more than plain arrays: {', '.join(odd)}")
    new = build(settings)
    new.load_state_dict({name: value.copy() for name, value in state.items()})
    again = new.state_dict()
    _demand(state.keys() == again.keys(), f"{where}: a saved state comes back with other arrays: {', '.join(again)}")
    lost = [name for name in state if not np.array_equal(state[name], again[name])]
    _demand(not lost, f"{where}: a saved state comes back different: {', '.join(sorted(lost))}")
    counts = [(each.spent, each.remaining, each.room, each.finished) for each in (old, new)]
    _demand(counts[0] == counts[1], f"{where}: spent, remaining, room or finished differ after loading: {counts}")
    return new
