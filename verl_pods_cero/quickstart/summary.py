"""What a quickstart run did: a table in the terminal and a figure beside its log."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from verl_pods_cero.tools.reports.accuracy import Curve, Measure, curve
from verl_pods_cero.tools.reports.log_files import Log
from verl_pods_cero.tools.reports.runs import find_runs
from verl_pods_cero.tools.reports.time_shares import time_shares

Shares = Mapping[str, float]


def read(place: Path) -> tuple[Curve, Log]:
    """Read the log of a run, given itself or by its run folder.

    Returns:
        Its validations, and the log.

    Raises:
        ValueError: there is no run, it has no log, or its log has no validation.
    """
    run = find_runs([str(place)])[0]
    if not len(run.log.steps):
        raise ValueError(f"{run.path} holds no log of verl's file logger. Fix: leave file in trainer.logger.")
    found = curve([run], Measure())
    if found is None:
        raise ValueError(f"{run.log.path} holds no validation. Fix: leave trainer.test_freq above 0.")
    return found, run.log


def table(progress: Curve, shares: Shares) -> str:
    """Write the run as text.

    >>> import numpy as np
    >>> spent = {"step": [[0, 5]], "training_s": [[0, 60]], "rollouts": [[0, 1280]]}
    >>> progress = Curve(np.array([[0.25, 0.5]]), {name: np.array(row) for name, row in spent.items()}, ())
    >>> print(table(progress, {"generation": 45.0, "other": 15.0}))
    step   accuracy   seconds   rollouts
       0      0.250         0          0
       5      0.500        60       1280
    <BLANKLINE>
    generation 75 %, other 25 % of 60 s in training steps
    """
    columns = (progress.steps, progress.mean, *(progress.spent[axis][0] for axis in ("training_s", "rollouts")))
    lines = ["step   accuracy   seconds   rollouts"]
    lines += [
        f"{step:4.0f}   {accuracy:8.3f}   {seconds:7.0f}   {rollouts:8.0f}"
        for step, accuracy, seconds, rollouts in zip(*columns, strict=True)
    ]
    total = sum(shares.values())
    parts = ", ".join(f"{part} {100 * seconds / total:.0f} %" for part, seconds in shares.items())
    return "\n".join([*lines, "", f"{parts} of {total:.0f} s in training steps"]) if shares else "\n".join(lines)


def draw(progress: Curve, shares: Shares, path: Path) -> None:
    """Draw accuracy against time and rollouts, and where the time went."""
    from verl_pods_cero.tools.reports.drawing import COLOURS, canvas, show_as_time
    from verl_pods_cero.tools.reports.figures import draw_accuracy

    with canvas(10.5, 3.2, 3, 3) as (figure, (over_time, over_rollouts, time_spent)):
        for axes, axis in ((over_time, "training_s"), (over_rollouts, "rollouts")):
            draw_accuracy(axes, progress, axis)
            axes.set_ylim(0, 1)
        show_as_time(over_time)
        bars = time_spent.barh(list(shares), list(shares.values()), color=COLOURS[0])
        time_spent.bar_label(bars, fmt="%.1f s", padding=3)
        time_spent.set(xlabel="seconds", xlim=(0, 1.25 * max(shares.values(), default=1.0)))
        time_spent.grid(axis="y", visible=False)
        time_spent.invert_yaxis()
        figure.savefig(path, dpi=150)


def show(place: Path, figure: Path) -> None:
    """Print the table of a run and write its figure, or say on stderr why there is none."""
    try:
        progress, log = read(place)
    except ValueError as error:
        print(f"no table: {error}", file=sys.stderr)
        return
    shares = time_shares(log)
    print()
    print(table(progress, shares))
    draw(progress, shares, figure)
    print(f"Figure: {figure}\nMetrics of every step: {log.path}")
