"""An allocator's state goes back only into the run that it was saved for."""

from __future__ import annotations

import pytest
from omegaconf import OmegaConf

from verl_pods_cero.core.allocators import create_allocator
from verl_pods_cero.core.settings import AllocatorSettings
from verl_pods_cero.core.state import StateError
from verl_pods_cero.core.steps import Steps
from verl_pods_cero.errors import OptionError
from verl_pods_cero.hooks import checkpoint
from verl_pods_cero.options import resume
from verl_pods_cero.options.allocator import allocator_settings
from verl_pods_cero.options.checks import validate
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
    (tmp_path / "global_step_10").mkdir()
    path = f"{place}/global_step_10"
    assert checkpoint.resumed_step(trainer(resume_mode="resume_path", resume_from_path=path)) == 10


def resuming(configure, folder, **options):
    """Verl's configuration with an allocator, going on from a folder of checkpoints."""
    on = {"pods_cero.allocator.enable": True, "trainer.default_local_dir": str(folder), "trainer.resume_mode": "auto"}
    return configure(**{**on, "trainer.total_training_steps": 8, **options})


def check(config):
    return validate(config, use_critic=False, use_reference=False)


def saved_by(config, folder):
    """Leave what a run of this configuration saves at its second step."""
    options = check(config.copy()).allocator
    settings = allocator_settings(config, options, 32)
    place = folder / "global_step_2"
    (place / "actor").mkdir(parents=True)
    (place / "actor" / "model_world_size_1_rank_0.pt").touch()
    state = Steps(create_allocator(options.name, settings), settings).state_dict()
    checkpoint.save(place, checkpoint.state_header(options, settings, ["row"] * 32, "prompt"), state)
    (folder / resume.TRACKER).write_text("2")


def test_a_whole_checkpoint_of_the_same_run_is_accepted_before_the_start(configure, tmp_path):
    saved_by(resuming(configure, tmp_path), tmp_path)
    assert check(resuming(configure, tmp_path)) is not None


def test_a_tracker_that_names_no_step_is_refused_with_what_there_is(configure, tmp_path):
    saved_by(resuming(configure, tmp_path), tmp_path)
    (tmp_path / resume.TRACKER).write_text("")
    with pytest.raises(OptionError, match=r"must name a checkpoint.*an empty file.*Fix: write 2 into"):
        check(resuming(configure, tmp_path))


def test_a_tracker_that_names_a_missing_folder_does_not_start_over_with_the_whole_budget(configure, tmp_path):
    saved_by(resuming(configure, tmp_path), tmp_path)
    (tmp_path / resume.TRACKER).write_text("4")
    with pytest.raises(OptionError, match=r"trainer\.default_local_dir lacks global_step_4, .*write 2 into .*disable"):
        check(resuming(configure, tmp_path))
    assert check(resuming(configure, tmp_path, **{"trainer.resume_mode": "disable"})) is not None


def test_a_checkpoint_of_other_ranks_is_refused_before_the_start(configure, tmp_path):
    saved_by(resuming(configure, tmp_path), tmp_path)
    with pytest.raises(OptionError, match=r"n_gpus_per_node.*make 2 ranks, and .* was saved by 1.*got 2"):
        check(resuming(configure, tmp_path, **{"trainer.n_gpus_per_node": 2}))


def test_a_named_checkpoint_that_is_not_there_is_refused(configure, tmp_path):
    path = {"trainer.resume_mode": "resume_path", "trainer.resume_from_path": f"{tmp_path}/global_step_7"}
    with pytest.raises(OptionError, match=r"trainer\.resume_from_path must name a checkpoint folder that exists"):
        check(resuming(configure, tmp_path, **path))


def test_other_options_are_refused_before_the_start_and_more_steps_are_not(configure, tmp_path):
    saved_by(resuming(configure, tmp_path), tmp_path)
    with pytest.raises(StateError, match=r"pods_cero\.allocator\.rho"):
        check(resuming(configure, tmp_path, **{"pods_cero.allocator.rho": 0.5}))
    with pytest.raises(StateError, match=r"longer, not shorter; set trainer\.total_training_steps or pods_cero"):
        check(resuming(configure, tmp_path, **{"trainer.total_training_steps": 4}))
    assert check(resuming(configure, tmp_path, **{"trainer.total_training_steps": 80})) is not None


def test_a_checkpoint_without_a_state_is_refused_before_the_start(configure, tmp_path):
    saved_by(resuming(configure, tmp_path), tmp_path)
    (tmp_path / "global_step_2" / resume.STATE_FILE).unlink()
    with pytest.raises(StateError, match="no allocator state at"):
        check(resuming(configure, tmp_path))
