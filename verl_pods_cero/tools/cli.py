"""The `verl-pods-cero` command."""

from __future__ import annotations

import argparse
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run a subcommand and return its exit status.

    Args:
        argv: arguments without the program's name; the process's own by default.
    """
    import verl_pods_cero
    from verl_pods_cero.tools import datasets, dry_run, reports, simulation

    parser = argparse.ArgumentParser(prog="verl-pods-cero", description=verl_pods_cero.__doc__)
    parser.add_argument("--version", action="version", version=verl_pods_cero.__version__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    commands.add_parser("doctor", help="print what verl, vLLM and Hydra find of the plugin, and what is wrong")
    data = commands.add_parser("data", help="write a data set as verl's parquet rows")
    datasets.add_arguments(data)
    dry = commands.add_parser("dry-run", help="what a training command would do, in numbers")
    dry_run.add_arguments(dry)
    report = commands.add_parser("report", help="tables and one HTML page of runs, from their logs")
    reports.add_arguments(report)
    simulate = commands.add_parser("simulate", help="play allocators and filters without a model")
    simulation.add_arguments(simulate)
    args = parser.parse_args(argv)
    if args.command == "doctor":
        from verl_pods_cero.tools import doctor

        return doctor.run()
    runs = {"data": datasets.run, "dry-run": dry_run.run, "report": reports.run, "simulate": simulation.run}
    return runs[args.command](args)
