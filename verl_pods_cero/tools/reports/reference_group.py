"""The group that the others are compared with, and why it is that one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from verl_pods_cero.errors import OptionError, nearest
from verl_pods_cero.tools.reports.accuracy import Curve
from verl_pods_cero.tools.reports.groups import Group


def choose_baseline(groups: Sequence[Group], lines: Mapping[str, Curve], name: str | None) -> Group | None:
    """Return the group named, or the one that says most to compare with.

    Args:
        groups: in the order of the report.
        lines: the curves of those that have one.
        name: of `--baseline`.

    Returns:
        The first with a validation and without PODS and CERO; else the first with a validation; else, of those with
        records, the first without PODS and CERO, or the first. None if no group has records.

    Raises:
        OptionError: no group has that name, or it has no records.
    """
    drawn = [group for group in groups if group.drawn]
    if name is None:
        return min(drawn, key=lambda group: (group.name not in lines, not group.is_plain), default=None)
    for group in drawn:
        if group.name == name:
            return group
    raise OptionError(
        "--baseline", "must be the name of a group with a log", name, nearest(name, [g.name for g in drawn])
    )


def describe_baseline(baseline: Group | None, lines: Mapping[str, Curve], *, chosen: bool) -> list[str]:
    """Say which group the baseline is, and how it came to be.

    Args:
        baseline: what `choose_baseline` returned.
        lines: the curves of the groups that have one.
        chosen: it was named on the command line.
    """
    if baseline is None:
        return ["No run has logged a step yet."]
    if not lines:
        return []
    if chosen:
        return [f"Baseline: {baseline.name}, as asked for."]
    why = "the first without PODS and CERO that has a validation"
    if not baseline.is_plain:
        why = "the first that has a validation, as none of these is without PODS and CERO"
    return [f"Baseline: {baseline.name}, {why} (--baseline NAME takes another)."]
