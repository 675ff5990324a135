"""Rows become groups, and kept groups become rows again, whatever order rollouts finish in."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from transfer_queue import KVBatchMeta

from verl_pods_cero.core.pods import needs
from verl_pods_cero.errors import OptionError
from verl_pods_cero.hooks import rows
from verl_pods_cero.hooks.filter import PodsFilter, whole_groups
from verl_pods_cero.hooks.metrics import dashboard_metrics, filter_metrics
from verl_pods_cero.hooks.rollouts import Rollouts, rollout_values
from verl_pods_cero.hooks.row_index import RowIndex
from verl_pods_cero.hooks.scored import scored
from verl_pods_cero.hooks.step import Step
from verl_pods_cero.metric_names import FILTER_METRICS
from verl_pods_cero.options.schema import FilterOptions


def make_rollouts(groups: dict[str, list[float]], rows_a_session: int = 1, acc: bool = True) -> Rollouts:
    """Rollouts of the given rewards by prompt."""
    keys = [
        f"{uid}_{session}_{row}"
        for uid, rewards in groups.items()
        for session in range(len(rewards))
        for row in range(rows_a_session)
    ]
    index = RowIndex.from_keys(keys)
    rewards = np.array([reward for rewards in groups.values() for reward in rewards])
    outcome = (rewards > 0.5).astype(float) if acc else np.full(len(rewards), np.nan)
    lengths = np.arange(1, len(keys) + 1)
    return Rollouts(keys, index, {"reward": rewards, "acc": outcome}, lengths + 10, lengths, np.ones_like(lengths))


def apply(groups: dict[str, list[float]], keep: int = 2, n: int = 4, **options: object):
    rollouts = make_rollouts(groups)
    kept = PodsFilter(FilterOptions(enable=True, keep=keep, **options), n, tolerance=1e-6)(rollouts, step=1)
    return rollouts, kept


@needs("response_length", "acc")
def shortest(rewards, mask, keep, rng, values):
    order = np.lexsort((values["response_length"], -values["acc"]), axis=1)
    kept = np.zeros_like(mask)
    np.put_along_axis(kept, order[:, :keep], True, axis=1)
    return kept


def test_a_rule_reads_the_tokens_of_a_rollout_over_all_its_rows_and_the_scorers_values():
    rollouts = make_rollouts({"p": [1.0, 0.0, 1.0, 1.0], "q": [0.0, 0.0, 0.0, 1.0]}, rows_a_session=2)
    assert rollouts.response_tokens.tolist() == [3, 7, 11, 15, 19, 23, 27, 31]
    options = FilterOptions(enable=True, keep=2, rule=f"{__name__}:shortest")
    kept = PodsFilter(options, 4, tolerance=1e-6)(rollouts, step=1)
    assert np.flatnonzero(kept.sessions).tolist() == [0, 2, 4, 7]


keys_strategy = st.lists(
    st.tuples(st.sampled_from("abcd"), st.integers(0, 5), st.integers(0, 2)), min_size=1, unique=True
)


@given(keys_strategy)
def test_every_row_belongs_to_the_session_and_the_prompt_of_its_key(parts):
    keys = [f"{uid}_{session}_{row}" for uid, session, row in parts]
    index = RowIndex.from_keys(keys)
    for row, (uid, session, _) in enumerate(parts):
        number = index.session_of_row[row]
        assert index.uids[index.group_of_session[number]] == uid
        final_uid, final_session, final_row = keys[index.final_row[number]].split("_")
        assert (final_uid, int(final_session)) == (uid, session)
        assert int(final_row) == max(r for u, s, r in parts if (u, s) == (uid, session))


@given(keys_strategy, st.randoms())
def test_sessions_of_a_group_are_numbered_alike_in_any_order_of_arrival(parts, random):
    keys = sorted(f"{uid}_{session}_{row}" for uid, session, row in parts)
    shuffled = list(keys)
    random.shuffle(shuffled)

    def layout(rows):
        index = RowIndex.from_keys(rows)
        return {
            rows[row]: (index.place_in_group[session], index.sizes[index.group_of_session[session]])
            for row, session in enumerate(index.session_of_row)
        }

    assert layout(keys) == layout(shuffled)


@given(keys_strategy)
def test_values_come_back_from_the_group_table_as_they_went_in(parts):
    index = RowIndex.from_keys([f"{uid}_{session}_{row}" for uid, session, row in parts])
    values = np.arange(len(index.group_of_session), dtype=float)
    table, mask = index.grouped(values)
    assert mask.sum() == len(values)
    assert index.sessions(table).tolist() == values.tolist()


def test_a_session_of_several_rows_is_kept_or_dropped_whole():
    rollouts = make_rollouts({"a": [0.0, 0.5, 1.0]}, rows_a_session=3)
    batch = KVBatchMeta(partition_id="train", keys=rollouts.keys, tags=[{"n": key} for key in rollouts.keys])
    kept, dropped = rows.split(batch, rollouts.index, np.array([True, False, True]))
    assert kept.keys == [f"a_{session}_{row}" for session in (0, 2) for row in range(3)]
    assert [tag["n"] for tag in kept.tags] == kept.keys
    assert dropped == ["a_1_0", "a_1_1", "a_1_2"]


def test_the_highest_and_the_lowest_rewards_are_kept():
    _, kept = apply({"a": [0.4, 1.0, 0.5, 0.0]})
    assert kept.sessions.tolist() == [False, True, False, True]


def test_a_group_smaller_than_m_is_kept_whole_and_a_single_rollout_is_dropped():
    _, kept = apply({"a": [0.4, 1.0, 0.5, 0.0], "b": [0.0, 1.0], "c": [1.0]}, keep=3)
    assert kept.sessions[:4].sum() == 3
    assert kept.sessions[4:].tolist() == [True, True, False]
    assert kept.dropped_single.tolist() == [False, False, True]


def test_zero_variance_groups_stay_by_default_and_go_on_request():
    groups = {"a": [1.0, 1.0, 1.0], "b": [0.0, 1.0, 0.0]}
    assert apply(groups)[1].sessions.sum() == 4
    _, kept = apply(groups, drop_zero_variance=True)
    assert kept.sessions[:3].sum() == 0
    assert kept.sessions[3:].sum() == 2
    assert kept.dropped_degenerate.tolist() == [True, False]


def test_the_floor_keeps_degenerate_groups_when_too_few_others_are_left():
    groups = {"a": [1.0, 1.0], "b": [0.0, 0.0], "c": [0.0, 1.0]}
    _, kept = apply(groups, drop_zero_variance=True, min_prompts=2)
    assert kept.sessions.tolist() == [True, True, False, False, True, True]


def test_a_single_rollout_does_not_count_towards_the_floor():
    _, kept = apply({"a": [1.0], "b": [0.0, 0.0], "c": [1.0, 1.0]}, drop_zero_variance=True, min_prompts=1)
    assert kept.sessions.tolist() == [False, True, True, False, False]


def test_a_step_of_degenerate_groups_alone_keeps_nothing_on_request():
    _, kept = apply({"a": [1.0, 1.0], "b": [0.0, 0.0]}, drop_zero_variance=True)
    assert not kept.sessions.any()


@given(st.permutations([f"{uid}_{session}_0" for uid in "abc" for session in range(3)]))
def test_prompts_are_numbered_as_they_were_submitted_whichever_finished_first(keys):
    index = RowIndex.from_keys(keys, submitted=["c", "gone", "a", "b"])
    assert index.uids == ["c", "a", "b"]
    table, mask = index.grouped(np.arange(9.0))
    assert mask.all()
    assert table.tolist() == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]


RANKED_BY_ACC = {"pods_cero.filter.ranking_key": "acc"}


def test_a_rollout_without_a_value_counts_as_failed_and_the_others_go_on(caplog):
    rollouts = make_rollouts({"a": [1.0, 0.0, 1.0], "b": [0.0, 1.0]})
    rollouts.values["acc"][1] = np.nan
    usable = scored(rollouts, RANKED_BY_ACC)
    assert usable.tolist() == [True, False, True, True, True]
    assert "1 of 5 rollouts (a_1_0 is the first) have no finite reward or acc" in caplog.text
    left = rollouts.only(usable)
    assert left.keys == ["a_0_0", "a_2_0", "b_0_0", "b_1_0"]
    assert left.index.sizes.tolist() == [2, 2]
    assert left.rewards.tolist() == [1.0, 1.0, 0.0, 1.0]
    assert left.response_length.tolist() == [1, 3, 4, 5]


def test_a_reward_beyond_float32_counts_as_failed():
    rollouts = make_rollouts({"a": [1.0, 1e39, -1e300]})
    assert scored(rollouts, {}).tolist() == [True, False, False]


def test_a_value_that_no_rollout_has_is_a_mistake_in_the_options(monkeypatch):
    rollouts = make_rollouts({"a": [1.0, 0.0]})
    rollouts.values["acc"][:] = np.nan
    monkeypatch.setattr(
        "verl_pods_cero.hooks.rows.tq.kv_batch_get",
        lambda **_: {"extra_fields": [{"reward_extra_info": {"accuracy": 1.0}}]},
    )
    with pytest.raises(OptionError, match=r"ranking_key is no key .* got 'acc'. Fix: did you mean 'accuracy'"):
        scored(rollouts, RANKED_BY_ACC)


def test_rounding_errors_are_no_variance():
    noise, mixed = [0.1 + 0.2, 0.3, 0.3, 0.3], [0.3, 0.3, 0.3, 0.4]
    _, kept = apply({"noise": noise, "mixed": mixed}, drop_zero_variance=True)
    assert kept.degenerate.tolist() == [True, False]
    assert kept.dropped_degenerate.tolist() == [True, False]
    _, kept = apply({"noise": noise}, keep=2)
    equal = apply({"noise": [0.3] * 4}, keep=2)[1]
    assert kept.sessions.tolist() == equal.sessions.tolist()


def test_one_outlier_of_a_step_does_not_decide_for_the_other_prompts():
    _, kept = apply({"a": [3e6, 0.0, 0.0, 0.0], "b": [1.0, 1.0, 0.0, 0.0]}, keep=2)
    assert kept.degenerate.tolist() == [False, False]
    assert kept.sessions[4:].tolist() == [False, True, True, False]


def test_what_rounding_leaves_of_a_zero_is_zero():
    _, kept = apply({"a": [0.1 + 0.2 - 0.3, 0.0, 0.0], "b": [1.0, 0.0, 0.0]})
    assert kept.degenerate.tolist() == [True, False]


def sees_ones(rewards, mask, keep, rng):
    """A rule of a user's own that looks at the values themselves."""
    assert ((rewards == 1) | ~mask).all()
    return mask & (mask.cumsum(axis=1) <= keep)


