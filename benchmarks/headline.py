"""The headline on a CPU: GRPO, PODS, CERO and their controls, at equal rollouts and equal time, over seeds.

    make reproduce
    python benchmarks/headline.py [--seeds 5] [--arms grpo,pods] [--epochs 4 --results docs/results/headline_epochs4]

Every run is the stock command on the model and data of `cero_cpu`. A finished run leaves a short log in `--results` (a
line a step, the metrics below, four digits) and is never made again, so the whole can be stopped and go on later.
`verl-pods-cero report` reads these logs. One run at a time: verl 0.9.1 names the socket that weights travel through by
Ray's job number, which two runs on one machine share, so that they fail or, worse, take each other's weights.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from pathlib import Path
from typing import Any

from verl_pods_cero.files import written_whole
from verl_pods_cero.quickstart.run import run_and_leave_nothing
from verl_pods_cero.tools.command_line import INTERRUPTED
from verl_pods_cero.tools.reports.quantities import STEP_SECONDS, TOKENS, VALIDATION_SECONDS
from verl_pods_cero.tools.reports.time_shares import PARTS

PROMPTS, SMALL, LARGE = 8, 4, 16

# Training steps, and steps between validations, by rollouts per prompt. More rollouts make a step longer, so the
# steps are fewer: runs last about as long, and are compared at what the shortest had spent.
STEPS = {SMALL: 60, LARGE: 27}
VALIDATED_EVERY = {SMALL: 6, LARGE: 3}

BASE = [
    f"data.train_batch_size={PROMPTS}",
    "actor_rollout_ref.actor.ppo_mini_batch_size=2",
    "actor_rollout_ref.actor.optim.lr=1e-4",
]
PLAIN = ["pods_cero.allocator.enable=false"]
FILTER = ["pods_cero.filter.enable=true", f"pods_cero.filter.keep={SMALL}"]

# Name: rollouts per prompt, and what sets the arm apart. The first is the baseline.
ARMS: dict[str, tuple[int, list[str]]] = {
    "grpo": (SMALL, PLAIN),
    "grpo_all": (LARGE, PLAIN),
    "pods": (LARGE, [*PLAIN, *FILTER]),
    "cero": (SMALL, []),
    "random_matched": (SMALL, ["pods_cero.allocator.name=random_matched"]),
    "pods_cero": (LARGE, FILTER),
    "pods_random": (LARGE, [*PLAIN, *FILTER, "pods_cero.filter.rule=random"]),
    "pods_max_reward": (LARGE, [*PLAIN, *FILTER, "pods_cero.filter.rule=max_reward"]),
    "pods_percentile": (LARGE, [*PLAIN, *FILTER, "pods_cero.filter.rule=percentile"]),
}

# Of the metrics logged, those that the report reads: counts as they are, the rest in four digits.
COUNTS = ("training/global_step", TOKENS, "pods/rollouts_generated", "pods/rollouts_kept", "cero/rollouts")
KEPT = (
    *("val-core/", STEP_SECONDS, VALIDATION_SECONDS, *(name for names in PARTS.values() for name in names)),
    *("pods/zero_variance_fraction", "pods/all_pass_fraction", "pods/all_fail_fraction", "pods/response_length_kept"),
    *("response_length/mean", "cero/effective_prompt_ratio", "cero/budget_left", "cero/round"),
    *("cero/exposures_p", "cero/calibration_"),
)


def command(arm: str, seed: int, folder: Path, *, epochs: int = 1) -> list[str]:
    """Return the stock command of one run; more epochs make its updates longer, and its generation no longer."""
    n, overrides = ARMS[arm]
    return [
        *(sys.executable, "-m", "verl.trainer.main_ppo", "--config-name=cero_cpu", f"hydra.run.dir={folder}"),
        *(*BASE, f"actor_rollout_ref.actor.ppo_epochs={epochs}", f"quickstart.seed={seed}"),
        *(f"actor_rollout_ref.rollout.n={n}", *overrides, f"trainer.total_training_steps={STEPS[n]}"),
        *(f"trainer.test_freq={VALIDATED_EVERY[n]}", "trainer.experiment_name=log"),
    ]


def settings(epochs: int = 1) -> str:
    """Return what all kept runs of a folder have in common, as its `settings.json` says it."""
    named = {"base": BASE, "epochs": epochs, "arms": ARMS, "steps": STEPS, "validated_every": VALIDATED_EVERY}
    return json.dumps(named, indent=1)


def shortened(line: str, n: int) -> dict[str, Any] | None:
    """One line of verl's file logger with the metrics that the report draws; plain runs get their rollouts."""
    record = json.loads(line)
    data = {
        key: value if key in COUNTS else float(f"{value:.4g}")
        for key, value in record["data"].items()
        if key in COUNTS or key.startswith(KEPT)
    }
    if "training/global_step" in data and "cero/rollouts" not in data:
        # verl logs no number of rollouts; a plain step has all of its prompts'.
        data.setdefault("pods/rollouts_generated", PROMPTS * n)
        data.setdefault("pods/rollouts_kept", PROMPTS * n)
    return {"step": record["step"], "data": data} if data else None


