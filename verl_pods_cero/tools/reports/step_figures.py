"""What was logged at every step, over stretches of steps and over seeds, and its figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from verl_pods_cero.core.arrays import Floats
from verl_pods_cero.tools.reports import drawing
from verl_pods_cero.tools.reports.drawing import COLOURS, Image, Places
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


@dataclass(frozen=True)
class StepFigure:
    """Lines over training steps."""

    heading: str
    names: tuple[str, ...]  # the metrics of which a log has one, if it has something to draw
    caption: str
    panels: Sequence[tuple[str, Reader, Reader | None]] = ()  # a label, what is drawn, and what is drawn dotted
    definition: str = ""  # of its metric, where the caption does not give it

    def draw(self, groups: Sequence[Group], places: Places) -> Image | None:
        """Draw the groups that logged it; None if none did."""
        read = [(label, traces(groups, solid), traces(groups, dotted)) for label, solid, dotted in self.panels]
        shown = [panel for panel in read if panel[1] or panel[2]]
        if not shown:
            return None
        width = 4.5 * len(shown) if len(shown) > 1 else 6.5
        with drawing.canvas(width, 3.3, len(shown), len(shown)) as (figure, axes_of):
            words = []
            for axes, (label, solid, dotted) in zip(axes_of, shown, strict=True):
                named = {line.name for line in solid}
                for line, dashes in [(line, None) for line in solid] + [(line, ":") for line in dotted]:
                    name = None if dashes and line.name in named else line.name
                    drawing.draw_line(axes, line.steps, line.mean, line.half_width, places[line.name], name, dashes)
                    words.append(f"{label} of {line.name}{', dotted,' if dashes else ''} {drawing.from_to(line.mean)}")
                axes.set(xlabel="training steps", ylabel=label)
                drawing.fit_lines(axes)
            drawing.share_legend(figure, axes_of)
            stretch = max(line.stretch for _, solid, dotted in shown for line in (*solid, *dotted))
            caption = (
                f"{self.caption} Each point is the mean of up to {stretch} steps." if stretch > 1 else self.caption
            )
            return drawing.image(figure, f"Lines of {self.heading.lower()}. " + "; ".join(words), caption)


class _Exposures(StepFigure):
    """The rollouts that prompts have had: median, first and last decile, a panel a group."""

    def draw(self, groups: Sequence[Group], places: Places) -> Image | None:
        names = [f"cero/exposures_p{percent}" for percent in (10, 50, 90)]
        deciles = {g.name: [line for name in names if (line := trace(g, logged(name))) is not None] for g in groups}
        found = {name: lines for name, lines in deciles.items() if lines}
        if not found:
            return None
        with drawing.canvas(9, 0.5 + 2.3 * -(-len(found) // 3), len(found), min(3, len(found))) as (figure, panels):
            top = max(float(lines[-1].mean.max()) for lines in found.values())
            for axes, (name, lines) in zip(panels, found.items(), strict=True):
                colour, middle = COLOURS[places[name] % len(COLOURS)], lines[len(lines) // 2]
                axes.fill_between(lines[0].steps, lines[0].mean, lines[-1].mean, color=colour, alpha=0.25, linewidth=0)
                axes.plot(middle.steps, middle.mean, color=colour)
                axes.set(title=name, xlabel="training steps", ylabel="rollouts a prompt", ylim=(0, 1.05 * top or 1))
            ends = {name: " to ".join(f"{line.mean[-1]:.3g}" for line in lines) for name, lines in found.items()}
            words = [f"{name}: at the end {end}" for name, end in ends.items()]
            return drawing.image(figure, "Exposures of prompts. " + "; ".join(words), self.caption)


STEP_FIGURES = (
    StepFigure(
        "Effective prompt ratio",
        ("cero/effective_prompt_ratio", "pods/zero_variance_fraction"),
        "Share of the prompts that got rollouts which had both successes and failures.",
        [("share of prompts", effective_prompt_ratio, None)],
        "The share of prompts with both successes and failures: of the round closed last "
        "(cero/effective_prompt_ratio), or with the filter alone of the step (1 - pods/all_pass_fraction - "
        "pods/all_fail_fraction; where scorers report no acc, 1 - pods/zero_variance_fraction).",
    ),
    StepFigure(
        "Response length",
        ("response_length/mean", "pods/response_length_kept"),
        "Mean length of the responses of a step; dotted: of those that the policy was updated on.",
        [("tokens a response", logged("response_length/mean"), logged("pods/response_length_kept"))],
    ),
    _Exposures(
        "Exposures",
        ("cero/exposures_p50",),
        "Rollouts that a prompt has had so far: median over prompts, and from the first to the last decile.",
    ),
    StepFigure(
        "Calibration",
        ("cero/calibration_mae", "cero/calibration_brier"),
        "Predicted against observed pass rates, of the round closed last; lower is better.",
        [
            ("mean absolute error", logged("cero/calibration_mae"), None),
            ("Brier score", logged("cero/calibration_brier"), None),
        ],
    ),
)
