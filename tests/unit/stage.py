"""verl's own trainer, `fit` and agent-loop worker in this process, over a TransferQueue of its own.

What stands in is what would be another process on an accelerator: the ranks that train, the engine that generates, and
what moves weights between them. The trainer, its steps, the replay buffer, the data set, the worker's bookkeeping and
every row in TransferQueue are the real ones.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import transfer_queue as tq
from omegaconf import DictConfig, OmegaConf
from tensordict import TensorDict
from transfer_queue import interface
from transfer_queue.controller import TransferQueueController
from transfer_queue.storage.simple_storage import SimpleStorageUnit
from verl.experimental.agent_loop.agent_loop import AgentLoopOutput

from verl_pods_cero.hooks import patches
from verl_pods_cero.hooks.agent_loop import TaggingWorker
from verl_pods_cero.hooks.generation.worker import FastWorker
from verl_pods_cero.hooks.trainer import PodsCeroTrainerSync
from verl_pods_cero.quickstart.model import make_tokenizer

Score = Callable[[str, int, int], Any]
"""(uid, session, global step) -> reward, or reward and scorer's info, []: it ends without a row; None: it fails."""


def start_transfer_queue() -> Callable[[], None]:
    """Connect this process to a controller and a storage unit in threads of its own; return what stops them."""
    controller = TransferQueueController.__ray_metadata__.modified_class()
    unit = SimpleStorageUnit.__ray_metadata__.modified_class({"num_data_storage_units": 1})
    conf = OmegaConf.create({}, flags={"allow_objects": True})
    conf = OmegaConf.merge(conf, OmegaConf.load(str(resources.files("transfer_queue") / "config.yaml")))
    conf.controller.zmq_info = controller.get_zmq_server_info()
    conf.backend.SimpleStorage.num_data_storage_units = 1
    conf.backend.SimpleStorage.zmq_info = {"unit": unit.get_zmq_server_info()}
    interface._maybe_create_tq_client(conf)

    def stop() -> None:
        interface._TQ_CLIENT.close()
        interface._TQ_CLIENT = None
        unit.shutdown()

    return stop


class Scoring:
    """What makes a worker's loops score at once in place of generating."""

    def __init__(self, config: DictConfig, score: Score, rows: int, tagged: bool) -> None:
        self.config, self.score, self.rows = config, score, rows
        self.processor = self.reward_loop_worker_handles = None
        self.distillation_enabled = False
        self.background_tasks: set[asyncio.Task[None]] = set()
        if tagged:
            self.tag_rows()

    async def _compute_score(self, outputs: list[Any], kwargs: dict[str, Any]) -> None:
        if patches.ROW_WRITES.replaced:  # else the worker is not ours
            await super()._compute_score(outputs, kwargs)

    async def _run_agent_loop(self, _sampling: Any, trajectory: dict[str, Any], **kwargs: Any) -> None:
        kwargs.pop("agent_name"), kwargs.pop("trace")
        result = self.score(kwargs["uid"], kwargs["session_id"], trajectory["step"])
        if result is None:
            raise RuntimeError("the engine lost this rollout")
        if result == []:
            return await self._agent_loop_postprocess([], trajectory["validate"], **kwargs)
        reward, info = result if isinstance(result, tuple) else (result, {"acc": float(result > 0)})
        length = 2 + kwargs["session_id"] % 3
        outputs = [
            AgentLoopOutput(
                prompt_ids=[65, 66, 67],
                response_ids=[70] * (length - 1) + [258],
                response_mask=[1] * length,
                response_logprobs=[0.0] * length,
                reward_score=reward if row == self.rows - 1 else None,
                num_turns=2,
                metrics={},
                extra_fields={"reward_extra_info": info} if row == self.rows - 1 else {},
            )
            for row in range(self.rows)
        ]
        for output in outputs:
            output.extra_fields |= {"min_global_steps": trajectory["step"], "max_global_steps": trajectory["step"]}
        await self._agent_loop_postprocess(outputs, trajectory["validate"], **kwargs)


class PlainWorker(Scoring, TaggingWorker):
    """Our worker with `pods_cero.fast_generation=false`."""


class QuickWorker(Scoring, FastWorker):
    """Our worker as it is by default."""


class Engine:
    """verl's agent-loop manager over one worker: generation is done when the call returns."""

    def __init__(self, worker: Scoring) -> None:
        self.worker = worker
        self.agent_loop_workers: list[Any] = []
        self.submitted: list[list[str]] = []

    def generate_sequences(self, batch: TensorDict) -> None:
        self.submitted.append(list(batch["uid"]))

        async def all_of_them() -> None:
            await self.worker.generate_sequences(batch)
            await asyncio.gather(*self.worker.background_tasks)

        asyncio.run(all_of_them())


