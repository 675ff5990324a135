"""The command that says what a training command would do: its arguments and its run."""

from __future__ import annotations

import argparse

from verl_pods_cero.errors import PluginError, nearest
from verl_pods_cero.tools.command_line import BAD_USE, exit_status, fail, require


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Print what a training command would do in numbers, next to plain GRPO, and start nothing."""
    # Hydra's own parser reads them, so that they mean what they mean to verl: nothing here is an option of ours,
    # not even what begins with a dash.
    parser.prefix_chars = ""
    parser.usage = f"{parser.prog} --config-name=RECIPE [overrides]"
    parser.add_argument(
        "arguments",
        nargs=argparse.REMAINDER,
        metavar="arguments",
        help="what `python -m verl.trainer.main_ppo` would be given; a sweep prints its tables for each job",
    )
    parser.set_defaults(usage=parser.format_help)


def run(args: argparse.Namespace) -> int:
    """Run the command; return its exit status: 0, 1 for a failure or 2 for bad use, with the error on stderr."""
    if not args.arguments or {"-h", "--help"} & set(args.arguments):
        print(args.usage(), end="")
        return 0 if args.arguments else 2
    return exit_status(lambda: _run(args.arguments))


def _run(arguments: list[str]) -> int:
    require("dry-run", ("verl",), "pip install 'verl>=0.9.1,<0.10'")
    require("dry-run", ("rich",))
    from hydra.errors import HydraException, MissingConfigException
    from omegaconf.errors import OmegaConfBaseException

    from verl_pods_cero.tools.dry_run.checks import check
    from verl_pods_cero.tools.dry_run.composition import compose_jobs
    from verl_pods_cero.tools.dry_run.tables import sections
    from verl_pods_cero.tools.reports.terminal import show

    try:
        recipe, jobs = compose_jobs(arguments)
    except MissingConfigException as error:
        file = str(error.missing_cfg_file)
        fix = nearest(file.rpartition("/")[2], error.options or ())
        return fail(f"{file} is no configuration. Fix: {fix}." if error.options else one_line(error), BAD_USE)
    except (HydraException, OmegaConfBaseException) as error:
        return fail(one_line(error), BAD_USE)
    status = 0
    for number, job in enumerate(jobs):
        name = f"{recipe}, job {number}: {' '.join(job.overrides)}" if len(jobs) > 1 else recipe
        try:
            of_run = sections(name, check(job.config))
        except PluginError:  # what is installed is wrong, and no option
            raise
        # whatever verl's checks raise, and they raise more than one kind, is an option that is wrong
        except (ValueError, AssertionError, TypeError, KeyError, HydraException, OmegaConfBaseException) as error:
            status = fail(f"{name}: {one_line(error)}" if len(jobs) > 1 else one_line(error), BAD_USE)
            continue
        show(of_run)
    return status


def one_line(error: Exception) -> str:
    r"""Write an error, and the cause where it says nothing itself, on one line.

    >>> one_line(ValueError("Could not override 'a'.\nTo append use +a=1"))
    "Could not override 'a'. To append use +a=1"
    """
    text = str(error) or str(error.__cause__ or type(error).__name__)
    return " ".join(text.split())
