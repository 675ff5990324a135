from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verl_pods_cero.core import quantiles as module
from verl_pods_cero.core.budget import spread
from verl_pods_cero.core.quantiles import quantiles

SHARES = [0.0, 0.1, 0.25, 0.5, 0.9, 1.0]


@settings(max_examples=200)
@given(st.lists(st.floats(-1e6, 1e6) | st.sampled_from([0.0, 0.25, 1 / 6]), min_size=1, max_size=60))
def test_quantiles_of_few_numbers_are_numpys(values: list[float]) -> None:
    assert quantiles(np.array(values), SHARES) == np.quantile(values, SHARES).tolist()


@settings(max_examples=200)
@given(st.lists(st.integers(0, 2**31 - 1) | st.integers(0, 9), min_size=1, max_size=60))
def test_quantiles_of_integers_are_numpys_however_large_they_are(values: list[int]) -> None:
    made = np.array(values, dtype=np.int32)
    assert quantiles(made, SHARES) == np.quantile(made, SHARES).tolist()


def many(kind: str, count: int, rng: np.random.Generator) -> np.ndarray:
    """Numbers in orders that a sample at even distances sees well, and in some that it does not."""
    spread_out = rng.random(count)
    return {
        "shuffled": spread_out,
        "sorted": np.sort(spread_out),
        "mostly equal": np.where(spread_out < 0.7, 1 / 6, spread_out),
        "all equal": np.full(count, 1 / 6),
        "few values": np.round(spread_out, 1),
        "periodic": (np.arange(count) % 7).astype(float),
        "exposures": rng.poisson(5, count).astype(np.int32),
    }[kind]


@pytest.mark.parametrize("count", [999, 1000, 1001, 7000, 50_003])
@pytest.mark.parametrize(
    "kind", ["shuffled", "sorted", "mostly equal", "all equal", "few values", "periodic", "exposures"]
)
def test_quantiles_of_many_numbers_are_numpys_to_the_last_bit(
    kind: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SAMPLE", 1000)
    values = many(kind, count, np.random.default_rng(count))
    assert quantiles(values, SHARES) == np.quantile(values, SHARES).tolist()


def test_a_sample_that_misleads_costs_time_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SAMPLE", 100)
    values = np.random.default_rng(0).random(7000)
    values[::70] = 5.0  # every number of the sample
    assert quantiles(values, SHARES) == np.quantile(values, SHARES).tolist()


def test_values_are_left_as_they_are_and_metrics_are_scaled() -> None:
    values = np.array([4, 0, 2, 1], dtype=np.int32)
    assert spread("exposures", values, 4) == {"exposures_p10": 1.2000000000000002, "exposures_p50": 6.0} | {
        "exposures_p90": pytest.approx(13.6)
    }
    assert values.tolist() == [4, 0, 2, 1]
