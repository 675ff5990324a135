"""What a run had cost when it was validated: steps, seconds, rollouts and tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from verl_pods_cero.tools.reports.log_files import Floats, Record
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
    """What had been spent at each record of a log; NaN throughout where it was not logged.

    Attributes:
        spent: by axis, one entry a record: up to and with its step, and before its validation.
        wall_s: seconds of all steps and validations.
        updated: rollouts that the policy was updated on, or None if it is not known.
        rollouts_from: where the number of rollouts was taken from, or why it is not known.
        remarks: what is missing, each a clause about the log.
    """

    spent: Mapping[str, Floats]
    wall_s: float
    updated: float | None
    rollouts_from: str
    remarks: tuple[str, ...] = ()


def progress(run: Run) -> Progress:
    """Add up what a run spent."""
    records, training = run.log.records, run.log.training
    generated, source = _rollouts(run)
    step_s = _column(records, STEP_SECONDS)
    testing_s = np.nan_to_num(_column(records, VALIDATION_SECONDS))
    training_s = _total(step_s)
    spent = {
        "step": np.array([record.step for record in records], dtype=np.float64),
        "training_s": training_s,
        "wall_s": training_s + np.cumsum(testing_s) - testing_s,
        "rollouts": _total(generated),
        "tokens": _total(_column(records, TOKENS)),
    }
    wall_s = float(training_s[-1] + testing_s.sum()) if len(records) else float("nan")
    uncounted = sum(one.is_training and np.isnan(count) for one, count in zip(records, generated, strict=True))
    return Progress(spent, wall_s, _updated(run, generated), source, _remarks(training, source, int(uncounted)))


def _column(records: tuple[Record, ...], name: str) -> Floats:
    return np.array([record.values.get(name, np.nan) for record in records], dtype=np.float64)


def _total(column: Floats) -> Floats:
    """Add up what was logged; all NaN if nothing was."""
    return np.full_like(column, np.nan) if np.isnan(column).all() else np.cumsum(np.nan_to_num(column))


def _rollouts(run: Run) -> tuple[Floats, str]:
    """Return the rollouts generated in each record's step, and where the number was found."""
    records = run.log.records
    names = (GENERATED, "cero/rollouts")
    logged = [name for name in names if name in run.log.names]
    if logged:
        values = [next((record.values[name] for name in logged if name in record.values), np.nan) for record in records]
        return np.array(values, dtype=np.float64), logged[0]
    prompts = run.job.whole_number("data.train_batch_size")
    n = run.job.whole_number("actor_rollout_ref.rollout.n")
    if prompts is not None and n is not None:
        each = [float(prompts * n) if record.is_training else np.nan for record in records]
        return np.array(each, dtype=np.float64), f"its options: {prompts} prompts of {n} rollouts a step"
    return np.full(len(records), np.nan), ""


def _updated(run: Run, generated: Floats) -> float | None:
    _, kept = run.log.series(KEPT)
    if len(kept):
        return float(kept.sum())
    return None if np.isnan(generated).all() else float(np.nansum(generated))


def _remarks(training: tuple[Record, ...], source: str, uncounted: int) -> tuple[str, ...]:
    remarks = []
    timed = sum(STEP_SECONDS in record.values for record in training)
    if training and not timed:
        remarks.append(f"logs no {STEP_SECONDS}: no time is known")
    elif timed < len(training):
        missing = len(training) - timed
        remarks.append(f"logs no {STEP_SECONDS} in {missing} of {len(training)} steps: the time is a lower bound")
    if training and not source:
        remarks.append("logs no rollouts, and its options are not there to tell them")
    elif uncounted:
        remarks.append(f"logs no {source} in {uncounted} of {len(training)} steps: the rollouts are a lower bound")
    return tuple(remarks)