class Ranks:
    """A worker group whose log-probabilities are 0, and which remembers what it was trained on."""

    def __init__(self, ranks: int) -> None:
        self._dispatch_info = {"actor": list(range(ranks))}
        self.updates: list[dict[str, Any]] = []
        self.workers: list[Any] = []

    def compute_log_prob(self, batch: Any) -> Any:
        rows = tq.kv_batch_get(keys=batch.keys, partition_id="train", select_fields=["input_ids"])
        zeros = [torch.zeros(len(ids)) for ids in rows["input_ids"].unbind()]
        nested = torch.nested.as_nested_tensor(zeros, layout=torch.jagged)
        columns = TensorDict({"log_probs": nested, "entropy": nested}, batch_size=len(zeros))
        return tq.kv_batch_put(keys=batch.keys, partition_id="train", fields=columns)

    def update_actor(self, batch: Any) -> dict[str, Any]:
        fields = ["advantages", "response_mask", "uid"]
        rows = tq.kv_batch_get(keys=batch.keys, partition_id="train", select_fields=fields)
        trained = [mask.sum() > 0 for mask in rows["response_mask"].unbind()]
        self.updates.append(
            {
                "keys": [key for key, real in zip(batch.keys, trained, strict=True) if real],
                "rows": len(batch.keys),
                "mini_batch": batch.extra_info["mini_batch_size"],
                "advantages": dict(zip(batch.keys, [row.clone() for row in rows["advantages"].unbind()], strict=True)),
            }
        )
        return {"metrics": {"mfu": [0.0], "loss": [0.0], "grad_norm": [1.0]}}

    def save_checkpoint(self, path: str, *_args: Any, **_kwargs: Any) -> None:
        Path(path).mkdir(parents=True)

    def load_checkpoint(self, **_kwargs: Any) -> None:
        pass


class Stage:
    """A run of ours in this process.

    Args:
        config: of the run.
        score: rewards of its rollouts.
        folder: for its log, which is verl's file logger's.
        ranks: that share the rows of a step.
        rows: that each rollout is split over.
        tagged: the worker is ours, and not another agent loop.
        trainer: its class.
    """

    def __init__(
        self,
        config: DictConfig,
        score: Score,
        folder: Path,
        ranks: int = 1,
        rows: int = 1,
        tagged: bool = True,
        trainer: type[Any] = PodsCeroTrainerSync,
    ) -> None:
        config.trainer.logger = ["file"]
        config.trainer.project_name, config.trainer.experiment_name = "stage", folder.name
        config.trainer.val_before_train, config.trainer.test_freq = False, -1
        config.trainer.default_local_dir = str(folder / "checkpoints")
        config.data.dataloader_num_workers = 0
        self.trainer = trainer = trainer(config)
        trainer.tokenizer, trainer.processor = make_tokenizer(), None
        # What verl's `_setup` makes, in its order, without other processes.
        trainer._init_dataloader()
        trainer._init_dump_executor()
        trainer.resource_pool_manager = SimpleNamespace(get_n_gpus=lambda: ranks)
        trainer.ref_in_actor = False
        trainer.actor_rollout_wg = self.ranks = Ranks(ranks)
        trainer.reward_loop_manager = SimpleNamespace(reward_loop_worker_handles=["one"], reward_loop_workers=[])
        trainer.llm_server_manager = SimpleNamespace(server_handles=[])
        trainer.distillation_config = None
        quiet = SimpleNamespace(sleep_replicas=lambda: None, update_weights=lambda *_: None)
        trainer.checkpoint_manager = quiet
        trainer._load_checkpoint()
        trainer.on_init_end()
        fast = config.pods_cero.get("fast_generation", True)
        self.engine = Engine((QuickWorker if fast else PlainWorker)(config, score, rows, tagged))
        self.log = folder / "stage" / f"{folder.name}.jsonl"

    def fit(self) -> list[dict[str, float]]:
        """Train, and return what was logged of each step."""
        try:
            self.trainer.fit(self.engine)
        finally:
            restore_patches()
        return [json.loads(line)["data"] for line in self.log.read_text().splitlines()]


def restore_patches() -> None:
    """Give verl's names in this process back to verl."""
    for patch in (patches.ROW_DICTS, patches.ROW_WRITES):
        patch.restore()


def rows_left() -> dict[str, Any]:
    """Return the rows that TransferQueue still holds."""
    return {name: rows for name, rows in (tq.kv_list() or {}).items() if rows}
