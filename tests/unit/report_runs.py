"""Run folders as Hydra and verl's file logger leave them, for the tests of the report."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from verl_pods_cero.tools.reports.log_files import Log

ACCURACY = "val-core/sums/acc/mean@1"

STEP = {
    "training/global_step": 1,
    "timing_s/step": 4.0,
    "timing_s/gen": 2.5,
    "timing_s/old_log_prob": 0.5,
    "timing_s/update_actor": 0.75,
    "perf/total_num_tokens": 100,
    "response_length/mean": 3.0,
}
PODS = {
    "pods/rollouts_generated": 128,
    "pods/rollouts_kept": 32,
    "pods/all_pass_fraction": 0.25,
    "pods/all_fail_fraction": 0.125,
    "pods/zero_variance_fraction": 0.375,
    "pods/response_length_kept": 3.5,
}
CERO = {
    "cero/rollouts": 128,
    "cero/effective_prompt_ratio": 0.75,
    "cero/calibration_mae": 0.125,
    "cero/calibration_brier": 0.25,
    "cero/exposures_p10": 1.0,
    "cero/exposures_p50": 2.0,
    "cero/exposures_p90": 4.0,
    "cero/budget_left": 64,
    "cero/round": 1,
}
TRACEBACK = """\
[2026-11-30 04:25:10,123][hydra][ERROR] -
Traceback (most recent call last):
  File "main_ppo.py", line 3, in main
    run_ppo(config)
ray.exceptions.RayTaskError(OptionError): \x1b[36mray::TaskRunner.run()\x1b[39m (pid=1)
verl_pods_cero.errors.OptionError: pods_cero.filter.keep must be at most n, got 32. Fix: lower it.

[2026-11-30 04:25:11,000][ray][INFO] - the session ended
"""

Record = tuple[int, Mapping[str, Any]]


def steps(accuracies: Sequence[float | None], **changes: Any) -> list[Record]:
    """Records of a run validated before training and at the steps that have an accuracy; None is not validated."""
    records: list[Record] = []
    for step, accuracy in enumerate(accuracies):
        data = {} if step == 0 else {**STEP, "training/global_step": step, **changes}
        if accuracy is not None:
            data |= {ACCURACY: accuracy} | ({"timing_s/testing": 1.0} if step else {})
        records.append((step, data))
    return records


def records_of(log: Log) -> list[tuple[int, dict[str, float]]]:
    """What a log holds, step by step."""
    columns = {name: log.column(name) for name in sorted(log.names)}
    return [
        (int(step), {name: float(column[row]) for name, column in columns.items() if np.isfinite(column[row])})
        for row, step in enumerate(log.steps)
    ]


def write_log(path: Path, records: Sequence[Record]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"step": step, "data": data}) + "\n" for step, data in records))
    return path


def write_run(
    folder: Path,
    records: Sequence[Record] | None = None,
    overrides: Sequence[str] = (),
    *,
    experiment: str = "grpo",
    asked: int | None = 2,
    number: int | None = None,
    launcher: str = "hydra._internal.core_plugins.basic_launcher.BasicLauncher",
    job_log: str = "",
    **options: Any,
) -> Path:
    """Write a run folder; without records it has no log. Overrides and options are `section.name=value`."""
    config: dict[str, Any] = {}
    values = {
        "trainer.project_name": "project",
        "trainer.experiment_name": experiment,
        "trainer.total_training_steps": asked,
        "data.train_batch_size": 8,
        "actor_rollout_ref.rollout.n": 16,
        "quickstart.seed": 0,
        "data.seed": "${quickstart.seed}",
        **{name.replace("__", "."): value for name, value in options.items()},
        **{name: yaml.safe_load(value) for name, _, value in (override.partition("=") for override in overrides)},
    }
    for name, value in values.items():
        *sections, last = name.split(".")
        node = config
        for section in sections:
            node = node.setdefault(section, {})
        node[last] = value
    (folder / ".hydra").mkdir(parents=True)
    hydra = {"hydra": {"job": {"num": number}, "launcher": {"_target_": launcher}}}
    for file, content in (("config", config), ("overrides", list(overrides)), ("hydra", hydra)):
        (folder / ".hydra" / f"{file}.yaml").write_text(yaml.safe_dump(content))
    (folder / "main_ppo.log").write_text(job_log)
    if records is not None:
        write_log(folder / "project" / f"{experiment}.jsonl", records)
    return folder


def write_sweep(folder: Path, jobs: Sequence[Mapping[str, Any]]) -> Path:
    """Write a multirun folder; each job is the arguments of `write_run`."""
    folder.mkdir(parents=True)
    (folder / "multirun.yaml").write_text("hydra: {}\n")
    for number, job in enumerate(jobs):
        write_run(folder / str(number), number=number, **job)
    return folder
