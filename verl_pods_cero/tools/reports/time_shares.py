"""Where the time of training steps went, by part."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

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
    >>> step = {"timing_s/step": 4.0, "timing_s/gen": 2.5, "timing_s/ref": 0.5, "timing_s/testing": 9.0}
    >>> time_shares(Log.of(Path("run.jsonl"), [(1, step)]))
    {'generation': 2.5, 'log-probabilities': 0.5, 'other': 1.0}
    """
    step_s = log.column(STEP_SECONDS)
    timed = np.isfinite(step_s)
    columns = {part: np.array([log.column(name)[timed] for name in names]) for part, names in PARTS.items()}
    seconds = {part: float(np.nansum(values)) for part, values in columns.items() if np.isfinite(values).any()}
    if timed.any():
        seconds[OTHER] = max(float(step_s[timed].sum()) - sum(seconds.values()), 0.0)
    return seconds


def seconds_a_step(log: Log) -> dict[str, float]:
    """Return `time_shares` by step."""
    steps = len(log.series(STEP_SECONDS)[0])
    return {part: seconds / steps for part, seconds in time_shares(log).items()}
