"""What is missing from logs, and what cannot be compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from verl_pods_cero.tools.reports.accuracy import Curve, Measure
from verl_pods_cero.tools.reports.groups import Group
from verl_pods_cero.tools.reports.log_files import some
from verl_pods_cero.tools.reports.quantities import progress
from verl_pods_cero.tools.reports.runs import Run


def remarks(groups: Sequence[Group], measure: Measure, lines: Mapping[str, Curve]) -> list[str]:
    """Say what is odd about the logs, where numbers were taken from, and which validations do not compare."""
    where: dict[tuple[str, str], list[Path]] = {}
    for group in groups:
        for run in group.runs:
            for remark in _of_run(run):
                where.setdefault((group.name, remark), []).append(run.log.path)
    sentences = [f"{name} {remark} ({some(paths, 3)})." for (name, remark), paths in where.items()]
    for group in groups:
        if left_out := [run.log.path for run in group.logged if run not in group.drawn]:
            count, which = f"{len(left_out)} of its {len(group.logged)} runs", some(left_out, 3)
            why = "which did not finish, or came less than half as far as another"
            sentences.append(f"{group.name} is shown without {count}, {why} ({which}).")
    for group in groups:
        if lines and group.drawn:  # without any, all else says so
            most = max(int(np.isfinite(measure.values(run.log)).sum()) for run in group.drawn)
            common = len(lines[group.name].steps) if group.name in lines else 0
            if not most:
                sentences.append(f"{group.name} has no validation, and is in no comparison of accuracies.")
            elif common < most:
                had = f"the {common} validations that all its seeds had; one seed had {most}"
                sentences.append(f"{group.name} is compared at {had}.")
    return sentences


def resumed(lines: Mapping[str, Curve]) -> list[str]:
    """Name the groups whose logs begin in the middle: every comparison of amounts is in their favour."""
    names = ", ".join(name for name, one in lines.items() if any(run.log.begins_late for run in one.runs))
    return [f"Not comparable: {names}. What was spent before the log's first step is not known."] if names else []


def _of_run(run: Run) -> list[str]:
    if run.log.trouble is not None:
        return [*run.job.remarks, f"is shown without numbers: {run.log.trouble.clause}"]
    if not len(run.log.steps) and not run.log.remarks:
        where = "verl's file logger writes <project>/<experiment>.jsonl below VERL_FILE_LOGGER_ROOT"
        return [*run.job.remarks, f"has no log: {where}; none is there before the first step"]
    spent = progress(run)
    said = [*run.log.remarks, *run.job.remarks, *spent.remarks]
    if len(run.log.steps) and spent.rollouts_from.startswith("its options"):
        said.append(f"logs no rollouts; they are counted from {spent.rollouts_from}")
    return said
