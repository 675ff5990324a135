"""Figures of accuracy and time: curves, milestones, shares, and the jobs of a sweep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from verl_pods_cero.tools.reports import drawing
from verl_pods_cero.tools.reports.accuracy import Curve
from verl_pods_cero.tools.reports.comparisons import Milestone
from verl_pods_cero.tools.reports.drawing import COLOURS, Image, Places
from verl_pods_cero.tools.reports.quantities import AXES
from verl_pods_cero.tools.reports.results import Result
from verl_pods_cero.tools.reports.tables import accuracy
from verl_pods_cero.tools.reports.time_shares import OTHER, PARTS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_PART_STYLES = {
    "generation": (COLOURS[0], None),
    "log-probabilities": (COLOURS[2], None),
    "update": (COLOURS[1], None),
    "filter": (COLOURS[3], None),
    "allocation": (COLOURS[4], None),
    "weights sync": (COLOURS[0], "xx"),
    "reward": (COLOURS[2], "xx"),
    OTHER: ("#DDDDDD", None),
}

_ACCURACY_AXES = ("step", "wall_s", "rollouts", "tokens")


def draw_accuracy(axes: Axes, curve: Curve, axis: str, number: int = 0, label: str | None = None) -> None:
    """Draw a curve of validation accuracy against one of `AXES`."""
    drawing.draw_line(axes, curve.spent[axis].mean(axis=0), curve.mean, curve.half_width, number, label)
    axes.set(xlabel=AXES[axis], ylabel="validation accuracy")


def accuracy_figure(curves: Mapping[str, Curve], places: Places) -> Image:
    """Draw accuracy against steps, wall-clock, rollouts and tokens, as far as they were logged."""
    known = [axis for axis in _ACCURACY_AXES if any(curve.knows(axis) for curve in curves.values())]
    with drawing.canvas(9, 0.6 + 2.7 * -(-len(known) // 2), len(known), min(2, len(known))) as (figure, panels):
        for axes, axis in zip(panels, known, strict=True):
            for name, curve in curves.items():
                if curve.knows(axis):
                    draw_accuracy(axes, curve, axis, places[name], name)
            drawing.fit_lines(axes)
            if axis.endswith("_s"):
                drawing.show_as_time(axes)
        drawing.share_legend(figure, panels)
        alt = "Validation accuracy of " + "; ".join(f"{name}: {_in_words(curve)}" for name, curve in curves.items())
        missing = [AXES[axis] for axis in _ACCURACY_AXES if axis not in known]
        caption = "Validation accuracy against what had been spent before the validation."
        if missing:
            caption += f" No log tells its {' and '.join(missing)}."
        return drawing.image(figure, alt, caption)


def _in_words(curve: Curve) -> str:
    last = curve.half_width[-1]
    spread = f" ± {last:.2g}" if np.isfinite(last) else ""
    return f"{drawing.from_to(curve.mean)}{spread} over {int(curve.steps[-1])} steps, {len(curve.runs)} seed(s)"


def shares_figure(shares: Mapping[str, Mapping[str, float]]) -> Image:
    """Draw the seconds of a step by part: a bar a group, with the share written into each part that has room."""
    totals = {name: sum(seconds.values()) for name, seconds in shares.items()}
    with drawing.canvas(9, 1.3 + 0.5 * len(shares)) as (figure, (axes,)):
        left = np.zeros(len(shares))
        for part in (part for part in (*PARTS, OTHER) if any(part in seconds for seconds in shares.values())):
            widths = np.array([seconds.get(part, 0.0) for seconds in shares.values()])
            colour, hatch = _PART_STYLES.get(part, ("#999999", "//"))
            bars = axes.barh(list(shares), widths, left=left, label=part, color=colour, hatch=hatch, edgecolor="white")
            room = 0.05 * max(totals.values())
            texts = [f"{w / total:.0%}" if w > room else "" for w, total in zip(widths, totals.values(), strict=True)]
            axes.bar_label(bars, texts, label_type="center", color="black" if part == OTHER else "white", fontsize=8)
            left += widths
        axes.set(xlabel="seconds a training step")
        axes.grid(axis="y", visible=False)
        axes.invert_yaxis()
        drawing.share_legend(figure, [axes])
        words = []
        for name, total in totals.items():
            parts = ", ".join(f"{part} {share / total:.0%}" for part, share in shares[name].items() if total)
            words.append(f"{name}: {total:.3g} s a step: {parts}")
        caption = "Seconds of a training step by part; the mean over steps and seeds, without validation."
        return drawing.image(figure, "Time of a training step. " + "; ".join(words), caption)


def ratios_figure(found: Sequence[Milestone], baseline: str, goal: float, places: Places) -> Image | None:
    """Draw how many times less each group needs than the baseline, or nothing if no group has a finite ratio."""
    compared = [one for one in found if any(np.isfinite(ratio.value) for ratio in one.ratios.values())]
    axes_known = [axis for axis in ("wall_s", "rollouts") if any(axis in one.ratios for one in compared)]
    if not axes_known:
        return None
    ends = [end for one in compared for ratio in one.ratios.values() for end in (ratio.value, ratio.high)]
    edge = 1.1 * max(end for end in [*ends, 1.0] if np.isfinite(end))  # where intervals without an end end
    with drawing.canvas(9, 1.2 + 0.4 * len(compared), len(axes_known), len(axes_known)) as (figure, panels):
        for axes, axis in zip(panels, axes_known, strict=True):
            for row, one in enumerate(compared):
                if axis not in one.ratios:
                    continue
                ratio, style = one.ratios[axis], drawing.line_style(places[one.group], "-")
                if np.isfinite(ratio.low):
                    axes.hlines(row, ratio.low, min(ratio.high, edge), color=style["color"])
                axes.plot(ratio.value, row, marker=style["marker"], color=style["color"])
            axes.axvline(1, color="black", linewidth=0.8)
            axes.set_yticks(range(len(compared)), [one.group for one in compared] if axis == axes_known[0] else [])
            axes.set(xlabel=f"{AXES[axis]}: {baseline}'s over the group's", ylim=(len(compared) - 0.5, -0.5))
            axes.set_xlim(left=-0.03 * edge)
        words = [
            f"{one.group}: " + ", ".join(f"{AXES[axis]} {ratio.value:.2f}" for axis, ratio in one.ratios.items())
            for one in compared
        ]
        what = f"What {baseline} had spent at an accuracy of {accuracy(goal)}, over what the group had"
        caption = f"{what}: above 1 the group took less; 0 is not reached."
        return drawing.image(figure, f"{what}. " + "; ".join(words), caption)


def sweep_figure(found: Sequence[Result], places: Places) -> Image:
    """Draw the best and the last accuracy of each group of a multirun, against the time of its jobs."""
    names = list(dict.fromkeys(one.group for one in found if np.isfinite(one.last)))
    with drawing.canvas(9, 1.4 + 0.35 * len(names), 2, 2) as (figure, (over_jobs, over_time)):
        words = []
        for row, name in enumerate(names):
            jobs = [one for one in found if one.group == name and np.isfinite(one.last)]
            style = drawing.line_style(places[name], "")
            last, best = (np.array([getattr(job, which) for job in jobs]) for which in ("last", "best"))
            over_jobs.plot(last, [row] * len(jobs), **style)
            over_jobs.plot(best, [row] * len(jobs), **style, markerfacecolor="none")
            over_time.plot([job.wall_s for job in jobs], last, **style)
            words.append(f"{name}: last {last.mean():.3g}, best {best.mean():.3g}, {len(jobs)} job(s)")
        over_jobs.set_yticks(range(len(names)), names)
        over_jobs.set(xlabel="validation accuracy", ylim=(len(names) - 0.5, -0.5))
        over_time.set(xlabel=AXES["wall_s"], ylabel="last validation accuracy")
        drawing.show_as_time(over_time)
        caption = "A mark a job. Filled: its last accuracy; hollow: its best. Right: the last against the time it took."
        return drawing.image(figure, "Accuracy of the jobs. " + "; ".join(words), caption)
