"""Arms over seeds on a CPU: every run is the stock command, and what is finished is kept and not made again."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl_pods_cero.files import written_whole
from verl_pods_cero.quickstart.run import run_and_leave_nothing
from verl_pods_cero.tools.command_line import INTERRUPTED
from verl_pods_cero.tools.reports.quantities import STEP_SECONDS, TOKENS, VALIDATION_SECONDS
from verl_pods_cero.tools.reports.time_shares import PARTS

RECIPE = "cero_cpu"

# Of the metrics logged, those that the report reads: counts as they are, the rest in four digits.
COUNTS = ("training/global_step", TOKENS, "pods/rollouts_generated", "pods/rollouts_kept", "cero/rollouts")
KEPT = (
    *("val-core/", STEP_SECONDS, VALIDATION_SECONDS, *(name for names in PARTS.values() for name in names)),
    *("pods/zero_variance_fraction", "pods/all_pass_fraction", "pods/all_fail_fraction", "pods/response_length_kept"),
    *("response_length/mean", "cero/effective_prompt_ratio", "cero/budget_left", "cero/round"),
    *("cero/exposures_p", "cero/calibration_"),
)


@dataclass(frozen=True)
class Arm:
    """What sets an arm apart: rollouts per prompt, prompts per step, and Hydra overrides."""

    n: int
    prompts: int
    overrides: Sequence[str]

    @property
    def rollouts(self) -> int:
        """Rollouts of a plain step."""
        return self.n * self.prompts


@dataclass(frozen=True)
class Experiment:
    """Arms that share a model, data and sizes; `steps` and `validated_every` are by rollouts per prompt."""

    base: Sequence[str]
    arms: Mapping[str, Arm]
    steps: Mapping[int, int]
    validated_every: Mapping[int, int]

    def command(self, arm: str, seed: int, folder: Path) -> list[str]:
        """Return the stock command of one run."""
        its = self.arms[arm]
        return [
            *(sys.executable, "-m", "verl.trainer.main_ppo", f"--config-name={RECIPE}", f"hydra.run.dir={folder}"),
            *(*self.base, f"quickstart.seed={seed}", f"data.train_batch_size={its.prompts}"),
            *(f"actor_rollout_ref.rollout.n={its.n}", *its.overrides),
            *(f"trainer.total_training_steps={self.steps[its.n]}", f"trainer.test_freq={self.validated_every[its.n]}"),
            "trainer.experiment_name=log",
        ]

    def settings(self) -> str:
        """Return what all kept runs of a folder have in common, as its `settings.json` says it."""
        arms = {name: [arm.n, arm.prompts, list(arm.overrides)] for name, arm in self.arms.items()}
        shared = {"base": list(self.base), "steps": self.steps, "validated_every": self.validated_every}
        return json.dumps({**shared, "arms": arms}, indent=1)


def shortened(line: str, rollouts: int) -> dict[str, Any] | None:
    """One line of verl's file logger with the metrics that the report draws; plain runs get their rollouts."""
    record = json.loads(line)
    data = {
        key: value if key in COUNTS else float(f"{value:.4g}")
        for key, value in record["data"].items()
        if key in COUNTS or key.startswith(KEPT)
    }
    if "training/global_step" in data and "cero/rollouts" not in data:
        # verl logs no number of rollouts; a plain step has all of its prompts'.
        data.setdefault("pods/rollouts_generated", rollouts)
        data.setdefault("pods/rollouts_kept", rollouts)
    return {"step": record["step"], "data": data} if data else None


def run(experiment: Experiment, arm: str, seed: int, results: Path, outputs: Path) -> bool:
    """Make one run unless its log is there; say whether it is now."""
    kept = results / f"{arm}-seed{seed}.jsonl"
    if kept.exists():
        return True
    folder = (outputs / f"{arm}-seed{seed}_{time.strftime('%Y%m%d-%H%M%S')}").resolve()
    folder.mkdir(parents=True)
    line = experiment.command(arm, seed, folder)
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
    records = [shortened(line, experiment.arms[arm].rollouts) for line in log_file.read_text().splitlines()]
    with written_whole(kept) as temporary:
        temporary.write_text("".join(json.dumps(each) + "\n" for each in records if each))
    return True


def positive(text: str) -> int:
    """Read an option that counts."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {number}")
    return number


def seeds(text: str) -> range:
    """Read the option of the seeds: `8` is 0 to 7, `4:8` is 4 to 7.

    >>> seeds("8"), seeds("4:8")
    (range(0, 8), range(4, 8))
    """
    first, colon, end = text.rpartition(":")
    made = range(int(first or 0) if colon else 0, int(end))
    if not made or made.start < 0:
        raise argparse.ArgumentTypeError(f"must be a count, or first:end, got {text}")
    return made


def parser(description: str, name: str, arms: Mapping[str, Arm], *, default_seeds: str) -> argparse.ArgumentParser:
    """Make the options that every experiment has."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--seeds", type=seeds, default=default_seeds, metavar="N|A:B", help="how many, or from A up to B")
    made.add_argument("--arms", default=",".join(arms), metavar="A,...")
    made.add_argument("--results", type=Path, default=Path("docs/results") / name)
    made.add_argument("--outputs", type=Path, default=Path("outputs") / name)
    return made


def make(experiment: Experiment, options: argparse.Namespace, refuse: argparse.ArgumentParser) -> int:
    """Make what is missing, seed by seed, so that a part of it compares all arms; return an exit status."""
    arms = [name.strip() for name in options.arms.split(",") if name.strip()] or [*experiment.arms]
    if unknown := sorted(set(arms) - set(experiment.arms)):
        refuse.error(f"unknown arms {', '.join(unknown)}; known: {', '.join(experiment.arms)}")
    wanted = experiment.settings()
    kept = options.results / "settings.json"
    if kept.exists() and kept.read_text() != wanted:
        refuse.error(
            f"{options.results} has runs of other settings ({kept.name}). Fix: other --results, or remove it all"
        )
    options.results.mkdir(parents=True, exist_ok=True)
    with written_whole(kept) as temporary:
        temporary.write_text(wanted)
    done = [run(experiment, arm, seed, options.results, options.outputs) for seed in options.seeds for arm in arms]
    return 0 if all(done) else 1
