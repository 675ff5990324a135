"""The command that plays allocators and filters without a model: its options and its run."""

from __future__ import annotations

import argparse
from pathlib import Path

from verl_pods_cero.errors import OptionError, nearest, option_names
from verl_pods_cero.tools.command_line import exit_status, require

WORLDS = ("synthetic",)
ALLOCATORS = (
    "uniform,random_matched,knapsack,greso,cero,cero/epoch,greedy_marginal,thompson,prioritized,"
    "oracle,greedy_oracle,offline_optimum"
)
SEEDS = 10
SMOOTHING = 7.0
PROMPTS = 8960

# (batch, budget) unless given. The synthetic world's are those of arXiv 2610.09679: a budget 3 % below what the
# batches hold. A recorded world gets what plain GRPO would spend.
DEFAULTS: dict[str, tuple[int, int | None]] = {"synthetic": (66, 256_000), "recorded": (128, None)}

# What this command calls the fields of the core.
_FLAGS = {
    **{name: "--" + name.replace("_", "-") for name in ("n", "n_max", "unit", "budget", "rho", "lam", "keep")},
    "name": "--allocators",
    "batch_prompts": "--batch",
    "num_prompts": "the number of prompts",
    "rounds": "--steps",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Play allocators and filters without a model, on recorded or made-up pass rates, and compare them."""
    add = parser.add_argument
    add("--recorded", type=Path, metavar="FILE", help='JSON {"prompt": [pass rate at each visit, ...], ...}')
    add("--world", metavar="NAME", help="a made-up world: synthetic (the default without --recorded)")
    add(
        "--allocators",
        default=ALLOCATORS,
        metavar="A,...",
        help="name, name/epoch, name@setting=value or package.module:Class (%(default)s)",
    )
    add("--seeds", type=int, default=SEEDS, metavar="N", help="runs of each allocator (%(default)s)")
    add("--steps", type=int, default=500, metavar="K", help="training steps of a plain run (%(default)s)")
    add("--batch", type=int, metavar="P", help="prompts in a training batch (recorded 128, synthetic 66)")
    add("--n", type=int, default=8, metavar="N", help="rollouts of a prompt in a plain run (%(default)s)")
    add("--n-max", type=int, metavar="N", help="most rollouts of a prompt in a round (n; the knapsack: 2 n)")
    add("--unit", type=int, metavar="G", help="rollouts handed out together (4 where it divides n)")
    add("--budget", type=int, metavar="B", help="rollouts of the run (steps * batch * n; synthetic world: 256000)")
    add("--rho", type=float, metavar="R", help="what is kept of older evidence, 0 to 1 (1; thompson: 0.5)")
    add("--lam", type=float, default=1.0, help="how soon a prompt counts as used up (%(default)s)")
    add("--keep", metavar="M,...", help="rollouts that PODS keeps of a group (n/2,n/4), or none")
    add("--prompts", type=int, metavar="M", help=f"size of the synthetic world ({PROMPTS})")
    add("--smoothing", type=float, metavar="V", help=f"of recorded rates, in visits; 0: as recorded ({SMOOTHING:g})")
    add("--target", type=int, metavar="G", help="mixed groups to count rollouts up to (half of what uniform reaches)")
    add("--jobs", type=int, metavar="J", help="processes (one a core)")
    add("--out", type=Path, metavar="FOLDER", help="for tables, figures and logs (simulation-<world>)")
    add("--overwrite", action="store_true", help="replace a folder that this command wrote")


def run(args: argparse.Namespace) -> int:
    """Run the command; return its exit status: 0, 1 for a failure, 2 for bad use, 130 if interrupted."""
    return exit_status(lambda: _run(args))


@option_names(_FLAGS)
def _run(args: argparse.Namespace) -> None:
    require("simulate", ("matplotlib", "rich"))
    from verl_pods_cero.tools.simulation.study import simulate

    simulate(args)


def world_name(args: argparse.Namespace) -> str:
    """Return recorded or synthetic.

    Raises:
        OptionError: both, or an unknown world.
    """
    if args.recorded is not None:
        if args.world is not None:
            raise OptionError("--world", "excludes --recorded", args.world, "give one of them")
        return "recorded"
    if args.world not in (None, *WORLDS):
        raise OptionError("--world", "names no world", args.world, nearest(args.world, WORLDS))
    return "synthetic"
