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
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils.debug import marked_timer

from verl_pods_cero.errors import LOGGER, PluginError
from verl_pods_cero.hooks.empty_steps import EmptyStepsMixin, NothingKept
from verl_pods_cero.hooks.generation.worker import ValuesManager
from verl_pods_cero.hooks.group_advantages import full_group_advantages
from verl_pods_cero.hooks.metrics import FilterStep, dashboard_metrics, filter_metrics
from verl_pods_cero.hooks.rollout_filter import RolloutFilter
from verl_pods_cero.hooks.rollouts import Rollouts, keep_rows, read_rollouts, scored
from verl_pods_cero.hooks.row_index import Mask
from verl_pods_cero.options.checks import validate
from verl_pods_cero.options.schema import BASE_MODES, PodsCeroOptions
from verl_pods_cero.options.update_shape import UpdateShape, update_shape

logger = logging.getLogger(LOGGER)


class PodsCeroMixin(EmptyStepsMixin):
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
        self._filter_step: FilterStep | None = None
        self._submitted: list[str] = []
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
        self._filter_step = None
        self._rows_padded = self._unscored = 0
        self._balanced = False
        batch = super().step(metrics, timing_raw)
        if not self._balanced:
            raise PluginError(
                "verl ran a training step without calling _balance_batch: no rollout was filtered, and no outcome "
                "was learnt from. "
                "Fix: use a verl version that `verl-pods-cero doctor` accepts."
            )
        return batch

    def _submit_batch_to_rollout(self, batch: Any) -> int:
        self._submitted.extend(list(batch["uid"]))
        return int(super()._submit_batch_to_rollout(batch))

    def _balance_batch(self, batch: KVBatchMeta, metrics: dict[str, Any], **kwargs: Any) -> KVBatchMeta:
        self._balanced = True
        if self._filter is not None or self.pods_cero.allocator.enable:
            batch = self._choose(batch)
        self._submitted = []
        if not len(batch):
            raise NothingKept(batch)
        self._step_rows = len(batch)
        batch = super()._balance_batch(batch, metrics, **kwargs)
        self._rows_padded = len(batch) - self._step_rows
        return batch

    def _choose(self, batch: KVBatchMeta) -> KVBatchMeta:
        """Learn from the step's rollouts, and return the batch of those to update on."""
        if not len(batch):
            self._learn_outcomes(None)
            return batch
        with marked_timer("pods_select", self.timing_raw):
            batch, rollouts = self._read(batch)
        self._learn_outcomes(rollouts)
        if not len(batch):
            return batch
        with marked_timer("pods_select", self.timing_raw):
            return self._keep(rollouts, batch)

    def _read(self, batch: KVBatchMeta) -> tuple[KVBatchMeta, Rollouts]:
        """Read the step's rollouts, and drop those that lack a value."""
        rollouts = read_rollouts(batch, self.pods_cero, self._submitted)
        usable = scored(batch, rollouts, self.pods_cero)
        self._unscored = int((~usable).sum())
        if self._unscored:
            batch, dropped = keep_rows(batch, rollouts.index, usable)
            tq.kv_clear(keys=dropped, partition_id=batch.partition_id)
            rollouts = rollouts.only(usable)
        return batch, rollouts

    def _keep(self, rollouts: Rollouts, batch: KVBatchMeta) -> KVBatchMeta:
        if self._filter is None:
            single = rollouts.index.sizes == 1
            sessions: Mask = ~single[rollouts.index.group_of_session]
            self._count_dropped(int(single.sum()), self._unscored)
        else:
            kept = self._filter(rollouts, self.global_steps)
            self._filter_step, sessions = FilterStep(rollouts, kept), kept.sessions
            if kept.degenerate.all():
                logger.warning(
                    "every prompt of step %d has rollouts of one value: nothing to learn from", self.global_steps
                )
        batch, dropped = keep_rows(batch, rollouts.index, sessions)
        if self._filter is not None and self.config.trainer.get("rollout_data_dir"):
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
        # verl asks once a step, before its passes, and alone knows the ranks: the updates are of this shape
        self._shape = self._update_shape().fitted(self._step_rows, dp_size)
        return self._shape.multiple(dp_size)

    def _compute_advantage(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        batch = super()._compute_advantage(batch, metrics)
        if self._filter is not None and self._filter.options.advantage_stats == "full_group":
            assert self._filter_step is not None, "the filter ran before the advantages"
            full_group_advantages(batch, self._filter_step.rollouts, self.config.algorithm)
        return batch

    def _update_critic(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        rows = len(batch) // self._shape.critic_updates
        with self._mini_batch_of("critic", rows):
            return super()._update_critic(batch, metrics)

    def _update_actor(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        rows = len(batch) // self._shape.actor_updates
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
        if (step := self._filter_step) is None:
            if self._filter is not None:  # no rollout came back, or none had a value
                metrics.update({"pods/update_skipped": 1.0, "pods/rollouts_unscored": float(self._unscored)})
            return
        n_gpus, plain = self._get_n_gpus_for_throughput(), not self.config.algorithm.use_kl_in_reward
        metrics.update(dashboard_metrics(step.rollouts, timing_raw, n_gpus, rewards_are_scores=plain))
        counts = {"unscored": self._unscored, "rows_padded": self._rows_padded}
        metrics.update(filter_metrics(step, **counts, update_skipped=not len(batch)))

    def _log_rollout_data(self, batch: KVBatchMeta, timing_raw: dict[str, float], rollout_data_dir: str) -> None:
        if self._filter_step is None:
            super()._log_rollout_data(batch, timing_raw, rollout_data_dir)
            return
        keys = self._filter_step.rollouts.keys
        everything = KVBatchMeta(partition_id="train", keys=keys, tags=[{} for _ in keys])
        super()._log_rollout_data(everything, timing_raw, rollout_data_dir)
        if self._undumped_keys:
            tq.kv_clear(keys=self._undumped_keys, partition_id="train")
            self._undumped_keys = []

    def _dump_generations(self, *args: Any, **kwargs: Any) -> None:
        if self._filter_step is not None and kwargs["dump_path"] == self.config.trainer.get("rollout_data_dir"):
            dropped = set(self._undumped_keys)
            columns = kwargs["reward_extra_infos_dict"]
            columns["kept"] = [key not in dropped for key in columns["uid"]]
        super()._dump_generations(*args, **kwargs)


class PodsCeroTrainerSync(PodsCeroMixin, PPOTrainerSync):
    """`trainer.v1.trainer_mode=pods_cero_sync`: verl's synchronous trainer with our hooks."""
