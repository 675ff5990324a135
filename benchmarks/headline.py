"""The headline on a CPU: GRPO, PODS, CERO and their controls, at equal rollouts and equal time, over seeds.

    make reproduce
    python -m benchmarks.headline [--seeds 5] [--arms grpo,pods] [--epochs 4 --results docs/results/headline_epochs4]

Every run is the stock command on the model and data of `cero_cpu`. A finished run leaves a short log in `--results` (a
line a step, the metrics below, four digits) and is never made again, so the whole can be stopped and go on later.
`verl-pods-cero report` reads these logs. One run at a time: two would share the cores, and seconds are compared.
"""

from __future__ import annotations

import sys

from benchmarks.experiment import Arm, Experiment, make, parser, positive

PROMPTS, SMALL, LARGE = 8, 4, 16

# Training steps, and steps between validations, by rollouts per prompt. More rollouts make a step longer, so the
# steps are fewer: runs last about as long, and are compared at what the shortest had spent.
STEPS = {SMALL: 60, LARGE: 27}
VALIDATED_EVERY = {SMALL: 6, LARGE: 3}

BASE = ["actor_rollout_ref.actor.ppo_mini_batch_size=2", "actor_rollout_ref.actor.optim.lr=1e-4"]
PLAIN = ["pods_cero.allocator.enable=false"]
FILTER = ["pods_cero.filter.enable=true", f"pods_cero.filter.keep={SMALL}"]

# The first is the baseline.
ARMS = {
    "grpo": Arm(SMALL, PROMPTS, PLAIN),
    "grpo_all": Arm(LARGE, PROMPTS, PLAIN),
    "pods": Arm(LARGE, PROMPTS, [*PLAIN, *FILTER]),
    "cero": Arm(SMALL, PROMPTS, []),
    "random_matched": Arm(SMALL, PROMPTS, ["pods_cero.allocator.name=random_matched"]),
    "pods_cero": Arm(LARGE, PROMPTS, FILTER),
    "pods_random": Arm(LARGE, PROMPTS, [*PLAIN, *FILTER, "pods_cero.filter.rule=random"]),
    "pods_max_reward": Arm(LARGE, PROMPTS, [*PLAIN, *FILTER, "pods_cero.filter.rule=max_reward"]),
    "pods_percentile": Arm(LARGE, PROMPTS, [*PLAIN, *FILTER, "pods_cero.filter.rule=percentile"]),
}


def experiment(epochs: int = 1) -> Experiment:
    """Return the arms; more epochs make a run's updates longer, and its generation no longer."""
    base = [*BASE, f"actor_rollout_ref.actor.ppo_epochs={epochs}"]
    return Experiment(base, ARMS, STEPS, VALIDATED_EVERY)


def main() -> int:
    """Make what is missing."""
    options_of = parser(__doc__ or "", "headline", ARMS, default_seeds="5")
    options_of.add_argument(
        "--epochs", type=positive, default=1, metavar="E", help="passes of the update over a step's rollouts"
    )
    options = options_of.parse_args()
    return make(experiment(options.epochs), options, options_of)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("interrupted; what is finished is kept")
