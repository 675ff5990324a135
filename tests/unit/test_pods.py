"""PODS selection: optimality against every subset, ties, robustness of the arithmetic, and error messages."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verl_pods_cero.core.pods import (
    NonFiniteRewardError,
    Selection,
    keep_count,
    needs,
    resolve_rule,
    rule_needs,
    select,
)
from verl_pods_cero.errors import OptionError

RULES = ("max_variance", "max_reward", "random", "percentile")


def full(rewards: np.ndarray) -> np.ndarray:
    return np.ones(rewards.shape, dtype=bool)


def choose(rewards: list[float], keep: int, rule: str = "max_variance") -> list[int]:
    """Positions that a rule keeps of one group."""
    matrix = np.array([rewards])
    return np.flatnonzero(select(matrix, full(matrix), keep, rule).kept[0]).tolist()


def best_variance(group: np.ndarray, keep: int) -> float:
    subsets = np.array(list(combinations(range(len(group)), keep)))
    return float(group[subsets].var(axis=1).max())


def smallest_best_top(group: list[int], keep: int) -> int:
    """The scan of the definition, in exact arithmetic."""
    ordered = sorted(group)
    variances = []
    for k in range(keep + 1):
        chosen = ordered[: keep - k] + ordered[len(ordered) - k :]
        mean = Fraction(sum(chosen), keep)
        variances.append(sum((value - mean) ** 2 for value in chosen))
    return variances.index(max(variances))


def random_groups(kind: str, count: int, n: int) -> np.ndarray:
    rng = np.random.default_rng(n)
    binary = (rng.random((count, n)) < rng.random((count, 1))).astype(float)
    return {
        "continuous": rng.normal(size=(count, n)),
        "duplicates": rng.integers(0, 4, size=(count, n)) / 3,
        "binary": binary,
        "shaped": binary + 0.1 * rng.integers(0, 3, size=(count, n)),
    }[kind]


@st.composite
def tenths(draw, max_groups: int = 5, max_size: int = 9) -> tuple[np.ndarray, np.ndarray, int]:
    """Rewards in tenths, as integers, with a mask of any group sizes, and m."""
    count, n = draw(st.integers(1, max_groups)), draw(st.integers(1, max_size))
    cells = st.lists(st.integers(-12, 12), min_size=count * n, max_size=count * n)
    mask = st.lists(st.booleans(), min_size=count * n, max_size=count * n)
    return (
        np.array(draw(cells)).reshape(count, n),
        np.array(draw(mask), dtype=bool).reshape(count, n),
        draw(st.integers(2, max_size)),
    )


# --- what max_variance is ---


@pytest.mark.parametrize("kind", ["continuous", "duplicates", "binary", "shaped"])
@pytest.mark.parametrize(("n", "keep"), [(5, 2), (7, 3), (8, 4), (9, 6), (9, 8)])
def test_max_variance_finds_the_best_of_all_subsets(kind, n, keep):
    rewards = random_groups(kind, 50, n)  # 20 cases of 50: 1,000 groups
    selection = select(rewards, full(rewards), keep)
    for group, kept in zip(rewards, selection.kept, strict=True):
        assert kept.sum() == keep
        assert group[kept].var() == pytest.approx(best_variance(group, keep), rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("keep", [2, 4, 5, 8, 11])
@pytest.mark.parametrize("ones", range(13))
def test_binary_groups_keep_half_of_each_class_or_all_of_the_rarer_one(keep, ones):
    zeros = 12 - ones
    rewards = np.random.default_rng(ones).permuted(np.array([[1.0] * ones + [0.0] * zeros]))
    kept = select(rewards, full(rewards), keep).kept
    # An odd m cannot be halved: the smallest k gives the extra rollout to the zeros.
    expected = min(max(keep // 2, keep - zeros), ones)
    assert rewards[kept].sum() == expected


@settings(max_examples=300)
@given(tenths())
def test_top_is_the_smallest_k_of_exact_arithmetic(case):
    units, mask, keep = case
    selection = select(units / 10, mask, keep)
    for group, inside, top in zip(units, mask, selection.top, strict=True):
        expected = smallest_best_top(group[inside].tolist(), keep) if inside.sum() > keep else 0
        assert top == expected


# --- ties ---


def test_equally_good_k_give_the_smallest_one():
    rewards = np.array([[0.0, 1.0, 2.0, 3.0]])
    selection = select(rewards, full(rewards), 3)  # 0, 1, 3 and 0, 2, 3 have the same variance
    assert selection.top.tolist() == [1]
    assert selection.kept.tolist() == [[True, True, False, True]]


def test_rounding_does_not_choose_between_equally_good_k():
    rewards = np.array([[0.0, 0.1, 0.2, 0.3], [0.7, 0.8, 0.9, 1.0], [0.1, 0.2, 1.1, 1.2]])  # symmetric in tenths only
    assert select(rewards, full(rewards), 3).top.tolist() == [1, 1, 1]


def test_equal_rewards_are_taken_by_position_from_the_front_below_and_from_the_back_above():
    assert choose([0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0], keep=4) == [0, 2, 5, 7]
    assert choose([1.0, 1.0, 1.0, 1.0, 1.0], keep=2) == [0, 1]
    assert choose([1.0, 1.0, 1.0, 1.0, 1.0], keep=2, rule="max_reward") == [3, 4]


@settings(max_examples=200)
@given(tenths())
def test_the_kept_rollouts_are_the_two_ends_of_a_stable_sort(case):
    units, mask, keep = case
    for rule in ("max_variance", "max_reward"):
        selection = select(units / 10, mask, keep, rule)
        for group, inside, kept, top in zip(units, mask, *selection, strict=True):
            order = np.flatnonzero(inside)[np.argsort(group[inside], kind="stable")]
            if len(order) > keep:
                order = np.concatenate([order[: keep - top], order[len(order) - top :]])
            assert np.flatnonzero(kept).tolist() == sorted(order.tolist())


# --- arithmetic ---


@settings(max_examples=200)
@given(tenths(), st.sampled_from([1e6, -1e6, 1e9]))
def test_an_offset_does_not_change_the_choice(case, offset):
    units, mask, keep = case
    assert select(units / 10 + offset, mask, keep).top.tolist() == select(units / 10, mask, keep).top.tolist()


@pytest.mark.parametrize("kind", ["continuous", "shaped", "binary"])
def test_an_offset_does_not_change_the_choice_in_large_groups(kind):
    rewards = np.round(random_groups(kind, 64, 512), 3)
    for keep in (16, 128, 511):
        plain, moved = select(rewards, full(rewards), keep), select(rewards + 1e6, full(rewards), keep)
        assert (plain.kept == moved.kept).all()
        assert (plain.top == moved.top).all()


def test_a_scale_does_not_change_the_choice():
    rewards = random_groups("shaped", 64, 32)
    plain = select(rewards, full(rewards), 8).kept
    for scale in (2.0**-300, 2.0**300):
        assert (select(rewards * scale, full(rewards), 8).kept == plain).all()


def test_what_rounding_could_have_made_is_no_variance():
    ulps = 1.0 + np.array([[0, 1, 2, 3, 2, 1]]) * np.finfo(float).eps
    far = np.array([[0.0, 1.0, 0.0, 1.0, 1.0, 1.0]]) + 2e15
    for rewards in (ulps, far):  # all gains lie below the noise: k = 0, the m lowest
        kept, top = select(rewards, full(rewards), 2)
        assert (top.tolist(), np.flatnonzero(kept[0]).tolist()) == (
            [0],
            np.argsort(rewards[0], kind="stable")[:2].tolist(),
        )


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64])
def test_other_number_types_are_compared_as_float64(dtype):
    rewards = random_groups("binary", 16, 8).astype(dtype)
    exact = select(rewards.astype(np.float64), full(rewards), 4)
    assert (select(rewards, full(rewards), 4).kept == exact.kept).all()


# --- every rule ---


@settings(max_examples=200)
@given(tenths(), st.sampled_from(RULES))
def test_every_rule_keeps_m_of_each_group_inside_the_mask(case, rule):
    units, mask, keep = case
    kept, top = select(units / 10, mask, keep, rule, np.random.default_rng(0))
    sizes = mask.sum(axis=1)
    assert not (kept & ~mask).any()
    assert kept.sum(axis=1).tolist() == np.minimum(sizes, keep).tolist()
    assert ((top >= 0) & (top <= keep)).all()


@settings(max_examples=100)
@given(tenths(), st.sampled_from(["max_variance", "max_reward", "percentile"]), st.randoms(use_true_random=False))
def test_groups_are_chosen_independently_of_their_order(case, rule, random):
    units, mask, keep = case
    order = random.sample(range(len(units)), len(units))
    kept, top = select(units / 10, mask, keep, rule)
    moved = select(units[order] / 10, mask[order], keep, rule)
    assert (moved.kept == kept[order]).all()
    assert (moved.top == top[order]).all()


@settings(max_examples=100)
@given(tenths(), st.sampled_from(["max_variance", "max_reward", "percentile"]))
def test_what_lies_outside_the_mask_is_not_read(case, rule):
    units, mask, keep = case
    plain = select(units / 10, mask, keep, rule).kept
    for other in (np.nan, np.inf, -np.inf, 99.0):
        assert (select(np.where(mask, units / 10, other), mask, keep, rule).kept == plain).all()


@pytest.mark.parametrize("rule", RULES)
def test_small_and_empty_groups_are_kept_whole_with_k_zero(rule):
    rewards = np.arange(15.0).reshape(3, 5)
    mask = np.array([[False] * 5, [True, False, False, False, True], [True] * 3 + [False] * 2])
    for keep in (3, 4, 9):
        selection = select(rewards, mask, keep, rule, np.random.default_rng(0))
        assert (selection.kept == mask).all()
        assert selection.top.tolist() == [0, 0, 0]


@pytest.mark.parametrize("shape", [(0, 4), (3, 0)])
def test_a_step_without_rollouts_keeps_nothing(shape):
    kept, top = select(np.zeros(shape), np.ones(shape, bool), 2)
    assert kept.shape == shape
    assert top.shape == shape[:1]


def test_the_input_is_left_as_it_was():
    rewards, mask = random_groups("shaped", 4, 8), np.random.default_rng(0).random((4, 8)) < 0.9
    before = rewards.copy(), mask.copy()
    for rule in RULES:
        select(rewards, mask, 3, rule, np.random.default_rng(0)).kept[:] = False
    assert (rewards == before[0]).all()
    assert (mask == before[1]).all()


def test_max_reward_keeps_the_highest():
    rewards = np.array([[0.3, 0.9, 0.1, 0.7, 0.5]])
    selection = select(rewards, full(rewards), 2, "max_reward")
    assert selection.kept.tolist() == [[False, True, False, True, False]]
    assert selection.top.tolist() == [2]


def test_percentile_keeps_evenly_spaced_ranks_with_halves_to_the_even_one():
    assert choose([float(value) for value in range(10)], 4, "percentile") == [1, 3, 6, 8]  # .75, 3.25, 5.75, 8.25
    assert choose([float(value) for value in range(8)], 4, "percentile") == [0, 2, 4, 6]  # .5, 2.5, 4.5, 6.5
    assert choose([5.0, 4.0, 3.0, 2.0, 1.0], 2, "percentile") == [1, 3]  # ranks, not positions: .75, 3.25


def test_percentile_uses_each_groups_own_size():
    rewards = np.array([np.arange(10.0), [0, 1, 2, 3, 4, 9, 9, 9, 9, 9]])
    mask = np.array([[True] * 10, [True] * 5 + [False] * 5])
    kept = select(rewards, mask, 4, "percentile").kept
    assert [np.flatnonzero(row).tolist() for row in kept] == [[1, 3, 6, 8], [0, 1, 3, 4]]


def test_percentile_ranks_are_those_of_exact_arithmetic():
    half = Fraction(1, 2)
    for n in range(3, 61):  # n = 38, m = 19, j = 10 is among those that floats round to the wrong rank
        for keep in range(2, n):
            ranks = [round((j + half) / keep * n - half) for j in range(keep)]
            assert choose([float(value) for value in range(n)], keep, "percentile") == ranks


def test_random_keeps_every_rollout_equally_often_and_repeats_with_its_seed():
    rewards = np.zeros((4000, 5))
    mask = np.ones((4000, 5), dtype=bool)
    mask[:, 4] = False
    kept = select(rewards, mask, 2, "random", np.random.default_rng(7)).kept
    assert np.abs(kept[:, :4].mean(axis=0) - 0.5).max() < 0.04  # five standard deviations
    assert (select(rewards, mask, 2, "random", np.random.default_rng(7)).kept == kept).all()
    assert (select(rewards, mask, 2, "random", np.random.default_rng(8)).kept != kept).any()


# --- a rule of one's own ---

OWN_RULES = """
import numpy as np
from verl_pods_cero.core.pods import Selection

