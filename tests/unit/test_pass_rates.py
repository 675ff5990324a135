from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verl_pods_cero.core.pass_rates import Calibration, PassRates, checked_indices, informativeness

quick = settings(max_examples=50)


@quick
@given(st.floats(1e-3, 1e9), st.floats(1e-3, 1e9))
def test_informativeness_is_the_expected_bernoulli_variance_and_below_a_quarter(a: float, b: float) -> None:
    mean = a / (a + b)
    variance = a * b / ((a + b) ** 2 * (a + b + 1.0))
    # E[p (1 - p)] = E[p] - E[p]^2 - Var[p]
    assert informativeness(a, b) == pytest.approx(mean - mean**2 - variance, rel=1e-9, abs=1e-12)
    assert 0.0 < float(informativeness(a, b)) < 0.25


def test_informativeness_does_not_overflow_at_enormous_counts() -> None:
    assert float(informativeness(1e200, 1e200)) == pytest.approx(0.25)


def test_only_the_prompts_observed_change_and_only_they_forget() -> None:
    rates = PassRates.start(4, prior=(1.0, 2.0), rho=0.5)
    rates.observe([0, 1], [4, 0], [0, 4])
    touched = rates.observe([1], [2], [1])
    assert touched.tolist() == [1]
    assert rates.a.tolist() == [5.0, 3.0, 1.0, 1.0]
    assert rates.b.tolist() == [2.0, 5.0, 2.0, 2.0]
    assert np.array_equal(rates.q, informativeness(rates.a, rates.b))


def test_a_prompt_named_twice_forgets_once_and_has_its_outcomes_summed() -> None:
    twice, once = PassRates.start(2, rho=0.5), PassRates.start(2, rho=0.5)
    for rates in (twice, once):
        rates.observe([1], [8], [8])
    twice.observe([1, 1], [1, 2], [3, 0])
    once.observe([1], [3], [3])
    assert twice.a.tolist() == once.a.tolist() and twice.b.tolist() == once.b.tolist()


def test_a_prompt_without_any_rollout_does_not_forget() -> None:
    rates = PassRates.start(1, rho=0.0)
    rates.observe([0], [3], [1])
    assert rates.observe([0], [0], [0]).tolist() == []
    assert (rates.a[0], rates.b[0]) == (4.0, 2.0)


def test_rho_zero_forgets_all_that_came_before() -> None:
    rates = PassRates.start(1, rho=0.0)
    rates.observe([0], [30], [10])
    rates.observe([0], [1], [2])
    assert (rates.a[0], rates.b[0]) == (2.0, 3.0)


@quick
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 8), st.integers(0, 8)), max_size=20))
def test_without_forgetting_the_posterior_counts_every_outcome_once(outcomes: list[tuple[int, int, int]]) -> None:
    rates = PassRates.start(5)
    for row, wins, losses in outcomes:
        rates.observe([row], [wins], [losses])
    for row in range(5):
        assert rates.a[row] == 1.0 + sum(w for r, w, _ in outcomes if r == row)
        assert rates.b[row] == 1.0 + sum(f for r, _, f in outcomes if r == row)
    assert np.array_equal(rates.q, informativeness(rates.a, rates.b))


def test_mean_and_predict_agree() -> None:
    rates = PassRates.start(3)
    rates.observe([2], [3], [1])
    assert rates.predict([2, 0]).tolist() == rates.mean[[2, 0]].tolist()


@pytest.mark.parametrize(
    ("outcome", "complaint"),
    [
        (([3], [1], [0]), "prompt 3 is out of range: this allocator was set up for 3 prompts"),
        (([-1], [1], [0]), "prompt -1 is out of range"),
        (([0], [1, 1], [0]), "one shape"),
        (([0], [-1], [0]), "successes must be finite and >= 0, got -1.0 for prompt 0"),
        (([2], [1], [float("nan")]), "failures must be finite and >= 0, got nan for prompt 2"),
        (([0.5], [1], [0]), "integers, got dtype float64"),
        (([[0]], [[1]], [[0]]), "flat array"),
    ],
)
def test_an_outcome_that_cannot_be_is_refused(
    outcome: tuple[list[float], list[float], list[float]], complaint: str
) -> None:
    rates = PassRates.start(3)
    with pytest.raises(ValueError, match=complaint):
        rates.observe(*outcome)
    assert rates.a.tolist() == [1.0, 1.0, 1.0]


def test_an_empty_list_of_prompts_is_fine() -> None:
    assert checked_indices(3, []).tolist() == []
    assert PassRates.start(3).observe([], [], []).tolist() == []


def test_calibration_scores_prompts_and_rollouts_and_pools() -> None:
    predicted = np.array([0.5, 1.0, 0.3])
    first = Calibration.of(predicted, np.array([4.0, 3.0, 0.0]), np.array([0.0, 1.0, 0.0]))
    assert first.prompts == 2
    assert first.mean_absolute_error == pytest.approx((0.5 + 0.25) / 2)
    assert first.brier == pytest.approx((4 * 0.25 + 1 * 1.0) / 8)
    assert (first + Calibration()).brier == first.brier
    assert Calibration().mean_absolute_error == 0.0 == Calibration().brier
