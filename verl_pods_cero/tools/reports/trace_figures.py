"""Figures of what was logged at every step: effective prompts, response length, exposures, calibration."""

from __future__ import annotations

from collections.abc import Sequence

from verl_pods_cero.tools.reports.drawing import (
    COLOURS,
    Image,
    Places,
    canvas,
    draw_line,
    fit_lines,
    from_to,
    image,
    share_legend,
)
from verl_pods_cero.tools.reports.groups import Group
from verl_pods_cero.tools.reports.traces import Trace, effective_prompt_ratio, logged, trace, traces

_NAMES = ("cero/exposures_p10", "cero/exposures_p50", "cero/exposures_p90")


def effective_prompts_figure(groups: Sequence[Group], places: Places) -> Image | None:
    """Draw the share of prompts with both successes and failures."""
    lines = traces(groups, effective_prompt_ratio)
    caption = "Share of the prompts that got rollouts which had both successes and failures."
    return _figure("effective prompt ratio", [("share of prompts", lines, ())], places, caption)


def response_length_figure(groups: Sequence[Group], places: Places) -> Image | None:
    """Draw the mean length of generated responses, and dotted that of kept ones."""
    generated = traces(groups, logged("response_length/mean"))
    kept = traces(groups, logged("pods/response_length_kept"))
    caption = "Mean length of the responses of a step; dotted: of those that the policy was updated on."
    return _figure("response length", [("tokens a response", generated, kept)], places, caption)


def calibration_figure(groups: Sequence[Group], places: Places) -> Image | None:
    """Draw the errors of an allocator's predicted pass rates."""
    panels = [
        ("mean absolute error", traces(groups, logged("cero/calibration_mae")), ()),
        ("Brier score", traces(groups, logged("cero/calibration_brier")), ()),
    ]
    caption = "Predicted against observed pass rates, of the round closed last; lower is better."
    return _figure("calibration", panels, places, caption)


def exposures_figure(groups: Sequence[Group], places: Places) -> Image | None:
    """Draw the rollouts that prompts have had: median, first and last decile, a panel a group."""
    found = {}
    for group in groups:
        deciles = [trace(group, logged(name)) for name in _NAMES]
        if lines := [one for one in deciles if one is not None]:
            found[group.name] = lines
    if not found:
        return None
    columns = min(3, len(found))
    rows = -(-len(found) // columns)
    with canvas(9, 0.5 + 2.3 * rows, rows, columns) as (figure, panels):
        top = max(float(lines[-1].mean.max()) for lines in found.values())
        for axes, (name, lines) in zip(panels, found.items(), strict=False):
            colour = COLOURS[places[name] % len(COLOURS)]
            axes.fill_between(lines[0].steps, lines[0].mean, lines[-1].mean, color=colour, alpha=0.25, linewidth=0)
            axes.plot(lines[len(lines) // 2].steps, lines[len(lines) // 2].mean, color=colour)
            axes.set(title=name, xlabel="training steps", ylabel="rollouts a prompt", ylim=(0, 1.05 * top or 1))
        for unused in panels[len(found) :]:
            unused.set_visible(False)
        ends = {name: " to ".join(f"{line.mean[-1]:.3g}" for line in lines) for name, lines in found.items()}
        words = [f"{name}: at the end {end}" for name, end in ends.items()]
        caption = "Rollouts that a prompt has had so far: median over prompts, and from the first to the last decile."
        return image(figure, "Exposures of prompts. " + "; ".join(words), caption)


def _figure(
    title: str, panels: Sequence[tuple[str, Sequence[Trace], Sequence[Trace]]], places: Places, caption: str
) -> Image | None:
    """Draw panels of lines and dotted lines over training steps; None if there is no line."""
    shown = [panel for panel in panels if panel[1] or panel[2]]
    if not shown:
        return None
    with canvas(4.5 * len(shown) if len(shown) > 1 else 6.5, 3.3, 1, len(shown)) as (figure, axes_of):
        words = []
        for axes, (label, lines, dotted) in zip(axes_of, shown, strict=True):
            named = {line.name for line in lines}
            for line in lines:
                draw_line(axes, line.steps, line.mean, line.half_width, places[line.name], line.name)
                words.append(f"{label} of {line.name} {from_to(line.mean)}")
            for line in dotted:
                name = None if line.name in named else line.name
                draw_line(axes, line.steps, line.mean, line.half_width, places[line.name], name, dashes=":")
                words.append(f"{label} of {line.name}, dotted, {from_to(line.mean)}")
            axes.set(xlabel="training steps", ylabel=label)
            fit_lines(axes)
        share_legend(figure, axes_of)
        stretch = max(line.stretch for _, lines, dotted in shown for line in (*lines, *dotted))
        if stretch > 1:
            caption += f" Each point is the mean of up to {stretch} steps."
        return image(figure, f"Lines of {title}. " + "; ".join(words), caption)
