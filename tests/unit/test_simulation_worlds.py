from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import published_data
from verl_pods_cero.errors import OptionError
from verl_pods_cero.tools.simulation.command import SMOOTHING
from verl_pods_cero.tools.simulation.luck import luck
from verl_pods_cero.tools.simulation.recording import Recording, parse_recording, read_recording
from verl_pods_cero.tools.simulation.worlds import DriftingWorld, RecordedWorld, means_over_time

# --- luck ---------------------------------------------------------------------------------------------------------


def test_luck_is_the_same_whoever_asks_and_in_whichever_company() -> None:
    table = luck(3, np.arange(50)[:, None], np.arange(20))
    assert luck(3, [7, 41], [19, 0]).tolist() == [table[7, 19], table[41, 0]]


def test_luck_is_evenly_spread_over_trials_prompts_and_seeds() -> None:
    for numbers in (
        luck(0, 5, np.arange(10_000)),
        luck(0, np.arange(10_000), 5),
        np.concatenate([luck(seed, [5], [5]) for seed in range(10_000)]),
    ):
        counts = np.bincount((numbers * 20).astype(int), minlength=20)
        # Chi squared with 19 degrees of freedom: 43.8 is its 99.9 % quantile.
        assert ((counts - 500) ** 2 / 500).sum() < 43.8


def test_luck_of_neighbours_is_unrelated() -> None:
    table = luck(0, np.arange(300)[:, None], np.arange(300))
    other = luck(1, np.arange(300)[:, None], np.arange(300))
    for a, b in ((table[1:], table[:-1]), (table[:, 1:], table[:, :-1]), (table, other), (table, table.T)):
        different = ~np.eye(*a.shape, dtype=bool)
        assert abs(np.corrcoef(a[different], b[different])[0, 1]) < 0.015


# --- worlds -------------------------------------------------------------------------------------------------------


def test_the_drifting_world_raises_every_log_odds_alike() -> None:
    world = DriftingWorld.drawn(100, seed=4, drift=1.5)
    start, end = world.pass_rates(0.0), world.pass_rates(1.0)
    assert np.log(end / (1 - end)) - np.log(start / (1 - start)) == pytest.approx(np.full(100, 1.5))
    assert world.pass_rates(0.5, np.array([7, 3])).tolist() == world.pass_rates(0.5)[[7, 3]].tolist()
    assert not np.array_equal(start, DriftingWorld.drawn(100, seed=5).pass_rates(0.0))


def test_unsmoothed_rates_pass_through_the_visits_and_are_held_at_the_ends() -> None:
    world = RecordedWorld.of(Recording(["a", "b"], [np.array([0.0, 1.0, 0.5, 0.25]), np.array([0.75])]), smoothing=0)
    times = [0.0, 0.125, 0.25, 0.375, 0.625, 0.875, 1.0]
    # The grid's moments lie up to half a hundredth from a visit.
    assert [world.pass_rates(t)[0] for t in times] == pytest.approx([0, 0, 0.5, 1, 0.5, 0.25, 0.25], abs=0.03)
    assert {float(world.pass_rates(t)[1]) for t in times} == {0.75}


def test_smoothing_brings_noisy_visits_nearer_to_the_truth() -> None:
    rng = np.random.default_rng(0)
    times = (np.arange(50) + 0.5) / 50
    truth = 1 / (1 + np.exp(-(rng.standard_normal((200, 1)) * 2 + 2 * times)))
    recording = Recording([str(i) for i in range(200)], list(rng.binomial(8, truth) / 8))
    error = {}
    for smoothing in (0.0, SMOOTHING):
        world = RecordedWorld.of(recording, smoothing)
        found = np.stack([world.pass_rates(t) for t in times], axis=1)
        assert found.min() >= 0 and found.max() <= 1
        error[smoothing] = float(((found - truth) ** 2).mean())
    assert error[SMOOTHING] < error[0.0] / 5


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_smoothed_rates_are_rates(value: float) -> None:
    for visits in range(1, 60):
        world = RecordedWorld.of(Recording(["a"], [np.full(visits, value)]), SMOOTHING)
        assert world.grid.min() >= 0 and world.grid.max() <= 1
        # What an oracle makes of them has a root, whatever its focus.
        assert ((1 - world.grid**8 - (1 - world.grid) ** 8) >= 0).all()


