"""Allocators on a CPU at equal rollouts, over seeds: who chooses the prompts of a step, and what accuracy it makes.

    make reproduce
    python -m benchmarks.allocation [steep | own] [--seeds 8 | 4:8] [--arms uniform,prioritized]

Every run is the stock command on the model and data of `cero_cpu` (64 sums, 128 rollouts per step), once on levels of
which the two easier are solved and the two harder hopeless at first, at a slow learning rate (`steep`), and once on the
recipe's own (`own`). All arms spend the same budget. A validation samples each of 128 sums that are not trained on four
times. A finished run leaves a short log in `--results` and is never made again. Rollouts are compared and not seconds,
so several of these commands may run side by side, each with seeds of its own.
"""

from __future__ import annotations

import sys

from benchmarks.experiment import Arm, Experiment, make, parser

ROLLOUTS, SMALL, LARGE = 128, 8, 16

# The same file four times: four samples of a prompt as four prompts, which spares verl's bootstrap of best-of-n.
VALIDATION = ",".join(["${quickstart.folder}/validation.parquet"] * 4)

NAME = "pods_cero.allocator.name="
PRIORITIZED = f"{NAME}prioritized"

# The first is the baseline. `rho` of cero and its control is the recipe's; MoPPS publishes 0.5.
ARMS = {
    "uniform": Arm(SMALL, ROLLOUTS // SMALL, [f"{NAME}uniform", "pods_cero.allocator.candidates=loader"]),
    "random_matched": Arm(SMALL, ROLLOUTS // SMALL, [f"{NAME}random_matched"]),
    "cero": Arm(SMALL, ROLLOUTS // SMALL, []),
    "greso": Arm(SMALL, ROLLOUTS // SMALL, [f"{NAME}greso"]),
    "thompson": Arm(SMALL, ROLLOUTS // SMALL, [f"{NAME}thompson", "pods_cero.allocator.rho=0.5"]),
    "prioritized": Arm(SMALL, ROLLOUTS // SMALL, [PRIORITIZED]),
    "prioritized_pods": Arm(
        LARGE,
        ROLLOUTS // LARGE,
        [
            *(PRIORITIZED, "actor_rollout_ref.actor.ppo_mini_batch_size=2"),
            *("pods_cero.filter.enable=true", f"pods_cero.filter.keep={LARGE // 4}"),
        ],
    ),
}

# Levels of the sums, learning rate, steps, and steps between validations.
WORLDS = {
    "steep": (
        [
            "quickstart.give_up=[0.0005,0.001,0.95,0.999]",
            "quickstart.folder='${oc.env:VERL_PODS_CERO_CACHE,${oc.env:HOME}/.cache/verl_pods_cero}/quickstart/"
            "steep-${quickstart.seed}'",
            "actor_rollout_ref.actor.optim.lr=1e-5",
        ],
        45,
        9,
    ),
    "own": ([], 30, 6),
}


def experiment(world: str) -> Experiment:
    """Return the arms in one of the two worlds."""
    base, steps, every = WORLDS[world]
    sizes = (SMALL, LARGE)
    return Experiment(
        [*base, f"data.val_files=[{VALIDATION}]"], ARMS, dict.fromkeys(sizes, steps), dict.fromkeys(sizes, every)
    )


def main() -> int:
    """Make what is missing of both worlds, or of one."""
    options_of = parser(__doc__ or "", "allocation", ARMS, default_seeds="8")
    options_of.add_argument("world", nargs="?", choices=[*WORLDS], help="one of them (default: both)")
    options = options_of.parse_args()
    results, outputs = options.results, options.outputs
    status = 0
    for world in [options.world] if options.world else WORLDS:
        options.results, options.outputs = results / world, outputs / world
        status = make(experiment(world), options, options_of) or status
    return status


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("interrupted; what is finished is kept")