def test_a_rule_sees_the_value_of_a_group_that_has_only_one():
    _, kept = apply({"a": [1.0, 1.0, 1.0, 1.0]}, keep=2, rule="tests.unit.test_rollouts:sees_ones")
    assert kept.sessions.tolist() == [True, True, False, False]


def test_a_group_is_dropped_by_the_rewards_that_it_is_updated_on_whatever_it_was_ranked_by():
    rollouts = make_rollouts({"a": [1.0, 1.0, 1.0, 1.0], "b": [0.0, 0.0, 1.0, 1.0]})
    ranked = {**rollouts.values, "format": np.array([0.0, 0.0, 1.0, 1.0, 0.5, 0.5, 0.5, 0.5])}
    rollouts = Rollouts(**{**vars(rollouts), "values": ranked})

    def dropped(**options: object) -> list[bool]:
        chosen = FilterOptions(enable=True, keep=2, ranking_key="format", drop_zero_variance=True, **options)
        return PodsFilter(chosen, 4, tolerance=1e-6)(rollouts, step=1).dropped_degenerate.tolist()

    # equal ranks keep the first two of b, whose rewards are equal; all four of b differ
    assert dropped() == [True, True]
    assert dropped(advantage_stats="full_group") == [True, False]


def test_without_a_filter_all_is_kept_but_rollouts_that_are_alone():
    kept = whole_groups(make_rollouts({"a": [1.0, 1.0], "b": [0.0]}), 1)
    assert kept.sessions.tolist() == [True, True, False]
    assert kept.dropped_single.tolist() == [False, True]


