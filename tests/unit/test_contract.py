"""What the hooks need of verl is read off the hooks, so that nothing of it can be forgotten."""

from __future__ import annotations

import ast
import re
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
    missing_optional_names,
    names_used,
    overridden,
    unmet_attributes,
    unmet_overrides,
)
from verl_pods_cero.hooks.generation.worker import leased

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


def test_leases_step_aside_where_verls_load_balancer_is_another(monkeypatch, caplog):
    router = pytest.importorskip("verl.workers.rollout.router")
    assert missing_optional_names() == []
    monkeypatch.delattr(router.GlobalRequestLoadBalancer, "get_all_servers")
    assert missing_names() == []
    lacking = "verl.workers.rollout.router.GlobalRequestLoadBalancer.get_all_servers"
    assert missing_optional_names() == [lacking]
    client = object()
    assert leased(client) is client
    assert f"no server leases: the installed verl lacks {lacking}" in caplog.text


def test_names_are_found_however_they_are_imported(tmp_path):
    module = tmp_path / "hook.py"
    module.write_text(
        textwrap.dedent(
            """
            import transfer_queue as tq
            from verl.utils import tensordict_utils as tu
            from verl.protocol import DataProto

            def hook():
                tq.kv_put(tu.get_tensordict(DataProto.concat))
            """
        )
    )
    assert {
        "transfer_queue.kv_put",
        "verl.utils.tensordict_utils",
        "verl.utils.tensordict_utils.get_tensordict",
        "verl.protocol.DataProto.concat",
    } <= set(names_used(module))


def test_a_name_that_only_workers_replace_is_missed_where_trainers_register(monkeypatch):
    from verl.trainer.ppo.v1 import agent_loop_tq

    monkeypatch.delattr(agent_loop_tq, "list_of_dict_to_tensordict")
    assert missing_names() == ["verl.trainer.ppo.v1.agent_loop_tq.list_of_dict_to_tensordict"]


@pytest.mark.parametrize("patch", patches.PATCHES, ids=lambda patch: patch.name)
def test_a_replaced_name_is_there_and_is_put_back(vllm_rollout, patch):
    module = import_module(patch.module)
    now, was_replaced = getattr(module, patch.name), patch.replaced
    patch.restore()
    verls = getattr(module, patch.name)
    patch.replace(lambda before: ("ours", before))
    patch.replace(lambda _: "not twice")
    assert getattr(module, patch.name) == ("ours", verls)
    patch.restore()
    assert getattr(module, patch.name) is verls
    if was_replaced:
        patch.replace(lambda _: now)


def test_names_of_verl_are_replaced_in_one_module_alone():
    assigning = []
    for path in Path(hooks.__path__[0]).parent.joinpath("hooks").rglob("*.py"):
        tree = ast.parse(path.read_text())
        names = {name.rpartition(".")[2] for name in names_used(path)} | {"tq", "tu", "module"}
        targets = [t for node in ast.walk(tree) if isinstance(node, ast.Assign) for t in node.targets]
        attributes = [t for t in targets if isinstance(t, ast.Attribute) and isinstance(t.value, ast.Name)]
        if "setattr(" in path.read_text() or any(t.value.id in names for t in attributes):
            assigning.append(path.name)
    assert assigning == ["patches.py"]


def test_the_page_names_every_replaced_name(repository):
    page = (repository / "docs" / "how_it_works.md").read_text()
    rows = {(patch.module, patch.name, patch.process) for patch in patches.PATCHES}
    cells = re.findall(r"^\| (`verl\.[^|]+) \| ([^|]+) \| ([^|]+) \|", page, re.MULTILINE)
    assert {tuple(cell.strip("` ") for cell in row) for row in cells} == rows
