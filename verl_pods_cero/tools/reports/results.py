"""A run in one line: how accurate it was, and what it took; and the same as CSV."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from verl_pods_cero.tools.reports.accuracy import Measure
from verl_pods_cero.tools.reports.groups import IN_NAME, Group, seeds_of
from verl_pods_cero.tools.reports.quantities import AXES, progress
from verl_pods_cero.tools.reports.runs import Run


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
    spent, values = progress(run), measure.values(run.log)
    validated = np.flatnonzero(np.isfinite(values))
    first = best = best_step = last = math.nan
    if len(validated):
        row = np.nanargmax(values)
        first, best, best_step, last = values[validated[0]], values[row], run.log.steps[row], values[validated[-1]]
    ends = {
        axis: float(spent.spent[axis][-1]) if len(values) else math.nan for axis in ("rollouts", "tokens", "training_s")
    }
    return Result(
        run,
        group.name,
        _seed(run, group),
        steps=len(run.log.training),
        first=float(first),
        best=float(best),
        best_step=float(best_step),
        last=float(last),
        updated=spent.updated,
        wall_s=spent.wall_s,
        **ends,
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


_NUMBERS = ("steps", "first", "best", "best_step", "last", "rollouts", "updated", "tokens", "training_s", "wall_s")
_RUN = ("group", "seed", "run", "status")
RUN_HEADER = (*_RUN, "detail", "overrides", *_NUMBERS)
CURVE_HEADER = (*_RUN, *AXES, "accuracy")


def runs_csv(found: Sequence[Result]) -> str:
    """Return a row a run; what is not known is empty."""
    rows = (
        [*_identity(one), one.run.detail, " ".join(one.run.job.overrides), *(_cell(getattr(one, n)) for n in _NUMBERS)]
        for one in found
    )
    return _write(RUN_HEADER, rows)


def curves_csv(found: Sequence[Result], measure: Measure) -> str:
    """Return a row a validation of a run."""
    rows = []
    for one in found:
        values, spent = measure.values(one.run.log), progress(one.run).spent
        amounts = zip(*(spent[axis] for axis in AXES), values, strict=True)
        rows += [[*_identity(one), *map(_cell, row)] for row in amounts if np.isfinite(row[-1])]
    return _write(CURVE_HEADER, rows)


def _identity(one: Result) -> list[str]:
    return [one.group, one.seed, str(one.run.path), one.run.status]


def _cell(value: float) -> str:
    return f"{value:.10g}" if np.isfinite(value) else ""


def _write(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *rows])
    return text.getvalue()
