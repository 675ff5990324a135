"""Allocators and filters played without a model: `verl-pods-cero simulate`.

Importing this package plays nothing and imports no plotting library.
"""

from verl_pods_cero.tools.simulation.command import add_arguments, run

__all__ = ["add_arguments", "run"]
