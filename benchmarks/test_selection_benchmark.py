"""Cost of PODS selection, next to one argsort of the same rewards and to a loop over the groups.

Run ``pytest benchmarks/test_selection_benchmark.py``: the last lines of output are the ratios, measured in one process
with the calls taking turns. Nothing here fails on time.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import perf_counter

import numpy as np
import pytest

from verl_pods_cero.core.pods import select

SIZES = {"n64": (1024, 64, 16), "n512": (1024, 512, 32)}
KINDS = ("continuous", "binary", "shaped")


def make_rewards(kind: str, prompts: int, n: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    if kind == "continuous":
        return rng.normal(size=(prompts, n))
    right = (rng.random((prompts, n)) < rng.random((prompts, 1))).astype(float)
    return right if kind == "binary" else right + 0.1 * rng.integers(0, 4, size=(prompts, n))


def select_by_loop(rewards: np.ndarray, keep: int) -> np.ndarray:
    """Max-variance as one would write it for a group: sort, prefix sums, scan over k."""
    kept = np.zeros(rewards.shape, dtype=bool)
    for group, row in zip(rewards, kept, strict=True):
        order = np.argsort(group, kind="stable")
        centred = group[order] - group.mean()
        sums = np.concatenate([[0.0], np.cumsum(centred)])
        squares = np.concatenate([[0.0], np.cumsum(centred**2)])
        best, top = -1.0, 0
        for k in range(keep + 1):
            total = sums[keep - k] + sums[-1] - sums[len(group) - k]
            square = squares[keep - k] + squares[-1] - squares[len(group) - k]
            variance = square / keep - (total / keep) ** 2
            if variance > best:
                best, top = variance, k
        row[order[: keep - top]] = True
        row[order[len(group) - top :]] = True
    return kept


class Case:
    """One set of rewards, and the three calls to compare on it."""

    def __init__(self, size: str, kind: str) -> None:
        prompts, n, self.keep = SIZES[size]
        self.name = f"{kind} {prompts} x {n}, m={self.keep}"
        self.rewards = make_rewards(kind, prompts, n)
        self.mask = np.ones(self.rewards.shape, dtype=bool)

    def select(self) -> np.ndarray:
        return select(self.rewards, self.mask, self.keep).kept

    def argsort(self) -> np.ndarray:
        return np.argsort(self.rewards, axis=1)

    def loop(self) -> np.ndarray:
        return select_by_loop(self.rewards, self.keep)


@pytest.fixture(params=[(size, kind) for size in SIZES for kind in KINDS], ids="-".join)
def case(request: pytest.FixtureRequest) -> Case:
    return Case(*request.param)


def seconds(call: Callable[[], object]) -> float:
    start = perf_counter()
    call()
    return perf_counter() - start


def test_select(benchmark, case):
    benchmark.group = case.name
    benchmark.pedantic(case.select, rounds=50, warmup_rounds=2)


def test_argsort(benchmark, case):
    benchmark.group = case.name
    benchmark.pedantic(case.argsort, rounds=50, warmup_rounds=2)


def test_loop(benchmark, case):
    benchmark.group = case.name
    benchmark.pedantic(case.loop, rounds=3)


def test_ratios(benchmark, case, capsys):
    # The loop breaks ties of k by rounding noise, which only shaped rewards have.
    assert (case.select() == case.loop()).mean() > 0.99
    times: dict[str, list[float]] = {"select": [], "argsort": [], "loop": []}
    for turn in range(60):
        times["select"].append(seconds(case.select))
        times["argsort"].append(seconds(case.argsort))
        if turn % 10 == 0:
            times["loop"].append(seconds(case.loop))
    report = case.name
    for label, of in (("best", min), ("median", median)):
        ours, argsort, loop = (of(times[name]) for name in ("select", "argsort", "loop"))
        benchmark.extra_info[f"{label}_ms"] = round(ours * 1e3, 3)
        benchmark.extra_info[f"{label}_over_argsort"] = round(ours / argsort, 2)
        benchmark.extra_info[f"{label}_loop_over_select"] = round(loop / ours, 1)
        report += f" | {label}: {ours * 1e3:.2f} ms, {ours / argsort:.2f} argsorts, loop {loop / ours:.0f}x slower"
    with capsys.disabled():
        print(f"\n{report}", end="")
    benchmark.group = f"{case.name}, in turns"
    benchmark.pedantic(case.select, rounds=5)
