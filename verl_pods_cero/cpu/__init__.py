"""Stock verl, Ray, FSDP2 and vLLM on a machine without an accelerator.

Nothing here is loaded, and nothing changes, unless a recipe asks for it: the recipe gives the
driver the Hydra callback `verl_pods_cero.cpu.driver.CpuRun` and gives every Ray worker
`VERL_PLATFORM=cpu`. In a process with that variable `activate` names the four places where
verl and vLLM need to hear about the CPU.
"""

from __future__ import annotations

import os

__all__ = ["PLATFORM_VARIABLE", "activate", "requested"]

PLATFORM_VARIABLE = "VERL_PLATFORM"
"""verl's own variable for choosing a platform; the value for this one is `cpu`."""

_activated = False


def requested() -> bool:
    """Whether this process was told to run verl on the CPU."""
    return os.environ.get(PLATFORM_VARIABLE, "").strip().lower() == "cpu"


def activate() -> bool:
    """Make verl run on the CPU in this process, if it was requested.

    Call it once verl is imported and before verl is asked for its platform. Calling it again
    does nothing.

    Returns:
        True if this process runs on the CPU platform, False if that was not requested.

    Raises:
        RuntimeError: verl no longer has a name that the CPU path builds on.
    """
    global _activated
    if not requested():
        return False
    if not _activated:
        from verl_pods_cero.cpu import engine, platform, process_group, versions

        versions.install()
        platform.install()
        process_group.install()
        engine.install()
        _activated = True
    return True