def test_the_random_rule_repeats_with_the_seed_and_the_step():
    groups = {f"p{i}": list(np.linspace(0, 1, 8)) for i in range(8)}
    rollouts = make_rollouts(groups)

    def choose(seed: int, step: int) -> list[bool]:
        options = FilterOptions(enable=True, keep=3, rule="random", seed=seed)
        return PodsFilter(options, 8, tolerance=1e-6)(rollouts, step).sessions.tolist()

    assert choose(0, 1) == choose(0, 1)
    assert choose(0, 1) != choose(0, 2)
    assert choose(0, 1) != choose(1, 1)


def test_the_values_of_a_rollout_are_the_reward_and_the_named_keys():
    info = {"acc": True, "format": 0.5, "reward": 9.0}
    assert rollout_values(1.25, info, ("reward", "acc", "format")) == [1.25, 1.0, 0.5]


@pytest.mark.parametrize("odd", [None, "yes", [1.0], 10**400])
def test_a_value_that_is_no_number_is_left_to_the_driver_to_refuse(odd):
    values = rollout_values(1.0, {"acc": odd}, ("reward", "acc", "other"))
    assert values[0] == 1.0 and np.isnan(values[1:]).all()


def test_metrics_describe_generated_and_kept_rollouts():
    rollouts, kept = apply({"a": [0.0, 1.0, 0.5, 0.5], "b": [1.0, 1.0, 1.0, 1.0]})
    metrics = filter_metrics(Step(rollouts=rollouts, kept=kept, unscored=1, rows=4, rows_padded=3))
    assert metrics["pods/rollouts_generated"] == 8
    assert metrics["pods/rollouts_kept"] == 4
    assert metrics["pods/reward_variance_generated"] == pytest.approx(0.0625)
    assert metrics["pods/reward_variance_kept"] == pytest.approx(0.125)
    assert metrics["pods/zero_variance_fraction"] == 0.5
    assert metrics["pods/all_pass_fraction"] == 0.5
    assert metrics["pods/all_fail_fraction"] == 0.0
    assert metrics["pods/rows_padded"] == 3
    assert metrics["pods/rollouts_unscored"] == 1


