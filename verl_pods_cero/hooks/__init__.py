"""The only modules that import verl: trainers, agent loop, and what they read and write."""

from __future__ import annotations

from verl_pods_cero.errors import PluginError

# What the hooks override or call, by module. `doctor` and the registration check them by name, so that
# a verl that renamed one is refused at the start and not in the middle of a run.
NEEDED = {
    "verl.trainer.ppo.v1.trainer_base": ("register_trainer", "get_trainer_cls", "tq"),
    "verl.trainer.ppo.v1.trainer_base:PPOTrainer": (
        "step",
        "_step_once",
        "_build_replay_buffer",
        "_init_dataloader",
        "_next_train_batch",
        "_submit_batch_to_rollout",
        "on_sample_end",
        "_balance_batch",
        "_get_required_batch_multiple",
        "_compute_advantage",
        "_update_actor",
        "_update_critic",
        "_compute_metrics",
        "_log_rollout_data",
        "_dump_generations",
        "_save_checkpoint",
        "_load_checkpoint",
    ),
    "verl.trainer.ppo.v1.trainer_sync": ("PPOTrainerSync",),
    "verl.trainer.ppo.v1.agent_loop_tq": (
        "AgentLoopManagerTQ",
        "AgentLoopWorkerTQ",
        "list_of_dict_to_tensordict",
        "tq",
    ),
    "verl.experimental.agent_loop.agent_loop": ("DictConfigWrap", "_agent_loop_registry"),
    "verl.experimental.agent_loop.agent_loop:AgentLoopWorker": ("_compute_score", "_run_agent_loop"),
    "verl.experimental.agent_loop.single_turn_agent_loop": ("SingleTurnAgentLoop",),
    "verl.workers.rollout.llm_server:LLMServerClient": ("_acquire_server", "_release_server", "generate"),
    "verl.workers.rollout.router:GlobalRequestLoadBalancer": ("get_all_servers",),
    "verl.trainer.ppo.metric_utils": (
        "compute_data_metrics",
        "compute_throughout_metrics",
        "compute_timing_metrics",
    ),
    "verl.trainer.ppo.ray_trainer": ("compute_advantage",),
    "verl.utils.checkpoint.checkpoint_manager": ("find_latest_ckpt_path",),
    "transfer_queue": ("KVBatchMeta", "kv_batch_get", "kv_batch_put", "kv_clear"),
}


def missing_names() -> list[str]:
    """Return the names of `NEEDED` that the installed verl and TransferQueue lack."""
    from importlib import import_module

    missing = []
    for place, names in NEEDED.items():
        module_name, _, attribute = place.partition(":")
        try:
            owner = import_module(module_name)
            owner = getattr(owner, attribute) if attribute else owner
        except (ImportError, AttributeError):
            missing.append(place)
            continue
        missing.extend(f"{place}.{name}" for name in names if not hasattr(owner, name))
    return missing


def register() -> None:
    """Register our trainers with verl; where that cannot be, register what says why.

    A stock run in the same process must not suffer from a broken plugin, and a run that asked for us
    must not start without us. So a failure is kept, and raised by the trainer's constructor.
    """
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer, register_trainer

    from verl_pods_cero.options.schema import BASE_MODES

    missing = missing_names()
    try:
        if missing:
            raise PluginError(
                f"the installed verl lacks {', '.join(missing)}, which verl-pods-cero needs. "
                "Fix: pip install 'verl>=0.9.1,<0.10'."
            )
        from verl_pods_cero.hooks.trainer import PodsCeroTrainerSync

        register_trainer("pods_cero_sync")(PodsCeroTrainerSync)
    except Exception as failure:
        reason = failure

        class Unavailable(PPOTrainer):
            def __new__(cls, *_args: object, **_kwargs: object) -> Unavailable:
                # Before Python finds that verl's abstract methods are missing.
                raise PluginError(f"verl-pods-cero cannot train: {reason}") from reason

        for name in BASE_MODES:
            register_trainer(name)(Unavailable)
