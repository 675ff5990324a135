"""The trainers that verl finds under our names: every override, in the order in which verl's `fit` comes to it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf, open_dict
from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils.debug import marked_timer

from verl_pods_cero.core.allocators import create_allocator
from verl_pods_cero.core.budget import BudgetedAllocator
from verl_pods_cero.core.steps import Steps
from verl_pods_cero.errors import LOGGER, PluginError, option_names
from verl_pods_cero.hooks import checkpoint, rows
from verl_pods_cero.hooks.agent_loop import PodsCeroManager
from verl_pods_cero.hooks.contract import overrides
from verl_pods_cero.hooks.failures import FAILED_STEPS, Failures
from verl_pods_cero.hooks.filter import PodsFilter, whole_groups
from verl_pods_cero.hooks.group_advantages import row_advantages
from verl_pods_cero.hooks.loader import PositionStream, position_loader, prompt_batch
from verl_pods_cero.hooks.metrics import dashboard_metrics, filter_metrics, unfiltered_metrics
from verl_pods_cero.hooks.pilot import Pilot
from verl_pods_cero.hooks.prompts import AllocatedPrompts
from verl_pods_cero.hooks.rollouts import Rollouts
from verl_pods_cero.hooks.scored import scored
from verl_pods_cero.hooks.step import NothingKept, Step
from verl_pods_cero.hooks.watch import Watch
from verl_pods_cero.options.allocator import allocator_settings, check_pilot, run_steps
from verl_pods_cero.options.checks import validate
from verl_pods_cero.options.names import ALLOCATOR_NAMES
from verl_pods_cero.options.schema import BASE_MODES, PodsCeroOptions
from verl_pods_cero.options.scorer import REWARD, required_keys, value_keys
from verl_pods_cero.options.update_shape import update_shape
from verl_pods_cero.options.warm_start import read_outcomes

if TYPE_CHECKING:
    from verl.trainer.ppo.v1 import PPOTrainer as _Base
else:
    _Base = object

logger = logging.getLogger(LOGGER)

BUFFER = ("poll_interval", "pending_keys", "running_keys", "finished_keys", "failure_keys", "partitions")
"""What a replay buffer is asked for: verl's own, or one of `trainer.v1.sampler.custom_sampler`."""