def run(arm: str, seed: int, options: argparse.Namespace) -> bool:
    """Make one run unless its log is there; say whether it is now."""
    kept = options.results / f"{arm}-seed{seed}.jsonl"
    if kept.exists():
        return True
    folder = (options.outputs / f"{arm}-seed{seed}_{time.strftime('%Y%m%d-%H%M%S')}").resolve()
    folder.mkdir(parents=True)
    line = command(arm, seed, folder, epochs=options.epochs)
    print("$ " + shlex.join(["python", *line[1:]]), flush=True)
    start = time.monotonic()
    with (folder / "output.log").open("w") as log:
        status = run_and_leave_nothing(line, log)
    print(f"{arm} seed {seed}: status {status} after {time.monotonic() - start:.0f} s", flush=True)
    if status == INTERRUPTED:
        raise KeyboardInterrupt
    log_file = folder / "verl_pods_cero/log.jsonl"
    if status or not log_file.exists():
        print(f"  see {folder}/output.log", file=sys.stderr)
        return False
    records = [shortened(line, ARMS[arm][0]) for line in log_file.read_text().splitlines()]
    with written_whole(kept) as temporary:
        temporary.write_text("".join(json.dumps(each) + "\n" for each in records if each))
    return True


def _positive(text: str) -> int:
    """Read an option that counts."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {number}")
    return number


def main() -> int:
    """Make what is missing, seed by seed, so that a part of it compares all arms."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=_positive, default=5, metavar="N")
    parser.add_argument("--arms", default=",".join(ARMS), metavar="A,...")
    parser.add_argument(
        "--epochs", type=_positive, default=1, metavar="E", help="passes of the update over a step's rollouts"
    )
    parser.add_argument("--results", type=Path, default=Path("docs/results/headline"))
    parser.add_argument("--outputs", type=Path, default=Path("outputs/headline"))
    options = parser.parse_args()
    arms = [name.strip() for name in options.arms.split(",") if name.strip()] or [*ARMS]
    if unknown := sorted(set(arms) - set(ARMS)):
        parser.error(f"unknown arms {', '.join(unknown)}; known: {', '.join(ARMS)}")
    wanted = settings(options.epochs)
    kept = options.results / "settings.json"
    if kept.exists() and kept.read_text() != wanted:
        parser.error(
            f"{options.results} has runs of other settings ({kept.name}). Fix: other --results, or remove it all"
        )
    options.results.mkdir(parents=True, exist_ok=True)
    with written_whole(kept) as temporary:
        temporary.write_text(wanted)
    done = [run(arm, seed, options) for seed in range(options.seeds) for arm in arms]
    return 0 if all(done) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("interrupted; what is finished is kept")
