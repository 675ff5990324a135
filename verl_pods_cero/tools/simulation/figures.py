"""A simulation's figures."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from verl_pods_cero.tools.reports.drawing import COLOURS
from verl_pods_cero.tools.simulation.csv_files import STRETCHES, per_prompt, pooled_calibration
from verl_pods_cero.tools.simulation.filters import RULES
from verl_pods_cero.tools.simulation.frontier import draw_frontier
from verl_pods_cero.tools.simulation.measures import DIFFICULTY
from verl_pods_cero.tools.simulation.summary import Summary, curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BLUE, _RED, _GREEN, _PINK, _BLACK, _SKY, _ORANGE = COLOURS
_COLOURS = (_GREEN, _PINK, _ORANGE, _SKY, "#8C564B", "#999933", "#AA4499", "#332288")
_STYLES: dict[str, dict[str, Any]] = {
    "uniform": {"color": "#555555"},
    "random_matched": {"color": "#999999", "linestyle": "--"},
    "cero": {"color": _RED, "linewidth": 2.2},
    "prioritized": {"color": _BLUE, "linewidth": 2.2},
    "offline_optimum": {"color": _BLACK, "linestyle": ":"},
}


def draw_all(folder: Path, summary: Summary, budget: int, title: str) -> list[Path]:
    """Draw every figure into the folder and return their paths."""
    figures = {"effective_prompts": _effective_prompts(summary, budget), "prompts": _prompts(summary)}
    if len(next(iter(summary.results.values()))[0].accuracy):
        figures["accuracy"] = _accuracy(summary, budget)
    if any(result.filters for results in summary.results.values() for result in results):
        figures["filters"] = _filters(summary)
    paths = []
    for name, figure in figures.items():
        figure.suptitle(
            f"{title}, bands and bars: one standard deviation over seeds",
            fontsize=9,
            x=0.01,
            horizontalalignment="left",
        )
        paths.append(folder / f"{name}.png")
        figure.savefig(paths[-1], dpi=100)
    return [*paths, draw_frontier(folder, summary, f"{title}, means over them")]


def _styles(summary: Summary) -> dict[str, dict[str, Any]]:
    others = [name for name in summary.results if name not in _STYLES]
    own = {name: {"color": _COLOURS[number % len(_COLOURS)]} for number, name in enumerate(others)}
    return {name: {"label": name, **_STYLES.get(name, own.get(name, {}))} for name in summary.results}


def _pair() -> tuple[Figure, Axes, Axes]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12.0, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    for axes in (left, right):
        axes.grid(alpha=0.3)
    return figure, left, right


def _with_legend(figure: Figure, axes: Axes) -> Figure:
    handles, labels = axes.get_legend_handles_labels()
    # No more than a row holds, and rows of like length.
    columns = -(-len(labels) // -(-len(labels) // 9))
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, fontsize=8, frameon=False)
    return figure


def _effective_prompts(summary: Summary, budget: int) -> Figure:
    figure, left, right = _pair()
    edges = np.linspace(0.0, budget, STRETCHES + 1)
    middles, reference = (edges[1:] + edges[:-1]) / 2, summary.references[0]
    _, base = curve(summary.results[reference], edges)
    for name, style in _styles(summary).items():
        ratios, counts = curve(summary.results[name], edges)
        _banded(left, middles, ratios, style)
        _banded(right, edges[1:], counts - base, style)
    left.set(xlabel="rollouts", ylabel="share of groups with both outcomes", title="Effective prompt ratio")
    right.set(xlabel="rollouts", ylabel="mixed groups", title=f"Mixed groups ahead of {reference}, same seed")
    return _with_legend(figure, left)


def _banded(axes: Axes, x: np.ndarray, values: np.ndarray, style: dict[str, Any]) -> None:
    """Draw the mean over seeds and a band of one standard deviation where every seed has a value."""
    whole = ~np.isnan(values).any(axis=0)
    if not whole.any():
        return
    mean = values[:, whole].mean(axis=0)
    axes.plot(x[whole], mean, **style)
    if len(values) > 1:
        deviation = values[:, whole].std(axis=0, ddof=1)
        axes.fill_between(x[whole], mean - deviation, mean + deviation, color=style["color"], alpha=0.2, linewidth=0)


def _accuracy(summary: Summary, budget: int) -> Figure:
    figure, left, right = _pair()
    rollouts, reference = np.linspace(0.0, budget, STRETCHES + 1), summary.references[0]

    def curves(name: str) -> np.ndarray:
        return np.array(
            [np.interp(rollouts, [0.0, *one.spent], one.accuracy, right=np.nan) for one in summary.results[name]]
        )

    base = curves(reference)
    for name, style in _styles(summary).items():
        _banded(left, rollouts, curves(name), style)
        _banded(right, rollouts, curves(name) - base, style)
    left.set(xlabel="rollouts", ylabel="accuracy (mean true pass rate)", title="What the made-up policy learns")
    right.set(xlabel="rollouts", ylabel="accuracy", title=f"Ahead of {reference}, same seed")
    return _with_legend(figure, left)


def _prompts(summary: Summary) -> Figure:
    figure, left, right = _pair()
    classes = [f"{low:g}-{high:g}" for low, high in pairwise(DIFFICULTY)]
    for name, style in _styles(summary).items():
        results = summary.results[name]
        spreads = per_prompt(results)
        left.errorbar(
            range(len(classes)), [s.mean for s in spreads], [np.nan_to_num(s.deviation) for s in spreads], **style
        )
        predicted, observed, _ = pooled_calibration(results)
        right.plot(predicted, observed, marker="o", markersize=3, **style)
    prompts = np.mean([one.difficulty.counts for one in next(iter(summary.results.values()))], axis=0)
    left.set_xticks(range(len(classes)), [f"{c}\n{p:.0f}" for c, p in zip(classes, prompts, strict=True)], fontsize=8)
    left.set(xlabel="mean true pass rate over the run, and prompts in the class", ylabel="rollouts of a prompt")
    left.set_title("Exposure by difficulty")
    right.plot([0, 1], [0, 1], color="black", linewidth=0.8)
    right.set(xlabel="predicted pass rate", ylabel="observed pass rate", title="Calibration", xlim=(0, 1), ylim=(0, 1))
    return _with_legend(figure, left)


def _filters(summary: Summary) -> Figure:
    figure, left, right = _pair()
    players = [name for name in ("uniform", "cero") if name in summary.results] or list(summary.results)[:1]
    choices = [(player, keep) for player in players for keep in _keeps(summary, player)]
    places = np.arange(len(choices))
    for number, rule in enumerate(RULES):
        offset = places + (number - (len(RULES) - 1) / 2) * 0.2
        for axes, measure in ((left, "variance_kept"), (right, "mixed_kept")):
            values = [[one.filters[rule, keep][measure] for one in summary.results[player]] for player, keep in choices]
            errors = np.std(values, axis=1, ddof=1) if len(values[0]) > 1 else None
            axes.bar(offset, np.mean(values, axis=1), 0.2, yerr=errors, label=rule, color=_COLOURS[number])
    generated = [
        np.mean([one.filters[RULES[0], keep]["variance_generated"] for one in summary.results[player]])
        for player, keep in choices
    ]
    left.hlines(generated, places - 0.45, places + 0.45, color="black", linestyle="--", label="all generated")
    for axes in (left, right):
        axes.set_xticks(places, [f"{player}\nkeep {keep}" for player, keep in choices])
    left.set(ylabel="mean variance of a group's outcomes", title="Variance kept")
    right.set(ylabel="share of mixed groups", title="Mixed groups that stay mixed", ylim=(0, 1.05))
    return _with_legend(figure, left)


def _keeps(summary: Summary, player: str) -> list[int]:
    return list(dict.fromkeys(keep for _, keep in summary.results[player][0].filters))