def test_verls_own_keys_count_dropped_rollouts_too():
    rollouts = make_rollouts({"a": [0.0, 1.0, 0.5, 0.1], "b": [1.0, 1.0, 1.0, 1.0]})
    metrics = dashboard_metrics(rollouts, {"gen": 1.0, "step": 2.0}, n_gpus=2, rewards_are_scores=True)
    assert metrics["critic/score/mean"] == pytest.approx(rollouts.rewards.mean())
    assert metrics["response_length/mean"] == pytest.approx(rollouts.response_length.mean())
    assert metrics["response_length/max"] == 8
    assert metrics["prompt_length/min"] == 11
    total = (rollouts.prompt_length + rollouts.response_length).sum()
    assert metrics["perf/total_num_tokens"] == total
    assert metrics["perf/throughput"] == pytest.approx(total / 4)
    assert metrics["timing_per_token_ms/gen"] == pytest.approx(1000 / rollouts.response_length.sum())
    assert not any(name.startswith(("critic/advantages", "critic/returns")) for name in metrics)


def test_rewards_with_a_kl_penalty_stay_those_of_the_trained_rows():
    rollouts = make_rollouts({"a": [0.0, 1.0]})
    metrics = dashboard_metrics(rollouts, {"gen": 1.0}, 1, rewards_are_scores=False)
    assert not any(name.startswith("critic/rewards") for name in metrics)


@pytest.mark.parametrize("acc", [True, False])
def test_the_metrics_are_those_of_the_table(acc):
    rollouts = make_rollouts({"a": [0.0, 1.0]}, acc=acc)
    kept = PodsFilter(FilterOptions(enable=True, keep=2), 2, tolerance=1e-6)(rollouts, 1)
    metrics = filter_metrics(Step(rollouts=rollouts, kept=kept, rows=2))
    optional = set() if acc else {"pods/all_pass_fraction", "pods/all_fail_fraction"}
    assert set(metrics) == set(FILTER_METRICS) - {"timing_s/pods_select"} - optional
