"""What a report says: its sections, in their order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from verl_pods_cero.tools.reports import tables
from verl_pods_cero.tools.reports.accuracy import Curve, Measure, curves, describe_measure
from verl_pods_cero.tools.reports.comparisons import FEWEST_SEEDS, HELD_EQUAL, equal_amounts, milestones, target
from verl_pods_cero.tools.reports.drawing import Image, Places
from verl_pods_cero.tools.reports.figures import accuracy_figure, ratios_figure, shares_figure, sweep_figure
from verl_pods_cero.tools.reports.groups import Group
from verl_pods_cero.tools.reports.log_files import some
from verl_pods_cero.tools.reports.reference_group import choose_baseline, describe_baseline
from verl_pods_cero.tools.reports.remarks import remarks, resumed
from verl_pods_cero.tools.reports.results import Result, results
from verl_pods_cero.tools.reports.runs import FAILED
from verl_pods_cero.tools.reports.step_figures import STEP_FIGURES
from verl_pods_cero.tools.reports.tables import Table
from verl_pods_cero.tools.reports.time_shares import seconds_a_step

SPREAD = (
    "A line is the mean over the seeds of a group; bands and ± are the 95 % confidence interval of that mean "
    "(Student's t over seeds). One seed has none; wide bands are cut off by their panel."
)
INTERVAL = (
    "A group gets there at its first validation whose mean accuracy over seeds is at least the target; nothing is "
    "interpolated. Intervals are 95 % percentile bootstraps over seeds, by the same draws where both sides have the "
    "same seeds; one that begins at 0 includes not getting there. "
    f"They take at least {FEWEST_SEEDS} seeds on each side."
)
DRAWN_TARGET = "The target is drawn anew as well."
EQUAL = (
    "At a quarter, half and all of what the shortest run had spent at the last validation that its group's seeds all "
    "had. A seed's accuracy is interpolated between the validations before and after; ± is the 95 % confidence "
    "interval (Student's t over seeds) of the mean, or of the mean difference seed by seed, over the seeds that both "
    "groups have: the cell says how many where one of them has more, and there is none where they share fewer than two."
)
NO_VALIDATION = "No log has a validation to draw."


@dataclass(frozen=True)
class Section:
    """A heading and what stands below it."""

    heading: str
    paragraphs: Sequence[str] = ()
    tables: Sequence[Table] = ()
    images: Sequence[Image] = field(default=())


def sections(
    groups: Sequence[Group],
    measure: Measure,
    named: str | None = None,
    goal: float | None = None,
    left_out: Sequence[Path] = (),
) -> list[Section]:
    """Return the sections of a report on groups, in its order.

    Args:
        groups: of runs.
        measure: what accuracy is.
        named: of `--baseline`.
        goal: the accuracy to reach; the baseline's best where it is None.
        left_out: files that are no logs.

    Raises:
        OptionError: no group has that name, or it has no records.
    """
    drawn = [group for group in groups if group.drawn]
    places = {group.name: place for place, group in enumerate(groups)}
    lines = curves(drawn, measure)
    baseline = choose_baseline(groups, lines, named)
    found = results(groups, measure)
    missing = remarks(groups, measure, lines)
    if left_out:
        missing.append(f"Left out, as they are no logs of verl's file logger: {some(left_out, 50)}.")
    return [
        _runs(groups, found, lines, measure, describe_baseline(baseline, lines, chosen=named is not None)),
        *_sweeps(found, places),
        _milestones(lines, baseline, goal, places),
        Section("Validation accuracy", images=[accuracy_figure(lines, places)])
        if lines
        else Section("Validation accuracy", [NO_VALIDATION]),
        *_equal_amounts(lines, baseline),
        _time(drawn),
        *_steps(drawn, places),
        Section("What is missing", missing or ["Nothing that this report looks for."]),
    ]


def _runs(
    groups: Sequence[Group], found: Sequence[Result], lines: Mapping[str, Curve], measure: Measure, baseline: list[str]
) -> Section:
    paragraphs = describe_measure(measure, [one.run for one in found]) + baseline
    paragraphs.append(
        "Time is the sum of training steps and validations, without start-up (timing_s/step, timing_s/testing)."
    )
    single = [one for one in found if one.run.sweep is None]
    shown = [tables.run_table(single)] if single else []
    if any(len(group.drawn) > 1 for group in groups):
        paragraphs.append(SPREAD)
        shown.append(tables.group_table(groups, found, lines))
    return Section("Runs", paragraphs, shown)


def _sweeps(found: Sequence[Result], places: Places) -> list[Section]:
    jobs: dict[Path, list[Result]] = {}
    for one in found:
        if one.run.sweep is not None:
            jobs.setdefault(one.run.sweep, []).append(one)
    made = []
    for sweep, own in jobs.items():
        own.sort(key=lambda one: one.run.job.number)
        failed = sum(one.run.status == FAILED for one in own)
        counts = f"{len(own)} jobs, {failed} of them failed." if failed else f"{len(own)} jobs."
        images = [sweep_figure(own, places)] if any(np.isfinite(one.last) for one in own) else []
        paragraphs = [counts] if images else [counts, NO_VALIDATION]
        made.append(Section(f"Multirun {sweep}", paragraphs, [tables.sweep_table(sweep, own)], images))
    return made


def _milestones(lines: Mapping[str, Curve], baseline: Group | None, goal: float | None, places: Places) -> Section:
    heading = "Time and rollouts to " + ("the baseline's best accuracy" if goal is None else f"an accuracy of {goal:g}")
    if baseline is None or baseline.name not in lines:
        return Section(heading, ["The baseline has no validation: there is nothing to compare with."])
    interval = INTERVAL if goal is not None else f"{INTERVAL} {DRAWN_TARGET}"
    found, least = milestones(lines, baseline.name, goal), target(lines[baseline.name]) if goal is None else goal
    shown = [tables.milestone_table(found, baseline.name, least)]
    if len(lines) == 1:
        return Section(heading, ["There is no other group to compare the baseline with."], shown)
    figure = ratios_figure(found, baseline.name, least, places)
    shown.append(tables.ratio_table(found, baseline.name))
    said = [interval, *resumed(lines)]
    if not any(one.spent for one in found if one.group == baseline.name):
        said.append(f"{baseline.name} does not get there: no ratio is finite, and none is drawn.")
    return Section(heading, said, shown, [figure] if figure else [])


def _equal_amounts(lines: Mapping[str, Curve], baseline: Group | None) -> list[Section]:
    if baseline is None or baseline.name not in lines:
        return []
    found = (equal_amounts(lines, baseline.name, axis) for axis in HELD_EQUAL)
    shown = [tables.equal_amounts_table(one, baseline.name) for one in found if one is not None]
    return [Section("Accuracy at equal rollouts and equal time", [EQUAL, *resumed(lines)], shown)] if shown else []


def _time(drawn: Sequence[Group]) -> Section:
    shares: dict[str, dict[str, float]] = {}
    for group in drawn:
        seeds = [share for run in group.drawn if (share := seconds_a_step(run.log))]
        parts = dict.fromkeys(part for share in seeds for part in share)
        if seeds:
            shares[group.name] = {part: float(np.mean([share.get(part, 0.0) for share in seeds])) for part in parts}
    if not shares:
        return Section("Where the time went", ["No log has timing_s/step: no time is known."])
    return Section("Where the time went", _absent(drawn, shares), images=[shares_figure(shares)])


def _steps(drawn: Sequence[Group], places: Places) -> list[Section]:
    made = []
    for one in STEP_FIGURES:
        figure = one.draw(drawn, places)
        having = [g.name for g in drawn if any(not run.log.names.isdisjoint(one.names) for run in g.drawn)]
        if figure is None:
            made.append(Section(one.heading, [f"No log has {' or '.join(one.names)}."]))
        else:
            said = [*filter(None, [one.definition]), *_absent(drawn, having)]
            made.append(Section(one.heading, said, images=[figure]))
    return made


def _absent(drawn: Sequence[Group], having: Mapping[str, object] | Sequence[str]) -> list[str]:
    lacking = [group.name for group in drawn if group.name not in having]
    return [f"Not logged by: {', '.join(lacking)}."] if lacking else []
