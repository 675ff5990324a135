"""Data sets of the published experiments as verl rows: `verl-pods-cero data <name>`.

Importing this package reads no data and imports no data library.
"""

from verl_pods_cero.tools.datasets.command import add_arguments, run

__all__ = ["add_arguments", "run"]
