"""Outcomes of before the run: what each allocator makes of them, and which files are refused."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_pods_cero.core.allocators import KNOWN, create_allocator, resolve_allocator
from verl_pods_cero.core.settings import AllocatorSettings
from verl_pods_cero.errors import OptionError
from verl_pods_cero.options.checks import validate
from verl_pods_cero.options.warm_start import read_outcomes

M = 12
LEARNING = sorted(name for name in KNOWN if resolve_allocator(name).learns)
# The first four are sure to pass, the next four sure to fail, the last four open.
WINS = np.repeat([32.0, 0.0, 16.0], 4)
LOSSES = 32.0 - WINS
ROWS = np.arange(M)


def make(name):
    n_max = 16 if name == "knapsack" else 8
    return create_allocator(name, AllocatorSettings(M, budget=8 * 32, rounds=8, batch_prompts=4, n=8, n_max=n_max))


def equal(one, other):
    return all(np.array_equal(part, other[name]) for name, part in one.items())


@pytest.mark.parametrize("name", ["cero", "fixed_pacing", "greedy_marginal", "prioritized", "thompson"])
def test_prompts_whose_outcomes_are_open_come_first(name):
    allocator = make(name)
    allocator.warm_start(ROWS, WINS, LOSSES)
    assert sorted(allocator.plan().indices)[-4:] == [8, 9, 10, 11]


def test_greso_counts_a_group_without_variance_as_one(name="greso"):
    allocator = make(name)
    allocator.warm_start(ROWS, WINS, LOSSES)
    assert allocator.streak.tolist() == [1] * 4 + [-1] * 4 + [0] * 4
    before = allocator._explore.copy()
    allocator.advance()
    assert (allocator._explore == before).all(), "what was before the run is in no round's shares"


@pytest.mark.parametrize("name", LEARNING)
def test_known_pass_rates_are_expected_and_nothing_is_spent(name):
    allocator = make(name)
    allocator.warm_start(ROWS, WINS, LOSSES)
    assert allocator.predict(ROWS) == pytest.approx(np.repeat([0.97, 0.03, 0.5], 4), abs=0.03)
    assert (allocator.spent, allocator.round, allocator.exposures.sum()) == (0, 0, 0)


@pytest.mark.parametrize("name", LEARNING)
@given(order=st.permutations(range(M)), idle=st.sets(st.integers(0, M - 1)))
def test_neither_the_order_of_rows_nor_rows_without_outcomes_matter(name, order, idle):
    one, other = make(name), make(name)
    kept = np.array([row not in idle for row in ROWS])
    one.warm_start(ROWS, WINS * kept, LOSSES * kept)
    order = np.array([row for row in order if kept[row]], dtype=np.int64)
    other.warm_start(order, WINS[order], LOSSES[order])
    assert equal(one.state_dict(), other.state_dict())


@pytest.mark.parametrize("name", LEARNING)
def test_no_outcomes_change_nothing(name):
    cold, warm = make(name), make(name)
    warm.warm_start(ROWS, 0 * WINS, 0 * LOSSES)
    assert equal(cold.state_dict(), warm.state_dict())


@pytest.mark.parametrize("name", LEARNING)
def test_a_warm_run_goes_on_from_its_state_as_if_it_had_not_stopped(name):
    whole, resumed = make(name), make(name)
    whole.warm_start(ROWS, WINS, LOSSES)
    for _ in range(2):
        plan = whole.plan()
        whole.observe(plan.indices, plan.rollouts // 2, plan.rollouts - plan.rollouts // 2)
        whole.advance()
    resumed.load_state_dict(whole.state_dict())
    assert whole.plan().indices.tolist() == resumed.plan().indices.tolist()


def test_a_prompt_known_from_before_is_as_overdue_as_one_never_met():
    allocator = make("prioritized")
    allocator.warm_start([3], [4], [4])
    first = allocator.plan()
    assert 3 in first.indices
    for _ in range(2):
        allocator.observe(first.indices, first.rollouts // 2, first.rollouts // 2)
        allocator.advance()
        first = allocator.plan()
        assert 3 not in first.indices, "met in this run, it waits for its turn"


def test_outcomes_of_before_the_run_do_not_come_in_the_middle_of_it():
    allocator = make("cero")
    allocator.plan()
    with pytest.raises(RuntimeError, match="before its first round"):
        allocator.warm_start(ROWS, WINS, LOSSES)


# ---------------------------------------------------------------------- the file

GOOD = {"row": [0, 2], "successes": [3.0, 0.0], "failures": [1.0, 4.0]}


def written(tmp_path, **columns):
    path = tmp_path / "known.parquet"
    pd.DataFrame({**GOOD, **columns}).to_parquet(path)
    return str(path)


def test_a_file_is_read_with_the_rows_it_has(tmp_path):
    rows, wins, losses = read_outcomes(written(tmp_path, pass_rate=[0.75, 0.0]), 3)
    assert (rows.tolist(), wins.tolist(), losses.tolist()) == ([0, 2], [3, 0], [1, 4])


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"row": [0, 3]}, "rows from 0 to 2, those of the data, got 3"),
        ({"row": [0, -1]}, "rows from 0 to 2, those of the data, got -1"),
        ({"row": [1, 1]}, "each row once, got 1"),
        ({"row": [0.0, 1.5]}, "whole numbers as rows, got 'float64'"),
        ({"successes": [1.0, -1.0]}, "finite numbers, at least 0, as successes"),
        ({"failures": [1.0, float("nan")]}, "finite numbers, at least 0, as failures"),
        ({"failures": ["one", "two"]}, "finite numbers, at least 0, as failures"),
    ],
)
def test_columns_that_cannot_be_are_refused(tmp_path, columns, words):
    with pytest.raises(OptionError, match=f"pods_cero.allocator.warm_start must have {words}"):
        read_outcomes(written(tmp_path, **columns), 3)


def test_a_file_that_is_none_or_lacks_a_column_is_refused(tmp_path):
    (tmp_path / "text").write_text("no table")
    pd.DataFrame({"row": [0]}).to_parquet(tmp_path / "rows")
    for name, words in {
        "none": "a file that exists",
        "text": "a parquet file",
        "rows": "successes, failures miss",
    }.items():
        with pytest.raises(OptionError, match=words):
            read_outcomes(str(tmp_path / name), 3)


ALLOCATOR = "pods_cero.allocator."


@pytest.mark.parametrize(("name", "words"), [("uniform", "chooses by outcomes, and uniform does not"), ("cero", None)])
def test_the_file_is_looked_at_before_ray_starts(configure, tmp_path, name, words):
    options = {"pods_cero.filter.enable": False, "pods_cero.filter.keep": None, ALLOCATOR + "enable": True}
    file = {ALLOCATOR + "name": name, ALLOCATOR + "warm_start": written(tmp_path, row=[0, 40])}
    with pytest.raises(OptionError, match=words or "rows from 0 to 31, those of the data, got 40"):
        validate(configure(**options, **file), use_critic=False, use_reference=False)
