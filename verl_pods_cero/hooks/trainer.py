"""The trainers that verl finds under our names: one override a hook."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import transfer_queue as tq
from omegaconf import DictConfig, OmegaConf, open_dict
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.trainer.ppo.v1 import trainer_base
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils.debug import marked_timer

from verl_pods_cero.config import BASE_MODES, PodsCeroOptions
from verl_pods_cero.errors import LOGGER, PluginError
from verl_pods_cero.hooks.agent_loop import ValuesManager
from verl_pods_cero.hooks.allocating import AllocatorMixin
from verl_pods_cero.hooks.group_advantages import full_group_advantages
from verl_pods_cero.hooks.metrics import FilterStep, dashboard_metrics, filter_metrics
from verl_pods_cero.hooks.rollout_filter import RolloutFilter
from verl_pods_cero.hooks.rollouts import Rollouts, keep_rows, read_rollouts
from verl_pods_cero.update_shape import UpdateShape, update_shape
from verl_pods_cero.validation import validate

logger = logging.getLogger(LOGGER)


class NothingKept(Exception):  # noqa: N818 - leaves verl's step early, and is no error
    """No row is left to update on; carries the empty batch."""

    def __init__(self, batch: KVBatchMeta) -> None:
        super().__init__("no rollout was kept")
        self.batch = batch


class PodsCeroMixin(AllocatorMixin):
    """Puts the PODS filter, over the CERO allocator, into any of verl's trainers.

    A trainer is this mixin before one of verl's classes; `BASE_MODES` says which. Nothing
    of verl's step is repeated here: rows are dropped on the way into `_balance_batch`, and what verl
    derives from `rollout.n` is derived from the rows that are there.
    """

    def __init__(self, config: DictConfig) -> None:
        options = validate(config, use_critic=need_critic(config), use_reference=need_reference_policy(config))
        assert options is not None, "validate refuses our trainer modes without options"
        self.pods_cero: PodsCeroOptions = options
        rollout = config.actor_rollout_ref.rollout
        self._filter = RolloutFilter(options.filter, rollout.n) if options.filter.enable else None
        self._filter_steps: list[FilterStep] = []
        self._undumped_keys: list[str] = []
        with open_dict(config):
            # verl compares the mode with "sync" in several places.
            config.trainer.v1.trainer_mode = BASE_MODES[config.trainer.v1.trainer_mode]
            if rollout.agent.get("agent_loop_manager_class") is None:
                rollout.agent.agent_loop_manager_class = f"{ValuesManager.__module__}.{ValuesManager.__name__}"
        super().__init__(config)

    def _build_replay_buffer(self) -> Any:
        buffer = super()._build_replay_buffer()
        buffer.poll_interval = self.pods_cero.poll_interval_s
        return buffer

    # ------------------------------------------------------------------ one training step

    def step(self, metrics: dict[str, Any], timing_raw: dict[str, float]) -> KVBatchMeta:
        """Run verl's step, with the filter in it."""
        self._filter_steps.clear()
        self._rows_padded = 0
        self._balanced = False
        batch = super().step(metrics, timing_raw)
        if not self._balanced:
            raise PluginError(
                "verl ran a training step without calling _balance_batch: no rollout was filtered, and no outcome "
                "was learnt from. "
                "Fix: use a verl version that `verl-pods-cero doctor` accepts."
            )
        return batch

    def _step_once(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        try:
            return super()._step_once(*args, **kwargs)
        except NothingKept as nothing:
            logger.warning("step %d kept none of its rollouts and makes no update; the run goes on", self.global_steps)
            # verl clears a step's rows at its end, and TransferQueue refuses to clear none.
            trainer_base.tq = ClearsNothing()
            return nothing.batch

    def _balance_batch(self, batch: KVBatchMeta, metrics: dict[str, Any], **kwargs: Any) -> KVBatchMeta:
        self._balanced = True
        rollouts = None
        if len(batch):
            with marked_timer("pods_select", self.timing_raw):
                rollouts = read_rollouts(batch, self.pods_cero)
        self._learn_outcomes(rollouts)
        if rollouts is not None and self._filter is not None:
            with marked_timer("pods_select", self.timing_raw):
                batch = self._keep(self._filter, rollouts, batch)
        if not len(batch):
            raise NothingKept(batch)
        rows = len(batch)
        batch = super()._balance_batch(batch, metrics, **kwargs)
        self._rows_padded += len(batch) - rows
        return batch

    def _keep(self, rollout_filter: RolloutFilter, rollouts: Rollouts, batch: KVBatchMeta) -> KVBatchMeta:
        kept = rollout_filter(rollouts, self.global_steps)
        self._filter_steps.append(FilterStep(rollouts, kept))
        if kept.degenerate.all():
            logger.warning(
                "every prompt of step %d has rollouts of one value: nothing to learn from", self.global_steps
            )
        batch, dropped = keep_rows(batch, rollouts.index, kept.sessions)
        if self.config.trainer.get("rollout_data_dir"):
            self._undumped_keys.extend(dropped)
        elif dropped:
            tq.kv_clear(keys=dropped, partition_id=batch.partition_id)
        return batch

    # ------------------------------------------------------------------ updates over the kept rows

    def _update_shape(self) -> UpdateShape:
        return update_shape(
            self.config,
            use_critic=self.use_critic,
            use_reference=self.use_reference_policy,
            actor_trains=self.config.trainer.critic_warmup <= self.global_steps,
        )

    def _get_required_batch_multiple(self, dp_size: int) -> int:
        return self._update_shape().multiple(dp_size)

    def _compute_advantage(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        batch = super()._compute_advantage(batch, metrics)
        if self._filter is not None and self._filter.options.advantage_stats == "full_group":
            full_group_advantages(batch, self._filter_steps[-1].rollouts, self.config.algorithm)
        return batch

    def _update_critic(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        rows = len(batch) // self._update_shape().critic_updates
        with self._mini_batch_of("critic", rows):
            return super()._update_critic(batch, metrics)

    def _update_actor(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        rows = len(batch) // self._update_shape().actor_updates
        with self._mini_batch_of("actor_rollout_ref.actor", rows):
            return super()._update_actor(batch, metrics)

    @contextmanager
    def _mini_batch_of(self, section: str, rows: int) -> Iterator[None]:
        """Make `ppo_mini_batch_size * rollout.n`, verl's rows a mini-batch, equal `rows`."""
        part, rollout = OmegaConf.select(self.config, section), self.config.actor_rollout_ref.rollout
        before = part.ppo_mini_batch_size, rollout.n
        part.ppo_mini_batch_size, rollout.n = rows, 1
        try:
            yield
        finally:
            part.ppo_mini_batch_size, rollout.n = before

    # ------------------------------------------------------------------ what the user sees

    def _compute_metrics(
        self, batch: KVBatchMeta, metrics: dict[str, Any], timing_raw: dict[str, float], **kwargs: Any
    ) -> None:
        if len(batch):
            super()._compute_metrics(batch, metrics, timing_raw, **kwargs)
        else:
            metrics.update({"training/global_step": kwargs["global_steps"], "training/epoch": kwargs["epoch"]})
            metrics.update({f"timing_s/{name}": seconds for name, seconds in timing_raw.items()})
        metrics.update(self._step_allocation_metrics())
        if self._filter_steps and self._filter_steps[0].rollouts.keys:
            n_gpus = self._get_n_gpus_for_throughput()
            plain = not self.config.algorithm.use_kl_in_reward
            metrics.update(dashboard_metrics(self._filter_steps, timing_raw, n_gpus, rewards_are_scores=plain))
        if self._filter_steps:
            metrics.update(filter_metrics(self._filter_steps, self._rows_padded, not len(batch)))

    def _log_rollout_data(self, batch: KVBatchMeta, timing_raw: dict[str, float], rollout_data_dir: str) -> None:
        if not self._filter_steps:
            super()._log_rollout_data(batch, timing_raw, rollout_data_dir)
            return
        keys = [key for step in self._filter_steps for key in step.rollouts.keys]
        everything = KVBatchMeta(partition_id="train", keys=keys, tags=[{} for _ in keys])
        super()._log_rollout_data(everything, timing_raw, rollout_data_dir)
        if self._undumped_keys:
            tq.kv_clear(keys=self._undumped_keys, partition_id="train")
            self._undumped_keys = []

    def _dump_generations(self, *args: Any, **kwargs: Any) -> None:
        if self._filter_steps and kwargs["dump_path"] == self.config.trainer.get("rollout_data_dir"):
            dropped = set(self._undumped_keys)
            columns = kwargs["reward_extra_infos_dict"]
            columns["kept"] = [key not in dropped for key in columns["uid"]]
        super()._dump_generations(*args, **kwargs)


class ClearsNothing:
    """TransferQueue's module, but clearing no rows does nothing."""

    def __getattr__(self, name: str) -> Any:
        return getattr(tq, name)

    def kv_clear(self, keys: list[str], partition_id: str) -> None:
        """Clear the rows, if there are any."""
        if keys:
            tq.kv_clear(keys=keys, partition_id=partition_id)


class PodsCeroTrainerSync(PodsCeroMixin, PPOTrainerSync):
    """`trainer.v1.trainer_mode=pods_cero_sync`: verl's synchronous trainer with our hooks."""
