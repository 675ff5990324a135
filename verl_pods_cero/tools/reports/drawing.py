"""How figures look, and how they become images inside a page."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from verl_pods_cero.core.arrays import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which the colour-blind can tell apart, without yellow, which paper cannot show.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#56B4E9", "#E69F00")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_DASHES = ("-", "--", ":", "-.")

_STYLE: Any = {
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.size": 9,
    "grid.alpha": 0.3,
    "legend.frameon": False,
    "text.parse_math": False,  # names of groups hold $
    # the same figure is the same file
    "svg.hashsalt": "verl-pods-cero",
}


Places = Mapping[str, int]
"""The place of each group in the report, which gives it its colour and marker in every figure."""

CREATOR = "verl-pods-cero report"
"""Marks a file as a figure of ours, which a later one may replace."""


@dataclass(frozen=True)
class Image:
    """A figure of a page."""

    svg: bytes
    alt: str  # what it shows, in words, with its numbers
    caption: str  # what it is, and where its numbers come from

    @property
    def uri(self) -> str:
        """The image as an address that holds it."""
        return "data:image/svg+xml;base64," + base64.b64encode(self.svg).decode("ascii")


@contextmanager
def canvas(width: float, height: float, panels: int = 1, columns: int = 1) -> Iterator[tuple[Figure, list[Axes]]]:
    """Open a figure in the style of the report, with as many panels in so many columns."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        axes = list(figure.subplots(-(-panels // columns), columns, squeeze=False).flat)
        for unused in axes[panels:]:
            unused.set_visible(False)
        yield figure, axes[:panels]


def image(figure: Figure, alt: str, caption: str) -> Image:
    """Write a figure as SVG; text becomes outlines, so that it needs no font."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": CREATOR})
    return Image(buffer.getvalue(), alt, caption)


def line_style(number: int, dashes: str | None = None) -> dict[str, Any]:
    """Return the colour, marker and dashes of the group at this place of the report."""
    return {
        "color": COLOURS[number % len(COLOURS)],
        "marker": _MARKERS[number % len(_MARKERS)],
        "linestyle": _DASHES[number // len(COLOURS) % len(_DASHES)] if dashes is None else dashes,
        "markersize": 4,
        "linewidth": 1.5,
    }


def draw_line(
    axes: Axes, x: Floats, mean: Floats, half: Floats, number: int, label: str | None = None, dashes: str | None = None
) -> None:
    """Draw a mean, and its interval as a band; marks thin out where they would touch."""
    style = line_style(number, dashes)
    axes.plot(x, mean, label=label, markevery=max(1, len(x) // 12), **style)
    if np.isfinite(half).all():
        axes.fill_between(x, mean - half, mean + half, color=style["color"], alpha=0.15, linewidth=0)


def fit_lines(axes: Axes) -> None:
    """Let lines fill at least a third of the panel: with two seeds, intervals are many times as wide as their means."""
    values = np.concatenate([np.asarray(line.get_ydata(), dtype=np.float64) for line in axes.get_lines()])
    low, high = axes.get_ylim()
    span = values.max() - values.min()
    if span > 0:
        axes.set_ylim(max(low, values.min() - span), min(high, values.max() + span))


def show_as_time(axes: Axes) -> None:
    """Write an x axis of seconds in the unit that suits its length, and name the unit."""
    from matplotlib.ticker import MaxNLocator

    limits = axes.get_xlim()
    unit, seconds = next(((unit, s) for unit, s in (("h", 3600), ("min", 60)) if limits[1] > 5 * s), ("s", 1))
    locator = MaxNLocator(7, steps=[1, 2, 2.5, 5, 10])
    ticks = locator.tick_values(limits[0] / seconds, limits[1] / seconds)
    axes.set_xticks([tick * seconds for tick in ticks], [f"{tick:g}" for tick in ticks])
    axes.set_xlim(limits)
    axes.set_xlabel(f"{axes.get_xlabel()} ({unit})")


def share_legend(figure: Figure, axes: Sequence[Axes]) -> None:
    """Put one legend below all panels, where there is more than one line."""
    entries = {label: handle for each in axes for handle, label in zip(*each.get_legend_handles_labels(), strict=True)}
    if entries:
        figure.legend(entries.values(), entries.keys(), loc="outside lower center", ncols=min(4, len(entries)))


def from_to(values: Floats) -> str:
    """Put a line into words.

    >>> from_to(np.array([0.25, 0.5, 0.75]))
    'from 0.25 to 0.75'
    """
    return f"from {values[0]:.3g} to {values[-1]:.3g}"
