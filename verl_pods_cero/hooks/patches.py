"""Every name of verl that this plugin replaces, and why.

A name is replaced in the one kind of process that needs it, until the process ends; `restore` is for tests.
Methods that our trainers and workers override are no patches: `contract` checks these. What the CPU path replaces is in
`cpu/`, which does nothing unless a recipe asks for a CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any


@dataclass(frozen=True)
class Patch:
    """A name of a module that something of ours takes the place of.

    Attributes:
        module: the module.
        name: the name in it.
        process: where it is replaced.
        why: what cannot be had otherwise.
        since: the first verl that needs it.
    """

    module: str
    name: str
    process: str
    why: str
    since: str

    @property
    def replaced(self) -> bool:
        """Whether it is replaced in this process."""
        return self in _REPLACED

    def replace(self, by: Callable[[Any], Any]) -> None:
        """Put `by(what stands there)` in its place, unless that was done in this process."""
        if not self.replaced:
            module = import_module(self.module)
            _REPLACED[self] = getattr(module, self.name)
            setattr(module, self.name, by(_REPLACED[self]))

    def restore(self) -> None:
        """Put back what stood there."""
        if self.replaced:
            setattr(import_module(self.module), self.name, _REPLACED.pop(self))


_REPLACED: dict[Patch, Any] = {}

ROW_DICTS = Patch(
    module="verl.trainer.ppo.v1.agent_loop_tq",
    name="list_of_dict_to_tensordict",
    process="agent-loop workers",
    why="rows stay dicts until they are written: making a batch takes as long for one row as for many",
    since="0.9.0",
)
ROW_WRITES = Patch(
    module="verl.trainer.ppo.v1.agent_loop_tq",
    name="tq",
    process="agent-loop workers",
    why="verl writes a rollout's rows inside a method that has no hook for their tags, and one rollout at a time",
    since="0.9.0",
)
OPTION_CHECKS = Patch(
    module="verl.utils.config",
    name="validate_config",
    process="driver",
    why="wrong options are refused where verl refuses its own, before Ray starts",
    since="0.9.0",
)
SCORER_LOADER = Patch(
    module="verl.trainer.ppo.reward",
    name="get_custom_reward_fn",
    process="reward workers",
    why="a scorer that calls sys.exit would end the worker, and the run would wait for it (`scorer_exit`)",
    since="0.9.0",
)
WEIGHT_SENDER = Patch(
    module="verl.workers.rollout.vllm_rollout.bucketed_weight_transfer",
    name="BucketedWeightSender",
    process="ranks that train",
    why="its socket is named after Ray's job number, which two runs on one machine share (`weight_sockets`)",
    since="0.9.0",
)
WEIGHT_RECEIVER = Patch(
    module=WEIGHT_SENDER.module,
    name="BucketedWeightReceiver",
    process="vLLM's workers",
    why="the other end of the same socket",
    since="0.9.0",
)
PATCHES = (ROW_DICTS, ROW_WRITES, OPTION_CHECKS, SCORER_LOADER, WEIGHT_SENDER, WEIGHT_RECEIVER)

CHECKED = (ROW_DICTS, ROW_WRITES, OPTION_CHECKS, SCORER_LOADER)
"""Those that can be looked up without vLLM, where trainers register; the others fail in the processes they are for."""
