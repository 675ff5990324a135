"""Tables of a report: the same rows for the terminal and for the page."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from verl_pods_cero.core.arrays import Floats
from verl_pods_cero.tools.reports.accuracy import Curve
from verl_pods_cero.tools.reports.comparisons import EqualAmounts, Milestone, Ratio
from verl_pods_cero.tools.reports.groups import Group, own_overrides
from verl_pods_cero.tools.reports.quantities import AXES
from verl_pods_cero.tools.reports.results import Result
from verl_pods_cero.tools.reports.spread import half_width

NOTHING = "–"


@dataclass(frozen=True)
class Table:
    """A caption, one header a column, and rows of as many cells."""

    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


Writer = Callable[[float], str]


def number(form: str) -> Writer:
    """Return what writes finite numbers in a form.

    >>> accuracy(0.96875), count(30720.0), accuracy(float("nan"))
    ('0.969', '30,720', '–')
    """
    return lambda value: format(value, form) if math.isfinite(value) else NOTHING


accuracy, count, _signed = number(".3f"), number(",.0f"), number("+.3f")


def duration(seconds: float, like: float | None = None) -> str:
    """Write a time, in the unit that suits it, or that suits `like`.

    >>> duration(8.25), duration(312.4), duration(4000), duration(20, like=4000), duration(float("nan"))
    ('8.2 s', '5.2 min', '1.11 h', '0.01 h', '–')
    """
    scale = seconds if like is None else like
    if not math.isfinite(seconds):
        return NOTHING
    if scale < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if scale < 3600 else f"{seconds / 3600:.2f} h"


_RESULTS: Mapping[str, tuple[str, Writer]] = {
    "first": ("first", accuracy),
    "best": ("best", accuracy),
    "last": ("last", accuracy),
    "rollouts": ("rollouts generated", count),
    "updated": ("rollouts updated on", count),
    "wall_s": ("time", duration),
}
_RESULT_HEADER = tuple(label for label, _ in _RESULTS.values())
_AMOUNTS: Mapping[str, Writer] = {axis: duration if axis.endswith("_s") else count for axis in AXES}


def run_table(found: Sequence[Result]) -> Table:
    """Return a row a run."""
    rows = ((one.group, one.seed or NOTHING, _status(one), *_cells(one)) for one in found)
    return Table("A row a run", ("group", "seed", "status", *_RESULT_HEADER), tuple(rows))


def sweep_table(sweep: Path, found: Sequence[Result]) -> Table:
    """Return a row a job of a multirun."""
    overrides = own_overrides([one.run for one in found], seeds=True)
    rows = (
        (one.run.path.name, own or NOTHING, _status(one), *_cells(one))
        for one, own in zip(found, overrides, strict=True)
    )
    return Table(f"Jobs of {sweep}", ("job", "overrides", "status", *_RESULT_HEADER), tuple(rows))


def group_table(groups: Sequence[Group], found: Sequence[Result], curves: Mapping[str, Curve]) -> Table:
    """Return a row a group: means over seeds with their 95 % confidence interval."""
    rows = []
    for group in groups:
        drawn = [one for one in found if one.run in group.drawn]
        if not drawn:
            continue
        cells = {name: _mean([getattr(one, name) for one in drawn], write) for name, (_, write) in _RESULTS.items()}
        curve = curves.get(group.name)
        if curve is not None:
            # at the validations that all seeds had: one that is still running has an early last one of its own
            for name, column in (("first", 0), ("best", int(curve.mean.argmax())), ("last", -1)):
                cells[name] = _mean(list(curve.values[:, column]), accuracy)
        rows.append((group.name, str(len(drawn)), *cells.values()))
    caption = "Means over seeds, ± half of the 95 % confidence interval"
    return Table(caption, ("group", "seeds", *_RESULT_HEADER), tuple(rows))


def milestone_table(found: Sequence[Milestone], baseline: str, goal: float) -> Table:
    """Return a row a group: what it had spent when it got to an accuracy."""
    rows = []
    for one in found:
        amounts = (write(one.spent.get(axis, float("nan"))) for axis, write in _AMOUNTS.items())
        name = _marked(one.group, baseline)
        rows.append((name, accuracy(one.best), *(amounts if one.spent else ["not reached"] * len(_AMOUNTS))))
    caption = f"Spent at the first validation of at least {accuracy(goal)}"
    return Table(caption, ("group", "best", *AXES.values()), tuple(rows))


def ratio_table(found: Sequence[Milestone], baseline: str) -> Table:
    """Return a row a group: how many times less than the baseline it had spent."""
    rows = (
        (one.group, *(_ratio(one.ratios[axis]) if axis in one.ratios else NOTHING for axis in AXES))
        for one in found
        if one.group != baseline
    )
    caption = f"What {baseline} had spent over what the group had: above 1 the group took less"
    return Table(caption, ("group", *AXES.values()), tuple(rows))


def equal_amounts_table(found: EqualAmounts, baseline: str) -> Table:
    """Return a row a group: its accuracy at amounts that are the same for all, and how much above the baseline's."""
    write = _AMOUNTS[found.axis]
    header = ("group", *(cell for amount in found.amounts for cell in (f"at {write(amount)}", f"minus {baseline}")))
    rows = []
    for name, values in found.accuracy.items():
        gains = found.gain.get(name)
        seeds = max(len(values), len(found.accuracy[baseline]))
        cells = []
        for column in range(len(found.amounts)):
            cells += [
                _mean(values[:, column], accuracy),
                NOTHING if gains is None else _gain(gains[:, column], seeds),
            ]
        rows.append((_marked(name, baseline), *cells))
    return Table(f"Accuracy at the same {AXES[found.axis]}", header, tuple(rows))


