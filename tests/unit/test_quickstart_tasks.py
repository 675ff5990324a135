"""The quickstart's task: its sums, its rows and its scorer."""

from __future__ import annotations

from collections import Counter

import pytest

from verl_pods_cero.quickstart.tasks import DATA_SOURCE, LIMIT, Sum, all_sums, compute_score, rows, split


def test_training_and_validation_share_no_sum():
    train, validation = split(256, 128, seed=0)
    assert (len(train), len(validation)) == (256, 128)
    assert len({*train, *validation}) == 384


def test_a_seed_fixes_the_split_and_another_changes_it():
    assert split(256, 128, seed=3) == split(256, 128, seed=3)
    assert split(256, 128, seed=3) != split(256, 128, seed=4)


def test_a_split_of_more_sums_than_there_are_is_refused():
    with pytest.raises(ValueError, match="at most 400, got 300 \\+ 200"):
        split(300, 200, seed=0)


def test_sums_come_in_four_degrees_of_difficulty():
    sums = all_sums()
    assert len(set(sums)) == LIMIT * LIMIT
    assert set(Counter(each.difficulty for each in sums)) == {0, 1, 2, 3}


def test_rows_follow_verls_schema_and_no_two_have_one_index():
    train, validation = split(5, 3, seed=0)
    made = rows(train, "train") + rows(validation, "validation", first_index=5)
    assert [row["extra_info"]["index"] for row in made] == list(range(8))
    first = made[0]
    assert first["data_source"] == DATA_SOURCE
    assert first["prompt"] == [{"role": "user", "content": train[0].prompt}]
    assert first["reward_model"]["ground_truth"] == str(train[0].left + train[0].right)
    assert first["extra_info"]["difficulty"] == train[0].difficulty
    assert {row["extra_info"]["split"] for row in made} == {"train", "validation"}


@pytest.mark.parametrize(
    ("answer", "score"), [("27", 1.0), (" 27 ", 1.0), ("", 0.0), ("2", 0.0), ("277", 0.0), ("17+10", 0.0), ("28", 0.0)]
)
def test_only_the_number_itself_is_right(answer, score):
    assert compute_score(DATA_SOURCE, answer, Sum(9, 18).answer) == {"score": score, "acc": score}


def test_verl_finds_the_scorer_by_the_name_that_the_recipe_gives():
    from verl.utils.import_utils import load_extern_object

    scorer = load_extern_object("pkg://verl_pods_cero.quickstart.tasks", "compute_score")
    assert scorer(data_source=DATA_SOURCE, solution_str="3", ground_truth="3", extra_info={"index": 0})["acc"] == 1.0
