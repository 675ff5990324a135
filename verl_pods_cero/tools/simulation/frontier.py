"""Signal against breadth, one point a player: what it pays to be greedy, and what it costs."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from verl_pods_cero.tools.reports.drawing import canvas, image, line_style, share_legend
from verl_pods_cero.tools.simulation.summary import Summary

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIGNAL = "effective_rollout_ratio"
BREADTH = {
    "mixed_prompts_share": "distinct prompts with a mixed group, % of those that could have one",
    "effective_number_share": "effective number of prompts in mixed groups, % of all",
}


def draw_frontier(folder: Path, summary: Summary, title: str) -> Path:
    """Draw signal against both measures of breadth into the folder, as `frontier.svg`."""
    with canvas(11.0, 5.2, panels=2, columns=2) as (figure, panels):
        for axes, (measure, words) in zip(panels, BREADTH.items(), strict=True):
            _points(axes, summary, measure)
            axes.set(xlabel=words, ylabel="rollouts in mixed groups, %")
        figure.suptitle(title, fontsize=8, x=0.01, horizontalalignment="left")
        share_legend(figure, panels)
        made = image(figure, "signal against breadth", title)
    path = folder / "frontier.svg"
    path.write_bytes(made.svg)
    return path


def _points(axes: Axes, summary: Summary, breadth: str) -> None:
    """Players that differ in their settings alone are joined, in the order given."""
    for number, (name, labels) in enumerate(groupby(summary.results, key=lambda label: label.partition("@")[0])):
        players = list(labels)
        x, y = ([100.0 * summary.spread(player, measure).mean for player in players] for measure in (breadth, SIGNAL))
        style = line_style(number, dashes="-" if len(players) > 1 else "none")
        axes.plot(x, y, label=name, **{**style, "markersize": 6})
        for player, place in zip(players, zip(x, y, strict=True), strict=True):
            if own := player.partition("@")[2]:
                # Neighbours in the legend are often neighbours here.
                side, where = (6, "left") if number % 2 else (-6, "right")
                axes.annotate(own, place, (side, 3), textcoords="offset points", fontsize=7, horizontalalignment=where)