def first(rewards, mask, keep, rng):
    assert rewards.dtype == np.float64 and np.isnan(rewards[~mask]).all() and (mask.sum(axis=1) > keep).all()
    return mask & (mask.cumsum(axis=1) <= keep)

def last(rewards, mask, keep, rng):
    backwards = mask[:, ::-1]
    return Selection((backwards & (backwards.cumsum(axis=1) <= keep))[:, ::-1], np.full(len(mask), keep))

def integers(rewards, mask, keep, rng):
    return first(rewards, mask, keep, rng).astype(int)

def indices(rewards, mask, keep, rng):
    return np.argsort(rewards, axis=1)[:, :keep]

def everything(rewards, mask, keep, rng):
    return mask

def outside(rewards, mask, keep, rng):
    return np.arange(mask.shape[1]) < np.full((len(mask), 1), keep)

number = 3
"""


@pytest.fixture
def own(tmp_path, monkeypatch) -> str:
    package = tmp_path / "my_selection_rules"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "rules.py").write_text(OWN_RULES)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "my_selection_rules.rules:"


REWARDS = np.array([[0.1, 0.2, 0.3, 0.4, 0.5], [9.0, 0.2, 0.3, 0.4, 0.5], [0.1, 9.0, 9.0, 9.0, 0.2]])


def test_a_rule_of_ones_own_is_found_by_its_path_and_sees_only_groups_of_more_than_m(own):
    selection = select(REWARDS, REWARDS < 9, 3, own + "first")
    assert selection.kept.astype(int).tolist() == [[1, 1, 1, 0, 0], [0, 1, 1, 1, 0], [1, 0, 0, 0, 1]]
    assert selection.top.tolist() == [0, 0, 0]
    assert (select(REWARDS, REWARDS < 9, 3, resolve_rule(own + "first")).kept == selection.kept).all()


def test_a_rule_of_ones_own_may_say_how_many_come_from_the_high_end(own):
    selection = select(REWARDS, REWARDS < 9, 3, own + "last")
    assert isinstance(selection, Selection)
    assert selection.kept.astype(int).tolist() == [[0, 0, 1, 1, 1], [0, 0, 1, 1, 1], [1, 0, 0, 0, 1]]
    assert selection.top.tolist() == [3, 3, 0]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("integers", ["integers must return bool (2, 5)", "int64 (2, 5)"]),
        ("indices", ["indices must return bool (2, 5)", "int64 (2, 3)"]),
        (
            "everything",
            [
                "must keep exactly 3 rollouts of each group",
                "5 kept, 5 of them inside the mask, in group 0",
                "function everything",
            ],
        ),
        (
            "outside",
            [
                "must keep exactly 3 rollouts of each group",
                "3 kept, 2 of them inside the mask, in group 1",
                "function outside",
            ],
        ),
    ],
)
def test_a_rule_of_ones_own_that_breaks_its_contract_is_refused(own, name, words):
    with pytest.raises(OptionError) as caught:
        select(REWARDS, REWARDS < 9, 3, own + name)
    for word in ["rule", *words]:
        assert word in str(caught.value)


def test_the_four_rules_are_found_by_name():
    assert [callable(resolve_rule(name)) for name in RULES] == [True] * 4


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("max_varience", ["got 'max_varience'", "did you mean 'max_variance'?", "percentile", "random"]),
        ("zzz", ["got 'zzz'", "use one of: max_reward, max_variance, percentile, random"]),
        ("", ["got ''"]),
        ("module:", ["got 'module:'"]),
        (":first", ["got ':first'"]),
        (".relative:first", ["got '.relative:first'"]),
        (
            "no_such_package.rules:first",
            ["a function that can be imported", "cannot be imported", "no_such_"],
        ),
        ("{own}nothing", ["cannot be imported", "nothing"]),
        ("{own}number", ["must be a function", "number is of type int"]),
    ],
)
def test_a_rule_that_cannot_be_found_is_refused_with_the_names_there_are(own, name, words):
    with pytest.raises(OptionError) as caught:
        resolve_rule(name.replace("{own}", own))
    for word in ["rule", "Fix: ", *words]:
        assert word in str(caught.value)


# --- rules that need more than rewards ---


@needs("response_length", "acc")
def shortest_right(rewards, mask, keep, rng, values):
    assert values.keys() == {"response_length", "acc"} and all(each.shape == mask.shape for each in values.values())
    assert all(np.isnan(each[~mask]).all() for each in values.values())
    order = np.lexsort((values["response_length"], -values["acc"]), axis=1)
    kept = np.zeros_like(mask)
    np.put_along_axis(kept, order[:, :keep], True, axis=1)
    return kept


LENGTHS = np.array([[9.0, 5, 7, 1, 3], [1, 2, 3, 4, 5], [4, 9, 9, 9, 1]])


def test_a_rule_gets_the_values_that_it_needs_laid_out_like_the_rewards():
    mask = REWARDS < 9
    values = {"response_length": LENGTHS, "acc": np.where(mask, REWARDS > 0.25, np.nan), "unread": np.zeros(1)}
    kept, _ = select(REWARDS, mask, 3, shortest_right, values=values)
    assert kept.astype(int).tolist() == [[0, 0, 1, 1, 1], [0, 0, 1, 1, 1], [1, 0, 0, 0, 1]]
    assert rule_needs(shortest_right) == ("response_length", "acc")


def test_a_needed_value_that_is_not_there_is_refused_with_those_that_are():
    for values, there in ((None, "none"), ({"response_length": LENGTHS}, "response_length")):
        with pytest.raises(OptionError, match=f"shortest_right needs a value that is not there, got .*: {there}"):
            select(REWARDS, REWARDS < 9, 3, shortest_right, values=values)


def test_a_needed_value_that_is_not_finite_or_of_another_shape_is_refused():
    broken = np.where(REWARDS == 0.5, np.nan, LENGTHS)
    with pytest.raises(NonFiniteRewardError, match=r"acc must be finite, 2 groups .*\[0, 1\]"):
        select(REWARDS, REWARDS < 9, 3, shortest_right, values={"response_length": LENGTHS, "acc": broken})
    with pytest.raises(ValueError, match=r"need acc \(B, n\)"):
        select(REWARDS, REWARDS < 9, 3, shortest_right, values={"response_length": LENGTHS, "acc": LENGTHS[:1]})


# --- refused input ---


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("rule", RULES)
def test_a_reward_that_is_not_finite_is_refused_with_its_groups(value, rule):
    rewards = np.zeros((5, 4))
    rewards[1, 2] = rewards[3, 0] = rewards[4, 1] = value
    mask = full(rewards)
    mask[4, 1] = False
    with pytest.raises(NonFiniteRewardError, match=r"must be finite, 2 groups have .*: \[1, 3\]") as caught:
        select(rewards, mask, 2, rule, np.random.default_rng(0))
    assert caught.value.groups.tolist() == [1, 3]
    assert isinstance(caught.value, ValueError)


def test_a_reward_that_is_not_finite_is_refused_in_a_group_kept_whole_too():
    with pytest.raises(NonFiniteRewardError):
        select(np.array([[np.nan, 1.0]]), np.ones((1, 2), bool), 4)


@pytest.mark.parametrize("keep", [1, 0, -3, 2.5, None, True, "4"])
def test_keeping_fewer_than_two_is_refused(keep):
    with pytest.raises(OptionError, match=f"keep must be at least 2.*got {keep!r}. Fix: "):
        select(np.zeros((2, 4)), np.ones((2, 4), bool), keep)


@pytest.mark.parametrize(
    ("rewards", "mask", "got"),
    [
        (np.zeros(4), np.ones(4, bool), r"got \(4,\) and bool \(4,\)"),
        (np.zeros((2, 4)), np.ones((2, 5), bool), r"got \(2, 4\) and bool \(2, 5\)"),
        (np.zeros((2, 4)), np.ones((2, 4), int), r"got \(2, 4\) and int64 \(2, 4\)"),
        (np.zeros((2, 4, 1)), np.ones((2, 4, 1), bool), r"got \(2, 4, 1\)"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(rewards, mask, got):
    with pytest.raises(ValueError, match=got):
        select(rewards, mask, 2)


@pytest.mark.parametrize("rng", [None, 7])
def test_random_without_a_generator_is_refused(rng):
    with pytest.raises(OptionError, match=rf"rule 'random' needs a generator, got {rng}. Fix: "):
        select(np.zeros((1, 4)), np.ones((1, 4), bool), 2, "random", rng)


# --- m ---


@pytest.mark.parametrize(
    ("n", "fraction", "m"),
    [
        (45, 0.7, 32),
        (64, 1, 64),
        (64, 0.25, 16),
        (64, 1.0, 64),
        (5, 0.5, 3),
        (7, 0.5, 4),
        (9, 0.5, 5),
        (10, 0.24, 2),
        (64, 0.001, 2),
        (2, 0.1, 2),
    ],
)
def test_the_fraction_is_rounded_half_up_and_keeps_two_at_least(n, fraction, m):
    assert keep_count(n, keep_fraction=fraction) == m


@pytest.mark.parametrize("keep", [2, 16, 64])
def test_the_count_is_taken_as_it_is(keep):
    assert keep_count(64, keep) == keep


@pytest.mark.parametrize(
    ("n", "keep", "fraction", "words"),
    [
        (8, None, None, ["keep or keep_fraction must be set, one of them", "'neither'"]),
        (8, 4, 0.5, ["keep or keep_fraction must be set, one of them", "'both 4 and 0.5'", "set keep_fraction=null"]),
        (8, 1, None, ["keep must be an integer from 2 to n=8", "got 1"]),
        (8, 9, None, ["keep must be an integer from 2 to n=8", "got 9"]),
        (8, True, None, ["keep must be an integer from 2 to n=8", "got True"]),
        (8, None, "half", ["keep_fraction must be above 0", "got 'half'"]),
        (8, 4.0, None, ["keep must be an integer from 2 to n=8", "got 4.0"]),
        (1, 2, None, ["keep must be an integer from 2 to n=1", "got 2"]),
        (8, None, 0.0, ["keep_fraction must be above 0", "at most 1", "got 0.0"]),
        (8, None, -0.5, ["keep_fraction", "got -0.5"]),
        (8, None, 1.01, ["keep_fraction", "got 1.01"]),
        (8, None, float("nan"), ["keep_fraction", "got nan"]),
        (1, None, 0.5, ["keep_fraction", "n=1 at least 2"]),
    ],
)
def test_a_wrong_count_is_refused_with_the_option_the_rule_the_value_and_the_fix(n, keep, fraction, words):
    with pytest.raises(OptionError) as caught:
        keep_count(n, keep, fraction)
    for word in [*words, "Fix: "]:
        assert word in str(caught.value)
