"""The sockets that weights travel through to the engines, by a name that two runs on one machine do not share.

verl names a socket after Ray's job number, which is the same for the first job of every Ray session: two runs side by
side would fail, or take each other's weights. Both ends of a socket are in processes of one run, which all know its
`VARIABLE`.
"""

from __future__ import annotations

import os
import uuid
from types import ModuleType
from typing import TYPE_CHECKING, Any

from verl_pods_cero.hooks import patches

if TYPE_CHECKING:
    from omegaconf import DictConfig

VARIABLE = "VERL_PODS_CERO_RUN"
MODULE = patches.WEIGHT_SENDER.module

_PREFIX = "rl-colocate-zmq-"


def name_run(config: DictConfig) -> None:
    """Give the processes that Ray will start for this run a name of the run."""
    from omegaconf import OmegaConf

    option = f"ray_kwargs.ray_init.runtime_env.env_vars.{VARIABLE}"
    if OmegaConf.select(config, option) is None:
        OmegaConf.update(config, option, uuid.uuid4().hex[:8], force_add=True)


def own_socket(handle: str, run: str) -> str:
    """Return verl's name of a socket with the run's name in it.

    >>> own_socket("ipc:///tmp/rl-colocate-zmq-01000000-replica-0-rank-0.sock", "1f2e3d4c")
    'ipc:///tmp/rl-colocate-zmq-1f2e3d4c-01000000-replica-0-rank-0.sock'
    """
    return handle.replace(_PREFIX, f"{_PREFIX}{run}-", 1)


def separate_runs(_module: ModuleType) -> None:
    """Let both ends of verl's sockets in this process use the run's own."""
    for patch in (patches.WEIGHT_SENDER, patches.WEIGHT_RECEIVER):
        patch.replace(_of_this_run)


def _of_this_run(verls: Any) -> type[Any]:
    class OfThisRun(verls):
        def __init__(self, zmq_handle: str, *args: Any, **kwargs: Any) -> None:
            super().__init__(own_socket(zmq_handle, os.environ[VARIABLE]), *args, **kwargs)

    return OfThisRun
