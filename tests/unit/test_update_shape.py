"""The number of optimiser updates is the recipe's, whatever is left of a group."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_pods_cero.options.update_shape import UpdateShape, update_shape


def test_updates_count_prompts_and_not_rows(configure):
    shape = update_shape(configure(), use_critic=False, use_reference=False)
    assert shape == UpdateShape(actor_updates=4, critic_updates=0)
    assert shape.rank_multiple == 4


def test_one_pass_during_the_critics_warm_up(configure):
    config = configure(**{"critic.ppo_mini_batch_size": 8})
    shape = update_shape(config, use_critic=True, use_reference=False, actor_trains=False)
    assert shape.actor_updates == 1
    assert shape.critic_updates == 2


def test_fixed_micro_batches_of_every_worker_divide_a_ranks_rows(configure):
    config = configure(
        **{
            "actor_rollout_ref.actor.use_dynamic_bsz": False,
            "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": 2,
            "actor_rollout_ref.rollout.log_prob_use_dynamic_bsz": False,
            "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu": 5,
            "actor_rollout_ref.ref.log_prob_use_dynamic_bsz": False,
            "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu": 7,
        }
    )
    assert update_shape(config, use_critic=False, use_reference=False).rank_multiple == 40
    assert update_shape(config, use_critic=False, use_reference=True).rank_multiple == 280


@given(rows=st.integers(1, 4096), updates=st.integers(1, 16), ranks=st.integers(1, 16))
def test_padding_stays_below_one_data_parallel_multiple_a_mini_batch(rows, updates, ranks):
    shape = UpdateShape(actor_updates=updates, critic_updates=0)
    padded = shape.padded(rows, ranks)
    assert padded % (updates * ranks) == 0
    assert 0 <= padded - rows < updates * ranks


@pytest.mark.parametrize("rows", [64, 128])
def test_full_groups_need_no_padding(rows):
    assert UpdateShape(4, 0).padded(rows, data_parallel=2) == rows


@given(
    rows=st.integers(1, 300),
    actor=st.integers(1, 8),
    critic=st.integers(0, 8),
    micro=st.integers(1, 8),
    ranks=st.integers(1, 16),
)
def test_no_update_of_a_small_step_is_padding_alone(rows, actor, critic, micro, ranks):
    shape = UpdateShape(actor, critic, actor_micro=micro).fitted(rows, ranks)
    rank_rows = shape.padded(rows, ranks) // ranks
    fullest = -(-rows // ranks)
    for updates in (shape.actor_updates, shape.critic_updates):
        assert updates <= 1 or fullest > rank_rows - rank_rows // updates


@given(ranks=st.integers(1, 8), updates=st.integers(1, 8), each=st.integers(1, 8))
def test_a_full_step_makes_all_its_updates(ranks, updates, each):
    shape = UpdateShape(updates, 0)
    assert shape.fitted(ranks * updates * each, ranks) == shape
