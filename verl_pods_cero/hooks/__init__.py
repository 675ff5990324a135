"""PODS and CERO inside verl: `trainer` has every override of verl's trainer, in the order of verl's own step."""

from __future__ import annotations

from verl_pods_cero.errors import PluginError
from verl_pods_cero.supported_verl import lacking


def register() -> None:
    """Register our trainers with verl; where that cannot be, register what says why.

    A stock run in the same process must not suffer from a broken plugin, and a run that asked for us
    must not start without us. So a failure is kept, and raised by the trainer's constructor.
    """
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer, register_trainer

    from verl_pods_cero.hooks.contract import missing_names
    from verl_pods_cero.options.schema import BASE_MODES

    try:
        if missing := missing_names():
            raise lacking(missing)
        from verl_pods_cero.hooks.trainer import TRAINERS

        for name in BASE_MODES:
            register_trainer(name)(TRAINERS[name])
    except Exception as failure:
        reason = failure

        class Unavailable(PPOTrainer):
            def __new__(cls, *_args: object, **_kwargs: object) -> Unavailable:
                # Before Python finds that verl's abstract methods are missing.
                raise PluginError(f"verl-pods-cero cannot train: {reason}") from reason

        for name in BASE_MODES:
            register_trainer(name)(Unavailable)
