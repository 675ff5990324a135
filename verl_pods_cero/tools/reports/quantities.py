"""What a run had cost when it was validated: steps, seconds, rollouts and tokens."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from verl_pods_cero.core.arrays import Floats
from verl_pods_cero.tools.reports.log_files import Log
from verl_pods_cero.tools.reports.runs import Run

AXES: Mapping[str, str] = {
    "step": "training steps",
    "training_s": "time in training steps",
    "wall_s": "wall-clock",
    "rollouts": "rollouts generated",
    "tokens": "tokens",
}
"""What accuracy is drawn against, by the name it has in tables; those that end in _s are in seconds."""

STEP_SECONDS, VALIDATION_SECONDS, TOKENS = "timing_s/step", "timing_s/testing", "perf/total_num_tokens"
GENERATED, KEPT = "pods/rollouts_generated", "pods/rollouts_kept"


@dataclass(frozen=True)
class Progress:
    """What had been spent at each step of a log; NaN throughout where it was not logged."""

    spent: Mapping[str, Floats]  # by axis, one entry a step of the log: up to and with it, and before its validation
    wall_s: float  # seconds of all steps and validations
    updated: float  # rollouts that the policy was updated on
    rollouts_from: str  # where their number was taken from, or an empty text
    remarks: tuple[str, ...] = ()  # what is missing, each a clause about the log


def progress(run: Run) -> Progress:
    """Add up what a run spent."""
    log = run.log
    generated, source = _rollouts(run)
    step_s, testing_s = log.column(STEP_SECONDS), np.nan_to_num(log.column(VALIDATION_SECONDS))
    training_s = _total(step_s)
    spent = {
        "step": log.steps.astype(np.float64),
        "training_s": training_s,
        "wall_s": training_s + np.cumsum(testing_s) - testing_s,
        "rollouts": _total(generated),
        "tokens": _total(log.column(TOKENS)),
    }
    kept = log.series(KEPT)[1] if KEPT in log.names else generated
    return Progress(
        spent,
        wall_s=float(training_s[-1] + testing_s.sum()) if len(training_s) else math.nan,
        updated=math.nan if np.isnan(kept).all() else float(np.nansum(kept)),
        rollouts_from=source,
        remarks=tuple(_remarks(log, step_s, generated, source)),
    )


def _total(column: Floats) -> Floats:
    """Add up what was logged; all NaN if nothing was."""
    return np.full_like(column, np.nan) if np.isnan(column).all() else np.cumsum(np.nan_to_num(column))


def _rollouts(run: Run) -> tuple[Floats, str]:
    """Return the rollouts generated in each step, and where the number was found."""
    logged = [name for name in (GENERATED, "cero/rollouts") if name in run.log.names]
    if logged:
        first, second = run.log.column(logged[0]), run.log.column(logged[-1])
        return np.where(np.isnan(first), second, first), logged[0]
    prompts = run.job.whole_number("data.train_batch_size")
    n = run.job.whole_number("actor_rollout_ref.rollout.n")
    if prompts is None or n is None:
        return np.full(len(run.log.steps), np.nan), ""
    each = np.where(np.isin(run.log.steps, run.log.training), float(prompts * n), np.nan)
    return each, f"its options: {prompts} prompts of {n} rollouts a step"


def _remarks(log: Log, step_s: Floats, generated: Floats, source: str) -> Iterator[str]:
    training = np.isin(log.steps, log.training)
    steps, untimed, uncounted = (int(which.sum()) for which in (training, *(training & np.isnan([step_s, generated]))))
    if steps and untimed == steps:
        yield f"logs no {STEP_SECONDS}: no time is known"
    elif untimed:
        yield f"logs no {STEP_SECONDS} in {untimed} of {steps} steps: the time is a lower bound"
    if steps and not source:
        yield "logs no rollouts, and its options are not there to tell them"
    elif uncounted:
        yield f"logs no {source} in {uncounted} of {steps} steps: the rollouts are a lower bound"
