"""The report's numbers as CSV: a row a run, and a row a validation."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

import numpy as np

from verl_pods_cero.tools.reports.accuracy import Measure
from verl_pods_cero.tools.reports.quantities import AXES, progress
from verl_pods_cero.tools.reports.results import Result

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
