"""The rest of a step goes where the first rollouts disagree, and none of it is lost."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from verl_pods_cero.core.pilot import committed, pilot_of


@st.composite
def steps(draw):
    """A step after its pilot: plan, first part, outcomes, expectations, the most of a prompt, the unit."""
    unit = draw(st.sampled_from([1, 2, 4]))
    n_max = unit * draw(st.integers(2, 8))
    prompts = draw(st.integers(1, 6))
    planned = unit * np.array(draw(st.lists(st.integers(1, n_max // unit), min_size=prompts, max_size=prompts)))
    first = pilot_of(planned, unit * draw(st.integers(1, n_max // unit)))
    back = np.array([draw(st.integers(0, int(count))) for count in first])
    wins = np.array([draw(st.integers(0, int(count))) for count in back])
    expected = np.array(draw(st.lists(st.floats(0, 1), min_size=prompts, max_size=prompts)))
    return planned, first, wins, back - wins, expected, n_max, unit


@given(steps())
def test_all_of_the_rest_is_given_in_whole_units_and_no_prompt_gets_more_than_it_may(step):
    planned, first, wins, losses, _, n_max, unit = step
    more = committed(*step)
    assert more.sum() == (planned - first).sum()
    assert (more >= 0).all() and not (more % unit).any()
    mixed = (wins > 0) & (losses > 0)
    assert (first + more <= np.where(mixed, n_max, planned)).all()


@given(steps())
def test_a_prompt_whose_rollouts_agree_gets_more_only_when_no_other_can_take_it(step):
    _planned, first, wins, losses, _, n_max, _ = step
    more = committed(*step)
    mixed = (wins > 0) & (losses > 0)
    if more[~mixed].any():
        assert (first + more)[mixed].tolist() == [n_max] * int(mixed.sum())


@given(steps())
def test_prompts_that_disagree_rise_together(step):
    _planned, first, wins, losses, _, n_max, unit = step
    more = committed(*step)
    mixed = (wins > 0) & (losses > 0)
    below = mixed & (first + more < n_max)
    if below.any():
        level = more[below]
        assert level.max() - level.min() <= unit
        assert (more[mixed] <= level.max() + unit).all()


def _brute_force(planned, first, wins, losses, expected, n_max, unit):
    """Hand out one unit after the other, each to the prompt that is next."""
    more = np.zeros(len(planned), dtype=int)
    for _ in range((planned - first).sum() // unit):
        mixed = [i for i in range(len(planned)) if wins[i] and losses[i] and first[i] + more[i] < n_max]
        others = [i for i in range(len(planned)) if not (wins[i] and losses[i]) and first[i] + more[i] < planned[i]]
        if mixed:
            seen = wins + losses
            chosen = min(mixed, key=lambda i: (more[i], abs(wins[i] / seen[i] - 0.5), i))
        else:
            chosen = min(others, key=lambda i: (-expected[i] * (1.0 - expected[i]), i))
        more[chosen] += unit
    return more


@given(steps())
def test_it_is_what_unit_after_unit_to_the_next_in_turn_gives(step):
    assert committed(*step).tolist() == _brute_force(*step).tolist()


def test_a_step_in_which_all_agree_keeps_its_plan():
    plan, first = np.array([8, 8]), np.array([4, 4])
    none = np.zeros(2, dtype=int)
    assert committed(plan, first, first, none, np.array([0.9, 0.5]), 16, 4).tolist() == [4, 4]
