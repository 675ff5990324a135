"""A simulation's numbers as CSV files."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Sequence
from dataclasses import astuple
from pathlib import Path

import numpy as np

from verl_pods_cero.tools.simulation.filters import FILTER_MEASURES
from verl_pods_cero.tools.simulation.measures import CALIBRATION_BINS, DIFFICULTY, MEASURES, Binned, Result
from verl_pods_cero.tools.simulation.summary import Spread, Summary, curve

SPREAD = ("mean", "standard_deviation", "interval_95", "lowest", "highest", "seeds")
STRETCHES = 40

Row = Sequence[object]


def write_all(folder: Path, summary: Summary, budget: int) -> None:
    """Write every table into the folder."""
    tables = {
        "runs": (("allocator", "seed", *MEASURES), _runs(summary)),
        "summary": (("allocator", "measure", *SPREAD), _summary(summary)),
        "differences": (("allocator", "minus", "measure", *SPREAD, "seeds_above"), _differences(summary)),
        "over_rollouts": (
            ("allocator", "rollouts", "effective_prompt_ratio", "deviation", "mixed_groups", "mixed_deviation"),
            _over_rollouts(summary, budget),
        ),
        "exposure": (
            ("allocator", "pass_rate_from", "pass_rate_to", "prompts", "rollouts_per_prompt", "deviation"),
            _exposure(summary),
        ),
        "calibration": (("allocator", "bin_from", "bin_to", "predicted", "observed", "groups"), _calibration(summary)),
        "filters": (("allocator", "rule", "keep", "measure", *SPREAD), _filters(summary)),
    }
    for name, (header, rows) in tables.items():
        with (folder / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(header)
            writer.writerows([_cell(value) for value in row] for row in rows)


def _cell(value: object) -> object:
    """Six digits are more than ten seeds can tell; nothing stands for what there is no number for."""
    if not isinstance(value, float):
        return value
    if math.isnan(value):
        return ""
    return int(value) if value.is_integer() else float(f"{value:.6g}")


def _runs(summary: Summary) -> Iterator[Row]:
    for player, results in summary.results.items():
        for result in results:
            yield player, result.seed, *(result.numbers[measure] for measure in MEASURES)


def _summary(summary: Summary) -> Iterator[Row]:
    for player in summary.results:
        for measure in MEASURES:
            yield player, measure, *astuple(summary.spread(player, measure))


def _differences(summary: Summary) -> Iterator[Row]:
    for player in summary.results:
        for reference in summary.references:
            if player == reference:
                continue
            for measure in MEASURES:
                pairs = summary.differences(player, reference, measure)
                above = sum(pair > 0 for pair in pairs)
                yield player, reference, measure, *astuple(Spread.of(pairs)), above


def _over_rollouts(summary: Summary, budget: int) -> Iterator[Row]:
    edges = np.linspace(0.0, budget, STRETCHES + 1)
    for player, results in summary.results.items():
        ratios, counts = curve(results, edges)
        for number, end in enumerate(edges[1:]):
            ratio, count = Spread.of(ratios[:, number]), Spread.of(counts[:, number])
            yield player, float(end), ratio.mean, ratio.deviation, count.mean, count.deviation


def per_prompt(results: Sequence[Result]) -> list[Spread]:
    """Rollouts of a prompt by class of difficulty, over the seeds in which the class has prompts."""
    columns = np.array([one.difficulty.mean("rollouts") for one in results]).T
    return [Spread.of(column[~np.isnan(column)] if not np.isnan(column).all() else [np.nan]) for column in columns]


def _exposure(summary: Summary) -> Iterator[Row]:
    for player, results in summary.results.items():
        prompts = np.mean([one.difficulty.counts for one in results], axis=0)
        for number, spread in enumerate(per_prompt(results)):
            edges = DIFFICULTY[number : number + 2]
            yield player, *edges, float(prompts[number]), spread.mean, spread.deviation


def pooled_calibration(results: Sequence[Result]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean predicted and observed pass rate by bin over the groups of all seeds, NaN without any; and the groups."""
    pooled = Binned.pooled([one.calibration for one in results])
    return pooled.mean("predicted"), pooled.mean("observed"), pooled.counts


def _calibration(summary: Summary) -> Iterator[Row]:
    for player, results in summary.results.items():
        for number, values in enumerate(zip(*pooled_calibration(results), strict=True)):
            low, high = number / CALIBRATION_BINS, (number + 1) / CALIBRATION_BINS
            yield player, low, high, *(float(value) for value in values)


def _filters(summary: Summary) -> Iterator[Row]:
    for player, results in summary.results.items():
        for rule, keep in results[0].filters:
            for measure in FILTER_MEASURES:
                values = [one.filters[rule, keep][measure] for one in results]
                yield player, rule, keep, measure, *astuple(Spread.of(values))