def test_a_kernel_far_narrower_than_the_visits_holds_the_nearest() -> None:
    world = RecordedWorld.of(Recording(["a"], [np.array([0.0, 1.0])]), smoothing=1e-6)
    assert [float(world.pass_rates(t)[0]) for t in (0.2, 0.8)] == [0.0, 1.0]


def test_means_over_time_are_those_of_the_pass_rate_and_of_its_variance() -> None:
    world = RecordedWorld.of(Recording(["a", "b"], [np.array([0.5]), np.array([0.0, 1.0])]), smoothing=0)
    rate, variance = means_over_time(world)
    # The second: 0 for a quarter of the run, a straight climb for half of it, 1 for a quarter.
    assert rate == pytest.approx([0.5, 0.5]) and variance == pytest.approx([0.25, 1 / 12], abs=1e-3)


def test_smoothed_rates_of_the_published_file_give_its_share_of_mixed_groups() -> None:
    path = published_data.FOLDER / "rollouts" / "oneshot_rlvr_acc_step_500.json"
    if not path.exists():
        pytest.skip(published_data.ABSENT)
    recording = read_recording(path)
    assert len(recording.names) == 1209
    expected = {}
    for smoothing in (0.0, SMOOTHING):
        world = RecordedWorld.of(recording, smoothing)
        p = np.stack([world.pass_rates(t) for t in np.linspace(0, 1, 54)])
        expected[smoothing] = float((1 - p**8 - (1 - p) ** 8).mean())
    # 51 % of the recorded groups of 8 were mixed; visits taken as the truth lose a tenth of them.
    assert expected[SMOOTHING] == pytest.approx(recording.mixed_share, abs=0.005)
    assert expected[0.0] < recording.mixed_share - 0.03


# --- files --------------------------------------------------------------------------------------------------------


def test_prompts_named_by_numbers_come_in_their_order_and_others_as_written() -> None:
    assert parse_recording({"10": [1], "9": [0], "100": [0.5]}).names == ["9", "10", "100"]
    assert parse_recording({"b": [1], "a": [0]}).names == ["b", "a"]


@pytest.mark.parametrize(
    ("found", "culprit"),
    [
        ([0.5], "list"),
        ({}, "must hold a prompt"),
        ({"1": []}, "'1'"),
        ({"1": [0.5], "2": 0.5}, "'2'"),
        ({"1": [0.5, 1.1]}, "visit 2 of prompt '1' is none, got 1.1"),
        ({"1": [0.5, -0.1]}, "visit 2 of prompt '1' is none, got -0.1"),
        ({"1": [float("nan")]}, "visit 1 of prompt '1' is none, got nan"),
        ({"x": [0.5, "0.5"]}, "visit 2 of prompt 'x' is none, got '0.5'"),
        ({"x": [True]}, "visit 1 of prompt 'x' is none, got True"),
        ({"x": [None]}, "visit 1 of prompt 'x' is none, got None"),
    ],
)
def test_a_malformed_recording_is_refused_by_its_entry(found: Any, culprit: str) -> None:
    with pytest.raises(OptionError, match="--recorded") as caught:
        parse_recording(found)
    assert culprit in str(caught.value)


def test_a_file_that_is_no_json_is_refused_by_its_line(tmp_path: Path) -> None:
    path = tmp_path / "rates.json"
    path.write_text('{"1": [0.5],\n "2": [0.5}')
    with pytest.raises(OptionError, match="line 2"):
        read_recording(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(OptionError, match="text file"):
        read_recording(path)
    with pytest.raises(OptionError, match="No such file"):
        read_recording(tmp_path / "none.json")
    path.write_text(json.dumps({"1": [0.5]}))
    assert read_recording(path).visits[0].tolist() == [0.5]
