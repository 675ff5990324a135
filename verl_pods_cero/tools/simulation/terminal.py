"""A simulation's tables in the terminal."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from verl_pods_cero.tools.simulation.filters import FILTER_MEASURES
from verl_pods_cero.tools.simulation.summary import Spread, Summary

if TYPE_CHECKING:
    from rich.table import Table

_SHOWN = ("uniform", "cero")

# Heading, measure, and how `_number` writes it: before and after the differences between allocators.
_BEFORE: tuple[tuple[Any, ...], ...] = (
    ("rollouts", "rollouts", 0),
    ("effective prompts", "effective_prompt_ratio", 1, 100.0, "%"),
)
_AFTER: tuple[tuple[Any, ...], ...] = (
    ("mixed / 1000 rollouts", "mixed_per_1000", 1),
    ("rollouts in mixed groups", "effective_rollout_ratio", 1, 100.0, "%"),
    ("distinct mixed prompts", "mixed_prompts_share", 1, 100.0, "%"),
    ("effective number", "effective_number_share", 1, 100.0, "%"),
    ("utility / best", "utility_share", 1, 100.0, "%"),
    ("coverage", "coverage", 1, 100.0, "%"),
    ("|predicted - true|", "calibration_true_mae", 3),
)


def allocator_table(summary: Summary) -> Table:
    """Compare the players: mean and standard deviation over seeds."""
    from rich.table import Table

    seeds = len(next(iter(summary.results.values())))
    title = f"Allocators: mean and standard deviation over {seeds} seeds" if seeds > 1 else "Allocators, one seed"
    table = Table(title=title, title_justify="left", caption_justify="left", caption=_legend(summary))
    table.add_column("allocator", no_wrap=True)
    last = (f"rollouts to {summary.target} mixed", "rollouts_to_target", 0)
    less = [f"less {reference}, points" for reference in summary.references]
    for heading in (*(each[0] for each in _BEFORE), *less, *(each[0] for each in (*_AFTER, last))):
        table.add_column(heading, justify="right")
    for player in summary.results:
        before, after = (
            [_number(summary.spread(player, measure), *form) for _, measure, *form in columns]
            for columns in (_BEFORE, (*_AFTER, last))
        )
        pairs = (summary.differences(player, reference, "effective_prompt_ratio") for reference in summary.references)
        compared = [_number(Spread.of(each), 1, 100.0, sign="+") for each in pairs]
        compared = ["" if name == player else cell for name, cell in zip(summary.references, compared, strict=True)]
        table.add_row(player, *before, *compared, *after)
    return table


def filter_table(summary: Summary) -> Table | None:
    """What PODS' rules keep of the groups of two players; None where nothing was filtered."""
    from rich.table import Table

    shown = [name for name in _SHOWN if name in summary.results] or list(summary.results)[:1]
    if not any(summary.results[name][0].filters for name in shown):
        return None
    table = Table(title="PODS on top: means over seeds; binary rewards", title_justify="left")
    table.add_column("allocator", no_wrap=True)
    table.add_column("rule", no_wrap=True)
    for heading in ("keep", "variance generated", "variance kept", "mixed groups that stay mixed", "updates saved"):
        table.add_column(heading, justify="right")
    for player in shown:
        results = summary.results[player]
        for key in results[0].filters:
            generated, kept, mixed, saved = (
                float(np.mean([one.filters[key][name] for one in results])) for name in FILTER_MEASURES
            )
            numbers = (f"{generated:.3f}", f"{kept:.3f}", f"{100 * mixed:.1f} %", f"{100 * saved:.1f} %")
            table.add_row(player, *map(str, key), *numbers)
    return table


def _legend(summary: Summary) -> str:
    compared = " and ".join(summary.references)
    return (
        f"effective prompts: groups with a success and a failure. less {compared}: paired by seed. distinct mixed"
        " prompts: of those neither always solved nor never. effective number: (sum r)^2 / sum r^2 over prompts with r"
        " rollouts in mixed groups, of all prompts. utility / best:"
        " CERO's utility as a share of what the best split in hindsight has. coverage: prompts that had a rollout."
    )


def _number(spread: Spread, digits: int, scale: float = 1.0, unit: str = "", sign: str = "") -> str:
    """Write a mean and its spread.

    >>> _number(Spread.of([0.5, 0.52]), 1, 100.0, "%"), _number(Spread.of([float("inf")]), 0)
    ('51.0 ± 1.4 %', 'not reached')
    """
    if math.isinf(spread.mean):
        return "not reached"
    if math.isnan(spread.mean):
        return ""
    text = f"{spread.mean * scale:{sign}.{digits}f}"
    if not math.isnan(spread.deviation):
        text += f" ± {spread.deviation * scale:.{digits}f}"
    return f"{text} {unit}".rstrip()
