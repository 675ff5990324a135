"""The CERO allocator inside verl's trainers: one override a hook."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import numpy as np
from omegaconf import DictConfig, open_dict
from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from verl.utils.debug import marked_timer

from verl_pods_cero.core.allocators import create_allocator
from verl_pods_cero.core.budget import BudgetedAllocator
from verl_pods_cero.core.steps import Steps
from verl_pods_cero.errors import LOGGER, OptionError, option_names
from verl_pods_cero.hooks import checkpoint
from verl_pods_cero.hooks.outcomes import outcome_counts, successes
from verl_pods_cero.hooks.prompt_pool import PositionStream, position_loader, prompt_batch
from verl_pods_cero.hooks.rollouts import Rollouts
from verl_pods_cero.metric_names import allocation_metrics
from verl_pods_cero.options.allocator import allocator_settings, run_steps
from verl_pods_cero.options.names import ALLOCATOR_NAMES
from verl_pods_cero.options.schema import PodsCeroOptions

if TYPE_CHECKING:
    from verl.trainer.ppo.v1 import PPOTrainer as _Base
else:
    _Base = object

logger = logging.getLogger(LOGGER)


class AllocatorMixin(_Base):
    """Lets an allocator choose the prompts of a step, and how many rollouts each of them gets.

    The plan of a step is made at the end of the one before it: verl settles at the start of a step
    whether it is the last one, and only the plan knows when the budget ends.
    """

    pods_cero: PodsCeroOptions
    train_dataloader: Any

    def __init__(self, config: DictConfig) -> None:
        self._planner: Steps | None = None
        self._row_of_uid: dict[str, int] = {}
        self._allocation_metrics: dict[str, float] = {}
        super().__init__(config)

    @option_names(ALLOCATOR_NAMES)
    def _init_dataloader(self) -> None:
        super()._init_dataloader()
        options = self.pods_cero.allocator
        if not options.enable:
            return
        rows = len(self.train_dataset)
        settings = allocator_settings(self.config, options, rows)
        # verl saves and restores whatever loader stands here.
        self.train_dataloader = positions = position_loader(self.train_dataloader)
        stream = PositionStream(positions) if options.candidates == "loader" else None
        if stream is not None and not len(positions):
            rule = f"must be at most the number of rows that verl kept ({rows}), or an epoch has no batch"
            raise OptionError("data.train_batch_size", rule, positions.batch_size, f"use {rows} or less")
        self._planner = Steps(create_allocator(options.name, settings), settings, stream)
        self._header = checkpoint.state_header(options, settings, self.train_dataset, self.config.data.prompt_key)
        # Steps and the learning-rate schedule follow the allocator. Epochs do not count: one
        # never ends, or verl would end the run by the size of the data set.
        self.total_training_steps = run_steps(self.config, options, settings)
        self.steps_per_epoch = self.total_training_steps + 1
        with open_dict(self.config):
            for optimizer in (self.config.actor_rollout_ref.actor.optim, self.config.critic.optim):
                optimizer.total_training_steps = self.total_training_steps
        # Long before verl loads its own part, which needs engines: a state of another run is refused here.
        if step := checkpoint.resumed_step(self.config):
            checkpoint.load(checkpoint.step_folder(self.config, step), self._header)

    # ------------------------------------------------------------------ one step ahead

    def on_train_begin(self) -> None:
        """Plan the first step."""
        super().on_train_begin()
        self._plan_step(self.global_steps)

    def on_step_end(self) -> None:
        """Plan the next step, while verl can still be told that it is the last."""
        super().on_step_end()
        self._plan_step(self.global_steps + 1)

    def _plan_step(self, step: int) -> None:
        if self._planner is None:
            return
        with marked_timer("cero_plan", self.timing_raw if hasattr(self, "timing_raw") else {}):
            self._planner.prepare()
        if self._planner.exhausted:
            self.total_training_steps = min(self.total_training_steps, step - 1)
        elif self._planner.last:
            self.total_training_steps = min(self.total_training_steps, step)

    def on_train_end(self) -> None:
        """Validate and save where the budget ended before verl could see it coming."""
        super().on_train_end()
        if self._planner is None or not self._planner.exhausted or not self._allocation_metrics:
            return
        self.global_steps -= 1
        trainer = self.config.trainer
        if trainer.save_freq > 0 and self.global_steps % trainer.save_freq:
            self._save_checkpoint()
        if trainer.test_freq > 0 and self.global_steps % trainer.test_freq:
            self.on_validate_begin()
            self.logger.log(data=self._validate(), step=self.global_steps)
            self.on_validate_end()
        logger.warning("the rollout budget ended with step %d: no later round had a taker", self.global_steps)

    # ------------------------------------------------------------------ prompts out, outcomes in

    def _next_train_batch(self, num_prompts: int | None = None) -> TensorDict:
        if self._planner is None:
            return super()._next_train_batch(num_prompts)
        step = self._planner.take()
        batch = prompt_batch(self.train_dataset, step, self.global_steps)
        self._row_of_uid = dict(zip(list(batch["uid"]), step.indices.tolist(), strict=True))
        self._allocation_metrics = {"prompts": float(len(step)), "rollouts": float(step.total)}
        return batch

    def _step_once(self, metrics: dict[str, Any], timing_raw: dict[str, float], sample_batch_size: int) -> KVBatchMeta:
        if self._planner is not None:
            sample_batch_size = len(self._row_of_uid)
        return super()._step_once(metrics, timing_raw, sample_batch_size)

    def _learn_outcomes(self, rollouts: Rollouts | None) -> None:
        """Take in what the step's prompts came back with; None if not one rollout did."""
        if self._planner is None:
            return
        with marked_timer("cero_update", self.timing_raw):
            if rollouts is None:
                none = np.zeros(0, dtype=np.int64)
                self._planner.observe(none, none, none)
            else:
                success = successes(rollouts, self.pods_cero.allocator)
                self._planner.observe(*outcome_counts(rollouts, success, self._row_of_uid))
        self._allocation_metrics = {**self._planner.allocator.metrics(), **self._allocation_metrics}

    def _count_dropped(self, prompts: int, rollouts: int) -> None:
        """Log what was left out of the update without a filter: prompts of one rollout, rollouts without values."""
        if self._planner is not None:
            self._allocation_metrics |= {"prompts_dropped_single": prompts, "rollouts_unscored": rollouts}

    def _step_allocation_metrics(self) -> dict[str, float]:
        """Return what the allocator logs of a step; `training/epoch` counts plain GRPO's rollouts of an epoch."""
        if self._planner is None:
            return {}
        settings = self._planner.settings
        before = self._planner.rollouts_taken - self._allocation_metrics["rollouts"]
        epoch = before // (settings.num_prompts * settings.n)
        return {**allocation_metrics(self._allocation_metrics), "training/epoch": epoch}

    # ------------------------------------------------------------------ checkpoints

    def _save_checkpoint(self) -> None:
        if self._planner is not None:
            # Before verl's own files: its tracker, written last, then vouches for ours too.
            folder = checkpoint.step_folder(self.config, self.global_steps)
            checkpoint.save(folder, self._header, self._planner.state_dict())
            allocator = self._planner.allocator
            if self.pods_cero.allocator.dump_prompts and isinstance(allocator, BudgetedAllocator):
                checkpoint.dump_prompts(folder, allocator)
        super()._save_checkpoint()

    def _load_checkpoint(self) -> None:
        super()._load_checkpoint()
        if self._planner is not None and self.global_steps > 0:
            folder = checkpoint.step_folder(self.config, self.global_steps)
            self._planner.load_state_dict(checkpoint.load(folder, self._header))
