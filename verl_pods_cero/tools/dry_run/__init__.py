"""What a training command would do, in numbers: `verl-pods-cero dry-run --config-name=<recipe> [overrides]`.

It takes the arguments of `python -m verl.trainer.main_ppo` and starts nothing. Importing this package imports
neither Hydra nor verl.
"""

from verl_pods_cero.tools.dry_run.command import add_arguments, run

__all__ = ["add_arguments", "run"]
