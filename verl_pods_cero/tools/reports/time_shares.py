"""Where the time of training steps went, by part."""

from __future__ import annotations

from collections.abc import Mapping

from verl_pods_cero.tools.reports.log_files import Log
from verl_pods_cero.tools.reports.quantities import STEP_SECONDS

PARTS: Mapping[str, tuple[str, ...]] = {
    "generation": ("timing_s/gen",),
    "reward": ("timing_s/reward",),
    "filter": ("timing_s/pods_select",),
    "allocation": ("timing_s/cero_plan", "timing_s/cero_update"),
    "log-probabilities": ("timing_s/old_log_prob", "timing_s/ref"),
    "advantages": ("timing_s/adv",),
    "critic": ("timing_s/values", "timing_s/update_critic"),
    "update": ("timing_s/update_actor",),
    "weights sync": ("timing_s/update_weights",),
    "checkpoint": ("timing_s/save_checkpoint",),
}
"""Parts of a step, in its order, and verl's timers of each: none of them is inside another."""

OTHER = "other"


def time_shares(log: Log) -> dict[str, float]:
    """Return the seconds of each part that was logged, over the run; what no part accounts for is `other`.

    Only steps that logged `timing_s/step` count. Validation is outside of steps.

    >>> from pathlib import Path
    >>> from verl_pods_cero.tools.reports.log_files import Record
    >>> step = Record(1, {"timing_s/step": 4.0, "timing_s/gen": 2.5, "timing_s/ref": 0.5, "timing_s/testing": 9.0})
    >>> time_shares(Log(Path("run.jsonl"), (step,)))
    {'generation': 2.5, 'log-probabilities': 0.5, 'other': 1.0}
    """
    steps = [record.values for record in log.records if STEP_SECONDS in record.values]
    seconds = {
        part: sum(values.get(name, 0.0) for values in steps for name in names)
        for part, names in PARTS.items()
        if any(name in values for values in steps for name in names)
    }
    if steps:
        seconds[OTHER] = max(sum(values[STEP_SECONDS] for values in steps) - sum(seconds.values()), 0.0)
    return seconds


def seconds_a_step(log: Log) -> dict[str, float]:
    """Return `time_shares` by step."""
    steps = sum(STEP_SECONDS in record.values for record in log.records)
    return {part: seconds / steps for part, seconds in time_shares(log).items()}