def _marked(name: str, baseline: str) -> str:
    return f"{name} (baseline)" if name == baseline else name


def _cells(one: Result) -> tuple[str, ...]:
    return tuple(write(getattr(one, name)) for name, (_, write) in _RESULTS.items())


def _status(one: Result) -> str:
    return f"{one.run.status}: {one.run.detail}" if one.run.detail else one.run.status


def _mean(values: Sequence[float] | Floats, write: Writer, write_spread: Writer | None = None) -> str:
    """Write a mean over seeds, and half of its 95 % confidence interval where there is one.

    >>> _mean([0.5, 0.75], accuracy), _mean([0.5, 0.75], _signed, accuracy), _mean([0.5], accuracy)
    ('0.625 ± 1.588', '+0.625 ± 1.588', '0.500')
    """
    mean, half = float(np.mean(values)), float(half_width(values))
    if not math.isfinite(mean) or not math.isfinite(half) or half == 0:
        return write(mean)
    spread = duration(half, like=mean) if write is duration else (write_spread or write)(half)
    return f"{write(mean)} ± {spread}"


def _gain(differences: Floats, seeds: int) -> str:
    """Write a mean difference, and over how many seeds it is where that is not all of them.

    >>> _gain(np.array([0.25, 0.25]), 2), _gain(np.array([0.25, 0.25]), 3), _gain(np.array([0.25, np.nan]), 3)
    ('+0.250', '+0.250 over 2 seeds', '–')
    """
    cell = _mean(differences, _signed, accuracy)
    return cell if cell == NOTHING or len(differences) == seeds else f"{cell} over {len(differences)} seeds"


def _ratio(ratio: Ratio) -> str:
    """Write a ratio and its interval.

    >>> nan = float("nan")
    >>> _ratio(Ratio(1.7, 1.25, 2.0)), _ratio(Ratio(1.7, 0.0, 2.0)), _ratio(Ratio(1.7, nan, nan))
    ('1.70 (1.25 to 2.00)', '1.70 (0 to 2.00)', '1.70')
    >>> _ratio(Ratio(float("inf"), nan, nan)), _ratio(Ratio(0.0, 0.0, 0.0))
    ('not reached by the baseline', 'not reached')
    """
    if math.isinf(ratio.value):
        return "not reached by the baseline"
    value = f"{ratio.value:.2f}" if ratio.value else "not reached"
    if math.isnan(ratio.low) or not ratio.high:
        return value
    low = f"{ratio.low:.2f}" if ratio.low else "0"
    return f"{value} ({low} to {f'{ratio.high:.2f}' if math.isfinite(ratio.high) else 'no end'})"
