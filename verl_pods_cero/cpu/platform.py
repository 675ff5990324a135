"""A verl platform for machines without an accelerator."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import psutil
import torch
from verl.plugin.platform import PlatformBase, PlatformRegistry


class CpuDevice(ModuleType):
    """What verl expects of `torch.cuda`, answered for the CPU.

    `torch.cpu` has the streams and the synchronisation; memory counters, device names and
    random state are added. The counters are 0, because host memory belongs to no device.

    >>> CpuDevice().memory_allocated()
    0
    """

    def __init__(self) -> None:
        super().__init__("verl_pods_cero.cpu.device", torch.cpu.__doc__)
        self.__dict__.update({k: v for k, v in vars(torch.cpu).items() if not k.startswith("_")})
        for counter in ("memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved"):
            setattr(self, counter, self._zero)
        for call in (
            "empty_cache",
            "ipc_collect",
            "reset_peak_memory_stats",
            "set_per_process_memory_fraction",
            # torch.cpu's own refuses the device index that verl passes
            "set_device",
        ):
            setattr(self, call, self._nothing)
        self.manual_seed = self.manual_seed_all = torch.manual_seed

    @staticmethod
    def _zero(*_: object, **__: object) -> int:
        return 0

    @staticmethod
    def _nothing(*_: object, **__: object) -> None:
        return None

    @staticmethod
    def mem_get_info(*_: object) -> tuple[int, int]:
        """Free and total host memory, in bytes."""
        memory = psutil.virtual_memory()
        return memory.available, memory.total

    @staticmethod
    def get_device_name(*_: object) -> str:
        """The name of the only device."""
        return "cpu"

    @staticmethod
    def get_rng_state(*_: object) -> torch.Tensor:
        """The state of torch's default generator."""
        return torch.get_rng_state()

    @staticmethod
    def set_rng_state(state: torch.Tensor, *_: object) -> None:
        """Set the state of torch's default generator."""
        torch.set_rng_state(state)


class CpuPlatform(PlatformBase):
    """verl's platform interface on the CPU.

    Ray hands out "GPU"s, of which the recipe declares as many as there are ranks: verl then
    counts and places CPU ranks as it does accelerators.
    """

    def __init__(self) -> None:
        self._device = CpuDevice()

    @property
    def device_name(self) -> str:
        """The torch device type."""
        return "cpu"

    @property
    def vendor_name(self) -> str:
        """The vendor, by which verl may look for engines."""
        return "cpu"

    @property
    def device_module(self) -> ModuleType:
        """What verl uses in place of `torch.cuda`."""
        return self._device

    def is_available(self) -> bool:
        """There is always a CPU."""
        return True

    def is_platform_available(self, use_smi_check: bool = False) -> bool:  # noqa: ARG002
        """Never detected: this platform is only used when a recipe asks for it."""
        return False

    def current_device(self) -> str:
        """The device that tensors are moved to.

        The plain name, since a tensor's `device` never carries an index on the CPU.
        """
        return "cpu"

    def device_count(self) -> int:
        """One device for each process."""
        return 1

    def set_device(self, device_index: int) -> None:
        """Nothing to select."""

    def synchronize(self, device_index: int | None = None) -> None:
        """Nothing is pending: CPU kernels return when they are done."""

    def manual_seed(self, seed: int) -> None:
        """Seed torch's default generator."""
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        """Seed torch's default generator."""
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings: str) -> None:
        """The host allocator has no settings."""

    def empty_cache(self) -> None:
        """The host allocator keeps no cache."""

    def get_device_capability(self, device_index: int = 0) -> tuple[int | None, int | None]:  # noqa: ARG002
        """CPUs have no compute capability."""
        return None, None

    def communication_backend_name(self) -> str:
        """The torch.distributed backend for CPU tensors."""
        return "gloo"

    def visible_devices_envvar(self) -> str:
        """The variable that Ray sets for the resource "GPU"."""
        return "CUDA_VISIBLE_DEVICES"

    @contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:  # noqa: ARG002
        """No profiler ranges."""
        yield

    def profiler_start(self) -> None:
        """No device profiler."""

    def profiler_stop(self) -> None:
        """No device profiler."""

    def ray_resource_name(self) -> str:
        """The Ray resource that stands for a rank."""
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        """Ray may set its device variables: nothing reads them."""
        return []

    def is_ipc_supported(self) -> bool:
        """False sends weights to the rollout engine through shared memory."""
        return False

    def cudart(self) -> Any:
        """No CUDA runtime."""
        return None


def install() -> None:
    """Add the platform to verl's registry under the name `cpu`."""
    PlatformRegistry.register(platform="cpu")(CpuPlatform)