class PodsCeroMixin(_Base):
    """Puts the PODS filter and the CERO allocator into any of verl's trainers.

    A trainer is this mixin before one of verl's classes; `BASE_MODES` says which. Nothing of verl's step is repeated
    here: `_prompts` says what is generated, `_filter` what is kept, rows are dropped on the way into `_balance_batch`,
    and what verl derives from `rollout.n` is derived from the rows that are there.
    """

    train_dataloader: Any
    replay_buffer: Any

    # ------------------------------------------------------------------ before training

    @overrides
    def __init__(self, config: DictConfig) -> None:
        options = validate(config, use_critic=need_critic(config), use_reference=need_reference_policy(config))
        assert options is not None, "validate refuses our trainer modes without options"
        rollout = config.actor_rollout_ref.rollout
        self.pods_cero: PodsCeroOptions = options
        self._filter: PodsFilter | None = None
        if options.filter.enable:
            self._filter = PodsFilter(options.filter, rollout.n, options.zero_variance_tolerance)
        self._prompts: AllocatedPrompts | None = None
        self._pilot: Pilot | None = None
        self._keys, self._required = value_keys(options), required_keys(options)
        self._now = Step()
        self._failures = Failures(options.max_failed_fraction)
        self.timing_raw: dict[str, float] = {}
        with open_dict(config):
            # verl compares the mode with "sync" in several places.
            config.trainer.v1.trainer_mode = BASE_MODES[config.trainer.v1.trainer_mode]
            if rollout.agent.get("agent_loop_manager_class") is None:
                rollout.agent.agent_loop_manager_class = f"{PodsCeroManager.__module__}.{PodsCeroManager.__name__}"
        super().__init__(config)

    @overrides
    def _build_replay_buffer(self) -> Any:
        buffer = super()._build_replay_buffer()
        if missing := [name for name in BUFFER if not hasattr(buffer, name)]:
            raise PluginError(f"{type(buffer).__name__} has no {', '.join(missing)}, which the trainer reads")
        buffer.poll_interval = self.pods_cero.poll_interval_s
        return buffer

    @overrides
    def _init_dataloader(self) -> None:
        super()._init_dataloader()
        options = self.pods_cero.allocator
        if not options.enable:
            return
        settings = allocator_settings(self.config, options, len(self.train_dataset))
        # verl saves and restores whatever loader stands here.
        self.train_dataloader = position_loader(self.train_dataloader)
        size = "gen_batch_size" if self.config.data.get("gen_batch_size") else "train_batch_size"
        from_loader = options.candidates == "loader"
        candidates = PositionStream(self.train_dataloader, f"data.{size}") if from_loader else None
        with option_names(ALLOCATOR_NAMES):
            allocator = create_allocator(options.name, settings)
        if options.warm_start is not None:
            assert isinstance(allocator, BudgetedAllocator), "the options refuse others"
            allocator.warm_start(*read_outcomes(options.warm_start, settings.num_prompts))
        steps = Steps(allocator, settings, candidates)
        header = checkpoint.state_header(options, settings, self.train_dataset, self.config.data.prompt_key)
        self._prompts = AllocatedPrompts(steps, options, self.pods_cero.zero_variance_tolerance, header)
        if options.pilot is not None:
            check_pilot(self.config, options, settings)  # the rows may be known only now
            self._pilot = Pilot(options.pilot, self._prompts, settings)
        # Steps and the learning-rate schedule follow the allocator. Epochs do not count: one
        # never ends, or verl would end the run by the size of the data set.
        self.total_training_steps = run_steps(self.config, options, settings)
        self.steps_per_epoch = self.total_training_steps + 1
        with open_dict(self.config):
            for optimizer in (self.config.actor_rollout_ref.actor.optim, self.config.critic.optim):
                optimizer.total_training_steps = self.total_training_steps
        # Long before verl loads its own part, which needs engines: a state of another run is refused here.
        if step := checkpoint.resumed_step(self.config):
            checkpoint.load(checkpoint.step_folder(self.config, step), header)

    @overrides
    def _load_checkpoint(self) -> None:
        super()._load_checkpoint()
        if self._prompts is not None and self.global_steps > 0:
            folder = checkpoint.step_folder(self.config, self.global_steps)
            header = self._prompts.header
            self._prompts.load_state_dict(checkpoint.load(folder, header), checkpoint.added(folder, header))

    @overrides
    def fit(self, agent_loop_manager: Any) -> None:
        """Train, and end in an error where the last steps taught nothing."""
        with Watch(
            self._actors(agent_loop_manager), self.actor_rollout_wg.workers, self._doing
        ).running() as self._watch:
            super().fit(agent_loop_manager)
        self._failures.check_end()

    def _actors(self, agent_loop_manager: Any) -> dict[str, list[Any]]:
        """Return the actors that a step needs, by what they are."""
        return {
            "a rank that trains": self.actor_rollout_wg.workers,
            "an inference server": self.llm_server_manager.server_handles,
            "an agent-loop worker": getattr(agent_loop_manager, "agent_loop_workers", []),  # one of the user's own
            "a reward worker": self.reward_loop_manager.reward_loop_workers,
        }

    def _doing(self) -> str:
        """Say what the step in progress waits for."""
        now = self._now
        if now.balanced:
            return "the policy's update, or the weights' way to the engine"
        there = len(self.replay_buffer.partitions[rows.PARTITION])
        return f"{now.submitted_rollouts} rollouts, of which {there} rows are there"

    @overrides
    def on_train_begin(self) -> None:
        """Plan the first step."""
        super().on_train_begin()
        self._plan(self.global_steps)

    def _plan(self, step: int) -> None:
        if self._prompts is not None:
            with marked_timer("cero_plan", self.timing_raw):
                self.total_training_steps = self._prompts.plan(step, self.total_training_steps)

    # ------------------------------------------------------------------ one training step

    @overrides
    def step(self, metrics: dict[str, Any], timing_raw: dict[str, float]) -> KVBatchMeta:
        """Run verl's step, with the filter and the allocator in it."""
        self._now = Step()
        self._watch.step_begins()
        batch = super().step(metrics, timing_raw)
        if not self._now.balanced:
            raise PluginError(
                "verl ran a training step without calling _balance_batch: no rollout was filtered, and no outcome "
                "was learnt from. "
                "Fix: use a verl version that `verl-pods-cero doctor` accepts."
            )
        return batch

    @overrides
    def _next_train_batch(self, num_prompts: int | None = None) -> TensorDict:
        if self._prompts is not None:
            planned = self._prompts.next()
            part = planned if self._pilot is None else self._pilot.first(planned)
            batch, rollouts = prompt_batch(self.train_dataset, part, self.global_steps), planned.total
        else:
            batch = super()._next_train_batch(num_prompts)
            rollouts = len(batch) * self.config.actor_rollout_ref.rollout.n
        self._now.submitted.extend(list(batch["uid"]))
        self._now.submitted_rollouts += rollouts
        return batch

    @overrides
    def on_sample_begin(self) -> None:
        """Submit the second part of a step that has two."""
        super().on_sample_begin()
        if self._pilot is None:
            return
        with marked_timer("cero_pilot", self.timing_raw):
            uids = self._now.submitted
            batch = rows.settled(uids, self.pods_cero.poll_interval_s)
            rollouts = None
            if len(batch):
                rollouts = rows.read_rollouts(batch, self._keys, uids)
                rollouts = rollouts.only(rollouts.usable([REWARD, *self._required.values()]))
            places, more = self._pilot.rest(rollouts)
            if len(more):
                these = [uids[place] for place in places], self._pilot.already(places)
                batch = prompt_batch(self.train_dataset, more, self.global_steps, these)
                self._submit_batch_to_rollout(batch)

    @overrides
    def _step_once(self, metrics: dict[str, Any], timing_raw: dict[str, float], sample_batch_size: int) -> KVBatchMeta:
        if self._prompts is not None:
            sample_batch_size = len(self._now.submitted)
        try:
            batch = super()._step_once(metrics, timing_raw, sample_batch_size)
        except NothingKept:
            logger.warning("step %d kept none of its rollouts and makes no update; the run goes on", self.global_steps)
            batch = rows.batch_of(self._now.dropped or self._now.submitted)
        except RuntimeError as error:
            if not self._all_failed():
                raise
            return self._after_failures(error)
        return batch

    def _all_failed(self) -> bool:
        """Whether verl's buffer refused the step because not one rollout came back."""
        buffer, partition = self.replay_buffer, rows.PARTITION
        left = buffer.pending_keys[partition] | buffer.running_keys[partition] | set(buffer.partitions[partition])
        return not (self._now.balanced or left) and bool(buffer.failure_keys[partition])

    def _after_failures(self, error: RuntimeError) -> KVBatchMeta:
        """Do what verl's step would have done after sampling: a step of few prompts may be unlucky once."""
        try:
            self._failures.count(self.global_steps, self._now)
        except PluginError as ended:
            raise ended from error
        failed = "every rollout of step %d failed: no update; the run goes on until %d such steps follow each other"
        logger.warning(failed, self.global_steps, FAILED_STEPS)
        self._now.balanced = True
        self.on_sample_end()
        self._observe(None)
        buffer, partition = self.replay_buffer, rows.PARTITION
        return rows.batch_of(sorted(buffer.failure_keys[partition] | buffer.finished_keys[partition]))

    @overrides
    def _balance_batch(self, batch: KVBatchMeta, metrics: dict[str, Any], **kwargs: Any) -> KVBatchMeta:
        now = self._now
        now.balanced = True
        if not len(batch):
            self._observe(None)
        elif self._filter is not None or self._prompts is not None:
            batch = self._choose(batch)
        now.rows = len(batch)
        if not now.rows:
            raise NothingKept
        batch = super()._balance_batch(batch, metrics, **kwargs)
        now.rows_padded = len(batch) - now.rows
        return batch

    def _choose(self, batch: KVBatchMeta) -> KVBatchMeta:
        """Learn from the step's rollouts, and return the batch of those to update on."""
        now = self._now
        now.keys = list(batch.keys)
        with marked_timer("pods_select", self.timing_raw):
            rollouts = rows.read_rollouts(batch, self._keys, now.submitted)
            usable = scored(rollouts, self._required)
            now.rollouts, now.returned, now.unscored = rollouts.only(usable), len(usable), int((~usable).sum())
            batch, now.dropped = rows.split(batch, rollouts.index, usable)
        self._failures.count(self.global_steps, now)
        self._observe(now.rollouts)
        if not len(batch):
            return batch
        with marked_timer("pods_select", self.timing_raw):
            now.kept = (self._filter or whole_groups)(now.rollouts, self.global_steps)
            batch, dropped = rows.split(batch, now.rollouts.index, now.kept.sessions)
            now.dropped += dropped
            if len(batch) and not self.config.trainer.get("rollout_data_dir"):  # they are dumped first
                rows.clear(now.dropped)
        if self._filter is not None and now.kept.degenerate.all():
            alike = "every prompt of step %d has rollouts of one value: nothing to learn from"
            logger.warning(alike, self.global_steps)
        return batch

    def _observe(self, rollouts: Rollouts | None) -> None:
        if self._prompts is not None:
            with marked_timer("cero_update", self.timing_raw):
                self._prompts.observe(rollouts)

    # ------------------------------------------------------------------ the update, over the kept rows

    @overrides
    def _get_required_batch_multiple(self, dp_size: int) -> int:
        # verl asks once a step, before its passes, and alone knows the ranks: the updates are of this shape
        shape = update_shape(
            self.config,
            use_critic=self.use_critic,
            use_reference=self.use_reference_policy,
            actor_trains=self.config.trainer.critic_warmup <= self.global_steps,
        )
        self._now.shape = shape.fitted(self._now.rows, dp_size)
        return self._now.shape.multiple(dp_size)

    @overrides
    def _compute_advantage(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        batch = super()._compute_advantage(batch, metrics)
        if self._filter is not None and self._filter.options.advantage_stats == "full_group":
            assert self._now.rollouts is not None, "the filter read them"
            advantages = row_advantages(batch.keys, self._now.rollouts, self.config.algorithm)
            rows.spread_over_responses(batch, advantages, ("advantages", "returns"))
        return batch

    @overrides
    def _update_critic(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        with self._mini_batch_of("critic", len(batch) // self._now.shape.critic_updates):
            return super()._update_critic(batch, metrics)

    @overrides
    def _update_actor(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        with self._mini_batch_of("actor_rollout_ref.actor", len(batch) // self._now.shape.actor_updates):
            return super()._update_actor(batch, metrics)

    @contextmanager
    def _mini_batch_of(self, section: str, size: int) -> Iterator[None]:
        """Make `ppo_mini_batch_size * rollout.n`, verl's rows per mini-batch, equal `size`."""
        part, rollout = OmegaConf.select(self.config, section), self.config.actor_rollout_ref.rollout
        before = part.ppo_mini_batch_size, rollout.n
        part.ppo_mini_batch_size, rollout.n = size, 1
        try:
            yield
        finally:
            part.ppo_mini_batch_size, rollout.n = before

    # ------------------------------------------------------------------ after the update

    @overrides
    def _save_checkpoint(self) -> None:
        if self._prompts is not None:
            # Before verl's own files: its tracker, written last, then vouches for ours too.
            folder = checkpoint.step_folder(self.config, self.global_steps)
            checkpoint.save(folder, self._prompts.header, self._prompts.state_dict())
            if self.pods_cero.allocator.dump_prompts:
                checkpoint.dump_prompts(folder, self._prompts.allocator)
        super()._save_checkpoint()

    @overrides
    def on_step_end(self) -> None:
        """Plan the next step, while verl can still be told that it is the last."""
        super().on_step_end()
        self._plan(self.global_steps + 1)

    @overrides
    def _compute_metrics(
        self,
        batch: KVBatchMeta,
        metrics: dict[str, Any],
        timing_raw: dict[str, float],
        global_steps: int,
        epoch: int,
    ) -> None:
        now, plain = self._now, not self.config.algorithm.use_kl_in_reward
        if now.rows:
            super()._compute_metrics(batch, metrics, timing_raw, global_steps=global_steps, epoch=epoch)
        else:
            metrics.update({"training/global_step": global_steps, "training/epoch": epoch})
            metrics.update({f"timing_s/{name}": seconds for name, seconds in timing_raw.items()})
        if self._prompts is not None:
            metrics.update(self._prompts.metrics())
        if self._pilot is not None:
            metrics["cero/pilot_stopped_fraction"] = self._pilot.stopped_fraction
        if self._filter is not None:
            metrics.update(filter_metrics(now))
            if now.rollouts is not None and now.kept is not None:
                n_gpus = self._get_n_gpus_for_throughput()
                metrics.update(dashboard_metrics(now.rollouts, timing_raw, n_gpus, rewards_are_scores=plain))
        elif self._prompts is not None:
            metrics.update(unfiltered_metrics(now))

    @overrides
    def _log_rollout_data(self, batch: KVBatchMeta, timing_raw: dict[str, float], rollout_data_dir: str) -> None:
        now = self._now
        if now.keys:
            batch = rows.batch_of(now.keys)
        if now.keys or now.rows:  # not after a step of which not one rollout came back
            super()._log_rollout_data(batch, timing_raw, rollout_data_dir)
        if now.rows:  # of a skipped update verl clears them itself
            rows.clear(now.dropped)

    @overrides
    def _dump_generations(self, *args: Any, **kwargs: Any) -> None:
        if self._now.keys and kwargs["dump_path"] == self.config.trainer.get("rollout_data_dir"):
            dropped = set(self._now.dropped)
            columns = kwargs["reward_extra_infos_dict"]
            columns["kept"] = [key not in dropped for key in columns["uid"]]
        super()._dump_generations(*args, **kwargs)

    @overrides
    def on_train_end(self) -> None:
        """Validate and save where the budget ended before verl could see it coming."""
        super().on_train_end()
        if self._prompts is None or not self._prompts.ended_early:
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


class PodsCeroTrainerSync(PodsCeroMixin, PPOTrainerSync):
    """`trainer.v1.trainer_mode=pods_cero_sync`: verl's synchronous trainer with our hooks."""


TRAINERS = {"pods_cero_sync": PodsCeroTrainerSync}
