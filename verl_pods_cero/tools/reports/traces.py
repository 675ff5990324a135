"""Metrics of training steps, averaged over stretches of steps and over seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from verl_pods_cero.core.arrays import Floats
from verl_pods_cero.tools.reports.groups import Group
from verl_pods_cero.tools.reports.log_files import Log
from verl_pods_cero.tools.reports.spread import half_width

POINTS = 40
"""Most points of a line: a run of more steps is averaged over stretches of them."""

Reader = Callable[[Log], tuple[Floats, Floats]]
"""Gives the steps and the values of a metric."""


@dataclass(frozen=True)
class Trace:
    """A line of a figure, of P points."""

    name: str  # of the group
    steps: Floats  # middle of each stretch, shape (P,)
    mean: Floats  # over the stretch and the seeds, shape (P,)
    half_width: Floats  # half the 95 % confidence interval over seeds, shape (P,); NaN with one seed
    stretch: int  # steps a point


def logged(name: str) -> Reader:
    """Return a reader of one metric."""
    return lambda log: log.series(name)


def effective_prompt_ratio(log: Log) -> tuple[Floats, Floats]:
    """Return the share of prompts with both successes and failures.

    An allocator logs it of each round. With the filter alone it follows from the prompts whose rollouts all
    succeed or all fail; where scorers report no `acc`, prompts whose rollouts have more than one ranking value count.
    """
    steps, values = log.series("cero/effective_prompt_ratio")
    if len(steps):
        return steps, values
    (steps, passed), (_, failed) = log.series("pods/all_pass_fraction"), log.series("pods/all_fail_fraction")
    if len(steps) and len(passed) == len(failed):
        return steps, 1.0 - passed - failed
    steps, equal = log.series("pods/zero_variance_fraction")
    return steps, 1.0 - equal


def trace(group: Group, read: Reader) -> Trace | None:
    """Return the line of a group over the steps that all its seeds have, or None if none logged the metric."""
    series = [(steps, values) for steps, values in (read(run.log) for run in group.drawn) if len(steps)]
    if not series:
        return None
    first, last = min(steps[0] for steps, _ in series), min(steps[-1] for steps, _ in series)
    stretch = max(1, int(np.ceil((last - first + 1) / POINTS)))
    edges = np.arange(first, last + stretch, stretch)
    rows = np.array([_stretches(steps, values, edges, last) for steps, values in series])
    here = ~np.isnan(rows).any(axis=0)
    if not here.any():
        return None
    middles, rows = np.minimum(edges + (stretch - 1) / 2, last)[here], rows[:, here]
    return Trace(group.name, middles, rows.mean(axis=0), half_width(rows), stretch)


def traces(groups: Iterable[Group], read: Reader | None) -> list[Trace]:
    """Return the lines of the groups that logged a metric; of none where there is nothing to read."""
    return [line for group in groups if read is not None and (line := trace(group, read)) is not None]


def _stretches(steps: Floats, values: Floats, edges: Floats, last: float) -> Floats:
    """Average values over [edge, next edge), NaN where there are none."""
    inside = (steps >= edges[0]) & (steps <= last)
    bins = np.searchsorted(edges, steps[inside], side="right") - 1
    counts = np.bincount(bins, minlength=len(edges))
    sums = np.bincount(bins, weights=values[inside], minlength=len(edges))
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
