"""The made-up policy that reacts: its gradient, its updates, and what an allocator makes of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from verl_pods_cero.core.arrays import Floats
from verl_pods_cero.tools.simulation.learner import Learner, LearnerWorld
from verl_pods_cero.tools.simulation.measures import Result, judge
from verl_pods_cero.tools.simulation.play import play
from verl_pods_cero.tools.simulation.players import create, parse_players, settings_for
from verl_pods_cero.tools.simulation.summary import rollouts_to_accuracy, summarise

ROWS = np.arange(64)
EIGHT, HALF = np.full(64, 8), np.full(64, 4)


def world(prompts: int = 64, seed: int = 0, **how: float | str) -> LearnerWorld:
    return LearnerWorld(prompts, 8, seed, replace(Learner(), **how))  # type: ignore[arg-type]


def logits(made: LearnerWorld) -> Floats:
    p = made.pass_rates(0.0)
    return np.asarray(np.log(p / (1 - p)))


def moved(made: LearnerWorld, rows: list[int], wins: list[int]) -> Floats:
    """What a step on groups of eight adds to the logits of all prompts."""
    before = logits(made)
    made.learn(np.array(rows), np.full(len(rows), 8), np.array(wins))
    return logits(made) - before


def test_a_step_follows_the_policy_gradient_of_what_was_sampled() -> None:
    # The mean over rollouts of advantage times d log p(outcome) / d logit, by hand, for two passes of eight.
    outcomes = np.array([1, 1, 0, 0, 0, 0, 0, 0.0])
    p = 0.3  # drops out: advantages add up to 0
    advantages = (outcomes - outcomes.mean()) / outcomes.std()
    gradient = (advantages * (outcomes - p)).mean()
    made, other = world(), world()
    one, half = moved(made, [5], [2]), moved(other, [5], [4])
    assert gradient == pytest.approx(np.sqrt(0.25 * 0.75))
    assert one / half == pytest.approx(np.full(64, gradient / 0.5))


def test_a_step_is_the_mean_over_its_groups_and_groups_without_variance_add_nothing() -> None:
    first, second = moved(world(), [5], [2]), moved(world(), [9], [4])
    assert moved(world(), [5, 9], [2, 4]) == pytest.approx((first + second) / 2)
    assert moved(world(), [5, 9], [2, 8]) == pytest.approx(first / 2)
    assert not moved(world(), [5, 9], [0, 8]).any()


def test_prompts_help_each_other_as_far_as_transfer_goes() -> None:
    shared, alone = moved(world(), [5], [4]), moved(world(transfer=0.0), [5], [4])
    assert (shared > 0).all() and shared.min() == pytest.approx(shared[5] / 2)
    assert np.flatnonzero(alone).tolist() == [5]


@pytest.mark.parametrize("transfer", [0.0, 0.01, 0.5, 1.0])
def test_an_epoch_of_equal_groups_moves_the_mean_logit_as_far_whatever_the_transfer(transfer: float) -> None:
    # Skills are drawn, so the share of pairs that have one in common is 1/16 in the mean only.
    made = world(prompts=4096, transfer=transfer)
    before = logits(made).mean()
    made.learn(np.arange(4096), np.full(4096, 8), np.full(4096, 4))
    assert logits(made).mean() - before == pytest.approx(0.1 * 0.5 * 17 / 32, rel=0.01)


def test_adams_steps_have_one_length_whatever_the_gradients_and_noise_shortens_them() -> None:
    weak, strong = (moved(world(update="adam"), [5], [wins]) for wins in (1, 4))
    assert weak == pytest.approx(strong)
    few, many = (
        moved(world(update="adam", noise=30.0), ROWS[:k].tolist(), [4] * k).mean()
        / moved(world(update="adam"), ROWS[:k].tolist(), [4] * k).mean()
        for k in (4, 64)
    )
    # Where noise outweighs the signal by far, the step grows with the root of the number of mixed groups.
    assert few < many < 0.3 and many / few == pytest.approx(4.0, rel=0.3)
    assert not moved(world(update="adam"), [5], [8]).any()


def test_every_run_of_a_seed_begins_with_the_same_prompts_and_the_same_policy() -> None:
    one, again, other = world(), world(), world(seed=1)
    one.learn(ROWS, EIGHT, HALF)
    assert one.accuracy[0] == again.accuracy[0] != other.accuracy[0]
    assert one.accuracy[1] > one.accuracy[0]
    assert again.pass_rates(0.0, np.array([7])).tolist() == again.pass_rates(1.0)[[7]].tolist()


def test_means_are_over_the_steps_taken() -> None:
    made = world()
    first = made.pass_rates(0.0)
    made.learn(ROWS, EIGHT, HALF)
    second = made.pass_rates(0.0)
    made.learn(ROWS, EIGHT, HALF)
    rate, variance = made.means()
    assert rate == pytest.approx((first + second) / 2)
    assert variance == pytest.approx((first * (1 - first) + second * (1 - second)) / 2)


# --- whole runs ---------------------------------------------------------------------------------------------------

SIZES = {"num_prompts": 128, "steps": 120, "batch_prompts": 16, "n": 8}


def judged(name: str, learner: Learner, seed: int) -> Result:
    player = parse_players(name)[0]
    settings = settings_for(player, SIZES, seed)
    made = LearnerWorld(128, 8, seed, learner)
    allocator = create(player, settings, made)
    run = play(allocator, settings, made, seed)
    return judge(run, allocator, made.means(), np.nan, player.label, seed, {}, np.array(made.accuracy))


def test_rollouts_to_an_accuracy_are_read_off_within_a_step() -> None:
    result = judged("uniform", Learner(), 0)
    low, high = result.accuracy[9:11]
    assert rollouts_to_accuracy(result, low) == pytest.approx(9 * 128)
    assert rollouts_to_accuracy(result, (low + high) / 2) == pytest.approx(9.5 * 128)
    assert rollouts_to_accuracy(result, 1.1) == np.inf
    assert rollouts_to_accuracy(result, 0.0) == 0.0
    assert np.isnan(rollouts_to_accuracy(replace(result, accuracy=np.zeros(0)), 0.5))


def test_more_mixed_groups_are_rollouts_saved_under_sgd_and_none_under_adam_without_noise() -> None:
    def speed_up(learner: Learner) -> tuple[float, float]:
        results = [judged(name, learner, seed) for name in ("uniform", "oracle") for seed in range(3)]
        summary = summarise(results, ["uniform", "oracle"], None)
        assert summary.values("uniform", "speed_up") == [1.0] * 3
        return tuple(summary.spread("oracle", name).mean for name in ("speed_up", "mixed_over_reference"))

    saved, mixed = speed_up(Learner(difficulty=4.0))
    assert saved == pytest.approx(mixed, rel=0.2) and saved > 1.5
    assert speed_up(Learner("adam", difficulty=4.0))[0] == pytest.approx(1.0, abs=0.15)
