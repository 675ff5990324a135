"""The command that plays allocators and filters without a model: its options and its run."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from verl_pods_cero.errors import OptionError, nearest, option_names
from verl_pods_cero.tools.command_line import exit_status, require

WORLDS = ("synthetic", "learner")
ALLOCATORS = (
    "uniform,random_matched,knapsack,greso,cero,cero/epoch,greedy_marginal,thompson,prioritized,"
    "oracle,greedy_oracle,offline_optimum"
)
LEARNER_ALLOCATORS = "uniform,random_matched,knapsack,greso,cero,thompson,prioritized,oracle,greedy_oracle"
SMOOTHING = 7.0


@dataclass(frozen=True)
class Defaults:
    """Sizes of a world that are not given; what is None follows from the others."""

    batch: int
    steps: int = 500
    seeds: int = 10
    prompts: int | None = None
    budget: int | None = None
    allocators: str = ALLOCATORS


# The synthetic world's are those of arXiv 2610.09679: a budget 3 % below what the batches hold. The others get what
# plain GRPO would spend.
DEFAULTS = {
    "synthetic": Defaults(batch=66, prompts=8960, budget=256_000),
    "recorded": Defaults(batch=128),
    "learner": Defaults(batch=32, steps=240, seeds=20, prompts=512, allocators=LEARNER_ALLOCATORS),
}

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
    add("--world", metavar="NAME", help="a made-up world: synthetic (the default without --recorded) or learner")
    add(
        "--allocators",
        metavar="A,...",
        help=f"name, name/epoch, name@setting=value or package.module:Class ({ALLOCATORS}; learner: less)",
    )
    add("--seeds", type=int, metavar="N", help="runs of each allocator (10, learner 20)")
    add("--steps", type=int, metavar="K", help="training steps of a plain run (500, learner 240)")
    add("--batch", type=int, metavar="P", help="prompts in a training batch (recorded 128, synthetic 66, learner 32)")
    add("--n", type=int, default=8, metavar="N", help="rollouts of a prompt in a plain run (%(default)s)")
    add("--n-max", type=int, metavar="N", help="most rollouts of a prompt in a round (n; the knapsack: 2 n)")
    add("--unit", type=int, metavar="G", help="rollouts handed out together (4 where it divides n)")
    add("--budget", type=int, metavar="B", help="rollouts of the run (steps * batch * n; synthetic world: 256000)")
    add("--rho", type=float, metavar="R", help="what is kept of older evidence, 0 to 1 (1; thompson: 0.5)")
    add("--lam", type=float, default=1.0, help="how soon a prompt counts as used up (%(default)s)")
    add("--keep", metavar="M,...", help="rollouts that PODS keeps of a group (n/2,n/4), or none")
    add("--offered", type=int, metavar="K", help="prompts that a loader brings at a time (all are to choose from)")
    add("--prompts", type=int, metavar="M", help="size of a made-up world (synthetic 8960, learner 512)")
    add("--update", metavar="U", help="how the learner takes a step: sgd or adam (sgd)")
    add("--noise", type=float, metavar="X", help="in the gradient of the learner's groups, for adam (0)")
    add("--difficulty", type=float, metavar="D", help="mean of the learner's prompts, in logits (2)")
    add("--transfer", type=float, metavar="T", help="share that others have of what the learner's prompt needs (1)")
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
    """Return recorded, synthetic or learner.

    Raises:
        OptionError: both, or an unknown world.
    """
    if args.recorded is not None:
        if args.world is not None:
            raise OptionError("--world", "excludes --recorded", args.world, "give one of them")
        return "recorded"
    if args.world not in (None, *WORLDS):
        raise OptionError("--world", "names no world", args.world, nearest(args.world, WORLDS))
    return args.world or "synthetic"


def complete(args: argparse.Namespace, kind: str) -> None:
    """Fill in what a world has for options that are not given.

    Raises:
        OptionError: an option that belongs to another world.
    """
    defaults = DEFAULTS[kind]
    only = {"smoothing": "recorded", **dict.fromkeys(("update", "noise", "difficulty", "transfer"), "learner")}
    for name, world in only.items():
        if getattr(args, name) is not None and kind != world:
            place = "--recorded" if world == "recorded" else f"--world {world}"
            raise OptionError(f"--{name}", f"belongs to {place}", getattr(args, name), "leave it out")
    if kind == "recorded" and args.prompts is not None:
        raise OptionError("--prompts", "belongs to made-up worlds", args.prompts, "leave it out")
    as_published = args.steps in (None, defaults.steps) and (args.batch, args.prompts, args.n) == (None, None, 8)
    if args.budget is None and as_published:
        args.budget = defaults.budget
    for name in ("batch", "steps", "seeds", "prompts", "allocators"):
        if getattr(args, name) is None:
            setattr(args, name, getattr(defaults, name))
