"""What a CPU recipe does in the driver, before verl starts Ray."""

from __future__ import annotations

import logging
import os
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from verl_pods_cero.cpu import PLATFORM_VARIABLE, activate


def activate_driver() -> None:
    """Move the driver, and the processes it starts, to the CPU platform.

    The driver has imported verl by now, and verl has settled for CUDA where it found no device.

    Raises:
        RuntimeError: vLLM's CPU build is not installed, or verl lost a name this builds on.
    """
    from importlib.metadata import PackageNotFoundError, version

    os.environ[PLATFORM_VARIABLE] = "cpu"
    activate()
    try:
        vllm = version("vllm")
    except PackageNotFoundError:
        vllm = "none"
    if "cpu" not in vllm:
        raise RuntimeError(
            f"this recipe runs vLLM on the CPU and needs its CPU build; installed: {vllm}. Run "
            "`make quickstart` from a clone, or install the packages in requirements/."
        )

    from verl.plugin.platform import PlatformRegistry, set_platform

    platform = PlatformRegistry.get("cpu")
    assert platform is not None
    # verl warns when a platform replaces another. That is the very purpose here.
    logger = logging.getLogger("verl.plugin.platform.platform_manager")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        set_platform(platform())
    finally:
        logger.setLevel(level)


class CpuRun(Callback):
    """The Hydra callback of a CPU recipe (`hydra.callbacks`).

    Hydra calls it with the composed configuration, just before verl's `main`.
    """

    def on_job_start(self, config: DictConfig, **kwargs: Any) -> None:  # noqa: ARG002
        """Activate the CPU platform in the driver.

        Raises:
            SystemExit: that failed. Hydra turns any other exception of a callback into a warning,
                and the run would go on with the wrong platform.
        """
        try:
            activate_driver()
        except Exception as error:
            raise SystemExit(f"{type(error).__name__}: {error}") from error
