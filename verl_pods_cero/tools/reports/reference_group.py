"""The group that the others are compared with, and why it is that one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from verl_pods_cero.errors import OptionError, nearest
from verl_pods_cero.tools.reports.accuracy import Curve
from verl_pods_cero.tools.reports.groups import Group


def choose_baseline(groups: Sequence[Group], lines: Mapping[str, Curve], name: str | None) -> Group | None:
    """Return the group of `--baseline`, or the one that says most to compare with; None if no group has records.

    That is the first with a validation (a curve among `lines`) and without PODS and CERO; else the first with a
    validation; else the first without PODS and CERO; else the first.

    Raises:
        OptionError: no group has that name, or it has no records.
    """
    drawn = {group.name: group for group in groups if group.drawn}
    if name is None:
        return min(drawn.values(), key=lambda group: (group.name not in lines, not group.is_plain), default=None)
    if name not in drawn:
        raise OptionError("--baseline", "must be the name of a group with a log", name, nearest(name, drawn))
    return drawn[name]


def describe_baseline(baseline: Group | None, lines: Mapping[str, Curve], *, chosen: bool) -> list[str]:
    """Say which group the baseline is, and how it came to be; `chosen` if it was named on the command line."""
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
