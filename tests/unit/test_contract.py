"""What the hooks need of verl is read off the hooks, so that nothing of it can be forgotten."""

from __future__ import annotations

import textwrap
from importlib import import_module
from pathlib import Path

import pytest
import transfer_queue
from verl.trainer.ppo.v1.trainer_base import PPOTrainer

from verl_pods_cero import hooks
from verl_pods_cero.hooks import patches
from verl_pods_cero.hooks.contract import (
    contracts,
    missing_names,
    names_used,
    overridden,
    unmet_attributes,
    unmet_overrides,
)

PAIRS = contracts()


def test_the_installed_verl_has_every_name():
    assert missing_names() == []


@pytest.mark.parametrize(("ours", "verls"), PAIRS, ids=[ours.__name__ for ours, _ in PAIRS])
def test_every_method_that_takes_the_place_of_verls_is_marked(ours, verls):
    verls_methods = {name for base in verls.__mro__[:-1] for name, method in vars(base).items() if callable(method)}
    replaced = verls_methods & {name for name, method in vars(ours).items() if callable(method)}
    assert replaced - {"__init__"} == {*overridden(ours)} - {"__init__"}


def test_a_method_that_verl_took_away_or_gave_other_arguments_is_named(monkeypatch):
    mixin, _ = PAIRS[0]
    monkeypatch.delattr(PPOTrainer, "on_step_end")
    monkeypatch.setattr(PPOTrainer, "step", PPOTrainer._step_once)
    lost = ["PPOTrainer.step(metrics, timing_raw, sample_batch_size)", "PPOTrainer.on_step_end"]
    assert unmet_overrides(mixin, PPOTrainer) == lost


def test_an_attribute_that_verl_no_longer_sets_is_named():
    class Renamed(PPOTrainer):
        pass

    class Mixin:
        def hook(self) -> object:
            return self.train_dataset, self.training_data

    assert unmet_attributes(Mixin, Renamed) == ["Renamed.training_data"]


def test_a_function_that_transfer_queue_took_away_is_named(monkeypatch):
    monkeypatch.delattr(transfer_queue, "kv_clear")
    assert missing_names() == ["transfer_queue.kv_clear"]


def test_names_are_found_however_they_are_imported(tmp_path):
    module = tmp_path / "hook.py"
    module.write_text(
        textwrap.dedent(
            """
            import transfer_queue as tq
            from verl.utils import tensordict_utils as tu
            from verl.protocol import DataProto

            def hook():
                tq.kv_put(tu.get_tensordict(DataProto))
            """
        )
    )
    assert {
        ("transfer_queue", "kv_put"),
        ("verl.utils", "tensordict_utils"),
        ("verl.utils.tensordict_utils", "get_tensordict"),
        ("verl.protocol", "DataProto"),
    } <= set(names_used(module))


@pytest.mark.parametrize("patch", patches.PATCHES, ids=lambda patch: patch.name)
def test_a_replaced_name_is_there_and_is_put_back(vllm_rollout, patch):
    module = import_module(patch.module)
    before = getattr(module, patch.name)
    patch.replace(lambda verls: ("ours", verls))
    patch.replace(lambda _: "not twice")
    assert getattr(module, patch.name) == ("ours", before)
    patch.restore()
    assert getattr(module, patch.name) is before
    assert patch.why and patch.process


def test_names_of_verl_are_replaced_in_one_module_alone():
    folder = Path(hooks.__path__[0])
    assigning = [path.name for path in folder.rglob("*.py") if "setattr(" in path.read_text()]
    assert assigning == ["patches.py"]
