"""Validation accuracy: which of verl's keys it is, and its curve over a run or over seeds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from verl_pods_cero.core.arrays import Floats
from verl_pods_cero.errors import OptionError, nearest
from verl_pods_cero.tools.reports.groups import Group
from verl_pods_cero.tools.reports.log_files import VALIDATION, Log
from verl_pods_cero.tools.reports.quantities import AXES, progress
from verl_pods_cero.tools.reports.runs import Run
from verl_pods_cero.tools.reports.spread import half_width

# verl: val-core/<data source>/<acc, or reward where scorers give no acc>/mean@<samples a prompt>
_CORE = re.compile(r"^val-core/(?P<source>.+)/(?P<variable>[^/]+)/mean@\d+$")


def _source(name: str) -> str | None:
    """Return the data source that a metric is the accuracy of, if it is one."""
    match = _CORE.match(name)
    return match["source"] if match else None


@dataclass(frozen=True)
class Measure:
    """What is reported as accuracy: a key, a data source, or by default the mean over data sources."""

    name: str | None = None

    def names_in(self, log: Log) -> list[str]:
        """Return the keys of a log that are averaged."""
        if self.name is not None and self.name.startswith(VALIDATION) and self.name in log.names:
            return [self.name]
        return [name for name in sorted(log.names) if (source := _source(name)) and self.name in (None, source)]

    def values(self, log: Log) -> Floats:
        """Return the accuracy at each step of a log: the mean of its keys, NaN without validation."""
        columns = [log.column(name) for name in self.names_in(log)]
        # a step that lacks one of them would be the mean of other data
        return np.mean(columns, axis=0) if columns else np.full(len(log.steps), np.nan)


def choose_measure(runs: Iterable[Run], name: str | None) -> Measure:
    """Return the measure of `--metric`.

    Raises:
        OptionError: no log has such a validation.
    """
    logs = [run.log for run in runs]
    measure = Measure(name)
    if name is not None and not any(measure.names_in(log) for log in logs):
        names = frozenset[str]().union(*(log.names for log in logs))
        known = {one for one in names if one.startswith(VALIDATION)} | {*filter(None, map(_source, names))}
        rule = "must be a validation metric or a data source of a log"
        raise OptionError("--metric", rule, name, nearest(name, known) if known else "these logs have no validation")
    return measure


def describe_measure(measure: Measure, runs: Sequence[Run]) -> list[str]:
    """Say which keys the accuracy is, and where it does not compare."""
    keys = sorted({tuple(measure.names_in(run.log)) for run in runs if measure.names_in(run.log)})
    if not keys:
        return ["No log has a validation (val-core/.../mean@N). Leave trainer.test_freq above 0."]
    said = [" and ".join(names) + (" (unweighted mean)" if len(names) > 1 else "") for names in keys]
    sentences = [f"Accuracy is {'; or '.join(said)}."]
    if len({tuple(map(_source, names)) for names in keys}) > 1:
        sentences.append("These runs were validated on different data: their accuracies do not compare.")
    return sentences


@dataclass(frozen=True)
class Curve:
    """Accuracy of the seeds of a group at the validations that all of them had: S seeds, V validations."""

    values: Floats  # accuracy, shape (S, V)
    spent: Mapping[str, Floats]  # by axis, shape (S, V); NaN where a seed did not log it
    runs: tuple[Run, ...]  # S of them

    @property
    def steps(self) -> Floats:
        """Training steps of the validations, shape (V,)."""
        return np.asarray(self.spent["step"][0])

    @property
    def mean(self) -> Floats:
        """Mean over seeds, shape (V,)."""
        return np.asarray(self.values.mean(axis=0))

    @property
    def half_width(self) -> Floats:
        """Half the 95 % confidence interval of the mean, shape (V,); NaN with one seed."""
        return half_width(self.values)

    def knows(self, axis: str) -> bool:
        """Whether every seed logged what this axis needs."""
        return not np.isnan(self.spent[axis]).any()


def curve(runs: Sequence[Run], measure: Measure) -> Curve | None:
    """Return the curve of some runs, or None if no validation is common to those that have any."""
    seeds = [(run, values) for run in runs if np.isfinite(values := measure.values(run.log)).any()]
    validated = [run.log.steps[np.isfinite(values)] for run, values in seeds]
    steps = reduce(np.intersect1d, validated) if seeds else np.empty(0)
    if not len(steps):
        return None
    rows = [np.searchsorted(run.log.steps, steps) for run, _ in seeds]
    spent = [progress(run).spent for run, _ in seeds]
    return Curve(
        values=np.array([values[row] for row, (_, values) in zip(rows, seeds, strict=True)]),
        spent={axis: np.array([one[axis][row] for row, one in zip(rows, spent, strict=True)]) for axis in AXES},
        runs=tuple(run for run, _ in seeds),
    )


def curves(groups: Iterable[Group], measure: Measure) -> dict[str, Curve]:
    """Return the curves of the groups that have one, by name."""
    found = ((group.name, curve(group.drawn, measure)) for group in groups)
    return {name: one for name, one in found if one is not None}
