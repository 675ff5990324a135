"""verl's FSDP engines, registered for the CPU as well."""

from __future__ import annotations

from types import ModuleType

import wrapt

MODULE = "verl.workers.engine.fsdp.transformer_impl"

ENGINES = {
    "language_model": "FSDPEngineWithLMHead",
    "value_model": "FSDPEngineWithValueHead",
}
"""verl's model type -> the engine class that trains it on any torch device."""


def register(module: ModuleType) -> None:
    """Register the engines of `module` for the device `cpu`.

    verl registers them for `cuda` and `npu` only, although they take their device from the
    platform throughout.

    Raises:
        RuntimeError: the module no longer has one of the classes.
    """
    from verl.workers.engine.base import EngineRegistry

    for model_type, name in ENGINES.items():
        engine = getattr(module, name, None)
        if engine is None:
            raise RuntimeError(
                f"{module.__name__} has no class {name}, which trains a {model_type} on the CPU. "
                "verl-pods-cero was written for verl 0.9.1: install that version."
            )
        EngineRegistry.register(model_type=model_type, backend=["fsdp", "fsdp2"], device="cpu")(engine)


def install() -> None:
    """Register the engines once their module is imported.

    Importing it here would cost every process seconds, and only the actor needs it.
    """
    wrapt.register_post_import_hook(register, MODULE)
