"""What a quickstart run did: a table in the terminal and a figure beside its log."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from verl_pods_cero.quickstart.tasks import DATA_SOURCE

ACCURACY = f"val-core/{DATA_SOURCE}/acc/mean@"
"""verl's key for validation accuracy, less the number of samples a prompt at its end."""

SHARES = {
    "generation": "timing_s/gen",
    "choosing rollouts": "timing_s/pods_select",
    "log-probabilities": "timing_s/old_log_prob",
    "update": "timing_s/update_actor",
}


@dataclass(frozen=True)
class Progress:
    """A run as verl's file logger recorded it.

    Attributes:
        steps: training step of each validation.
        accuracy: validation accuracy, mean over prompts and samples.
        seconds: training time before each validation, without start-up and validation.
        rollouts: rollouts generated before each validation.
        shares: seconds spent on each part, over the run.
        rest: seconds of the steps that no part accounts for.
    """

    steps: list[int]
    accuracy: list[float]
    seconds: list[float]
    rollouts: list[float]
    shares: dict[str, float]
    rest: float


def read(log: Path) -> Progress:
    """Read a log of JSON lines.

    Raises:
        ValueError: it holds no validation.
    """
    records = [json.loads(line) for line in log.read_text().splitlines()]
    steps, accuracy, seconds, rollouts = [], [], [], []
    clock = generated = 0.0
    shares = dict.fromkeys(SHARES, 0.0)
    for record in records:
        data = record["data"]
        clock += data.get("timing_s/step", 0.0)
        generated += data.get("pods/rollouts_generated", 0.0)
        for name, key in SHARES.items():
            shares[name] += data.get(key, 0.0)
        validated = next((value for key, value in data.items() if key.startswith(ACCURACY)), None)
        if validated is not None:
            steps.append(record["step"])
            accuracy.append(validated)
            seconds.append(clock)
            rollouts.append(generated)
    if not steps:
        raise ValueError(f"{log} holds no validation. Fix: leave trainer.test_freq above 0.")
    return Progress(steps, accuracy, seconds, rollouts, shares, clock - sum(shares.values()))


def table(progress: Progress) -> str:
    """Write the run as text.

    >>> print(table(Progress([0, 5], [0.25, 0.5], [0.0, 60.0], [0.0, 1280.0], {"generation": 45.0}, 15.0)))
    step   accuracy   seconds   rollouts
       0      0.250         0          0
       5      0.500        60       1280
    <BLANKLINE>
    generation 75 %, rest 25 % of 60 s in training steps
    """
    lines = ["step   accuracy   seconds   rollouts"]
    columns = zip(progress.steps, progress.accuracy, progress.seconds, progress.rollouts, strict=True)
    lines += [f"{step:4d}   {acc:8.3f}   {sec:7.0f}   {rollouts:8.0f}" for step, acc, sec, rollouts in columns]
    total = sum(progress.shares.values()) + progress.rest
    parts = {**progress.shares, "rest": progress.rest}
    shares = ", ".join(f"{name} {seconds / max(total, 1e-9):.0%}".replace("%", " %") for name, seconds in parts.items())
    return "\n".join([*lines, "", f"{shares} of {total:.0f} s in training steps"])


def draw(progress: Progress, path: Path) -> None:
    """Draw accuracy against time and rollouts, and where the time went."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.5, 3.2), layout="constrained")
    over_time, over_rollouts, time_spent = figure.subplots(1, 3)
    for axes, values, label in (
        (over_time, progress.seconds, "seconds in training steps"),
        (over_rollouts, progress.rollouts, "rollouts generated"),
    ):
        axes.plot(values, progress.accuracy, marker="o")
        axes.set(xlabel=label, ylabel="validation accuracy", ylim=(0, 1))
        axes.grid(alpha=0.3)
    parts = {**progress.shares, "rest": progress.rest}
    bars = time_spent.barh(list(parts), list(parts.values()))
    time_spent.bar_label(bars, fmt="%.1f s", padding=3)
    time_spent.set(xlabel="seconds", xlim=(0, 1.25 * max(parts.values())))
    time_spent.invert_yaxis()
    figure.savefig(path, dpi=150)


def show(log: Path, figure: Path) -> None:
    """Print the table of a run and write its figure."""
    progress = read(log)
    print()
    print(table(progress))
    draw(progress, figure)
    print(f"Figure: {figure}\nMetrics of every step: {log}")
