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
    return _write(
        RUN_HEADER,
        (
            [
                *_identity(one),
                one.run.detail,
                " ".join(one.run.job.overrides),
                *(_cell(getattr(one, n)) for n in _NUMBERS),
            ]
            for one in found
        ),
    )


def curves_csv(found: Sequence[Result], measure: Measure) -> str:
    """Return a row a validation of a run."""
    rows = []
    for one in found:
        values, spent = measure.values(one.run.log), progress(one.run).spent
        rows += [
            [*_identity(one), *(_cell(spent[axis][row]) for axis in AXES), _cell(values[row])]
            for row in np.flatnonzero(np.isfinite(values))
        ]
    return _write(CURVE_HEADER, rows)


def _identity(one: Result) -> list[str]:
    return [one.group, one.seed, str(one.run.path), one.run.status]


def _cell(value: float) -> str:
    return f"{value:.10g}" if np.isfinite(value) else ""


def _write(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()
