"""One gloo process group in place of two."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import wrapt

MODULE = "verl.utils.distributed"
FUNCTION = "initialize_global_process_group_ray"


def default_to_gloo(
    wrapped: Callable[..., None],
    instance: object,  # noqa: ARG001
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> None:
    """Call verl's function with backend "cpu:gloo", unless the caller chose a backend."""
    chosen = dict(zip(("timeout_second", "backend"), args, strict=False)) | kwargs
    chosen["backend"] = chosen.get("backend") or "cpu:gloo"
    wrapped(**chosen)


def patch(module: ModuleType) -> None:
    """Give verl's process-group function the one backend that a CPU needs.

    Left alone, verl asks for "cpu:gloo,<device>:<backend>", here "cpu:gloo,cpu:gloo", and torch
    refuses a string that names a device twice.

    Raises:
        RuntimeError: the module no longer has the function.
    """
    if not hasattr(module, FUNCTION):
        raise RuntimeError(
            f"{module.__name__} has no function {FUNCTION}, which the CPU path needs to choose gloo. "
            "verl-pods-cero was written for verl 0.9.1: install that version."
        )
    wrapt.wrap_function_wrapper(module, FUNCTION, default_to_gloo)


def install() -> None:
    """Patch the function as soon as its module is imported, before others take it by name."""
    wrapt.register_post_import_hook(patch, MODULE)
