"""An allocator's state goes back only into the run that it was saved for."""

from __future__ import annotations

import pytest
from omegaconf import OmegaConf

from verl_pods_cero.core.settings import AllocatorSettings
from verl_pods_cero.core.state import StateError
from verl_pods_cero.hooks import checkpoint
from verl_pods_cero.options.schema import AllocatorOptions

SETTINGS = AllocatorSettings(num_prompts=2, budget=32, rounds=2, batch_prompts=2, n=8)


def header(dataset: object = ("a", "b"), **options: object):
    return checkpoint.state_header(AllocatorOptions(enable=True, **options), SETTINGS, dataset, "prompt")


@pytest.mark.parametrize("change", [{"success_threshold": 0.5}, {"success_key": "passed"}, {"candidates": "loader"}])
def test_a_state_whose_counts_mean_something_else_is_refused(tmp_path, change):
    checkpoint.save(tmp_path, header(), {})
    assert checkpoint.load(tmp_path, header()) == {}
    (name,) = change
    with pytest.raises(StateError, match=f"pods_cero.allocator.{name}="):
        checkpoint.load(tmp_path, header(**change))


def test_a_data_set_without_columns_is_known_by_its_length(tmp_path):
    import pandas as pd

    class OwnDataset(list):
        dataframe = pd.DataFrame({"prompt": ["a", "b"]})

    checkpoint.save(tmp_path, header(OwnDataset("ab")), {})
    with pytest.raises(StateError, match="dataset_fingerprint"):
        checkpoint.load(tmp_path, header(OwnDataset("abc")))


def trainer(**options: object):
    return OmegaConf.create({"trainer": {"resume_from_path": None, **options}})


def test_the_step_that_verl_resumes_from_is_known_before_its_engines_start(tmp_path):
    place = str(tmp_path)
    (tmp_path / "global_step_20").mkdir()
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("20")
    assert checkpoint.resumed_step(trainer(resume_mode="auto", default_local_dir=place)) == 20
    assert checkpoint.resumed_step(trainer(resume_mode="disable", default_local_dir=place)) == 0
    assert checkpoint.resumed_step(trainer(resume_mode="auto", default_local_dir=f"{place}/none")) == 0
    path = f"{place}/global_step_10"
    assert checkpoint.resumed_step(trainer(resume_mode="resume_path", resume_from_path=path)) == 10
