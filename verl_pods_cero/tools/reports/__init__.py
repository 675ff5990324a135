"""Tables and figures of runs, from the logs that they leave: `verl-pods-cero report RUN [RUN ...]`.

Importing this package imports neither matplotlib nor rich.
"""

from verl_pods_cero.tools.reports.command import add_arguments, run

__all__ = ["add_arguments", "run"]
