"""A simulated run as a log that reads like a training run's."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np

from verl_pods_cero.metric_names import allocation_metrics
from verl_pods_cero.tools.simulation.filters import Filtered, variances
from verl_pods_cero.tools.simulation.play import Play


def write_log(path: Path, played: Play, filtered: Filtered | None) -> None:
    """Write what a training run would log of each step, in the form of verl's file logger.

    One line a step, `{"step": s, "data": {name: value}}`, s from 1. What there is no number for is left out.
    """
    rows = _filter_rows(played, filtered) if filtered is not None else [{} for _ in played.metrics]
    wins, rollouts = played.per_step(played.groups.wins), played.per_step(played.groups.rollouts)
    epoch = (np.cumsum(rollouts) - rollouts) // (played.settings.num_prompts * played.settings.n)
    with path.open("w", encoding="utf-8") as file:
        for number, (numbers, row) in enumerate(zip(played.metrics, rows, strict=True)):
            data = allocation_metrics(numbers) | row
            data["critic/score/mean"] = float(wins[number] / rollouts[number])
            data["training/epoch"] = float(epoch[number])
            data["training/global_step"] = float(number + 1)
            finite = {name: value for name, value in data.items() if math.isfinite(value)}
            file.write(json.dumps({"step": number + 1, "data": finite}) + "\n")


def _filter_rows(played: Play, filtered: Filtered) -> list[dict[str, float]]:
    """Compute the metrics under `pods/` of each step."""
    groups, count = played.groups, played.per_step()
    generated, kept = played.per_step(groups.rollouts), played.per_step(filtered.kept)
    columns = {
        "rollouts_generated": generated,
        "rollouts_kept": kept,
        "prompts": count,
        "reward_mean_generated": played.per_step(groups.wins) / generated,
        "reward_mean_kept": played.per_step(filtered.wins) / kept,
        "reward_variance_generated": played.per_step(variances(groups.wins, groups.rollouts)) / count,
        "reward_variance_kept": played.per_step(variances(filtered.wins, filtered.kept)) / count,
        "zero_variance_fraction": 1.0 - played.per_step(groups.mixed) / count,
        "all_pass_fraction": played.per_step(groups.wins == groups.rollouts) / count,
        "all_fail_fraction": played.per_step(groups.wins == 0) / count,
        "top_kept": played.per_step(filtered.top) / count,
    }
    return [{f"pods/{name}": float(column[step]) for name, column in columns.items()} for step in range(played.steps)]
