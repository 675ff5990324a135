"""A run in one line: how accurate it was, and what it took."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from verl_pods_cero.tools.reports.accuracy import Measure
from verl_pods_cero.tools.reports.groups import IN_NAME, Group, seeds_of
from verl_pods_cero.tools.reports.quantities import progress
from verl_pods_cero.tools.reports.runs import Run

NAN = math.nan


@dataclass(frozen=True)
class Result:
    """What came of a run; NaN where it is not known."""

    run: Run
    group: str
    seed: str  # what tells it from the others of its group, or an empty text
    steps: int  # training steps logged
    first: float  # accuracy of the first validation
    best: float  # the highest accuracy, at `best_step`
    best_step: float
    last: float  # accuracy of the last validation
    rollouts: float  # generated
    updated: float  # rollouts that the policy was updated on
    tokens: float  # of prompts and responses generated
    training_s: float  # seconds of its training steps
    wall_s: float  # the same with validations


def results(groups: Iterable[Group], measure: Measure) -> list[Result]:
    """Return the result of every run, group by group."""
    return [result(run, group, measure) for group in groups for run in group.runs]


def result(run: Run, group: Group, measure: Measure) -> Result:
    """Return the result of a run."""
    spent = progress(run)
    values = measure.values(run.log)
    validated = np.flatnonzero(np.isfinite(values))
    first = best = best_step = last = NAN
    if len(validated):
        row = np.nanargmax(values)
        first, best, best_step, last = values[validated[0]], values[row], run.log.steps[row], values[validated[-1]]
    ends = {axis: float(amounts[-1]) if len(amounts) else NAN for axis, amounts in spent.spent.items()}
    return Result(
        run=run,
        group=group.name,
        seed=_seed(run, group),
        steps=len(run.log.training),
        first=float(first),
        best=float(best),
        best_step=float(best_step),
        last=float(last),
        rollouts=ends["rollouts"],
        updated=spent.updated,
        tokens=ends["tokens"],
        training_s=ends["training_s"],
        wall_s=spent.wall_s,
    )


def _seed(run: Run, group: Group) -> str:
    """Return the values of the seeds that differ within a group, or of those that a single run was given."""
    own = seeds_of(run)
    others = [seeds_of(other) for other in group.runs if other is run or other in group.logged]
    values = {value for name, value in own.items() if len({seeds.get(name) for seeds in others}) > 1}
    if len(others) == 1:
        given = {override.lstrip("+").partition("=")[0] for override in run.job.overrides}
        values = {value for name, value in own.items() if name in given or name == IN_NAME}
    return ", ".join(sorted(value for value in values if not value.startswith("$")))
