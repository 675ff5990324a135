"""The command that writes a report: its options and its run."""

from __future__ import annotations

import argparse
import io
import math
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from verl_pods_cero.errors import OptionError
from verl_pods_cero.files import written_whole
from verl_pods_cero.tools.command_line import exit_status, refuse_to_overwrite, require

if TYPE_CHECKING:
    from verl_pods_cero.tools.reports.contents import Section


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Compare runs: tables in the terminal, and one HTML page with figures."""
    add = parser.add_argument
    add(
        "runs",
        nargs="+",
        metavar="[NAME=]RUN",
        help="run folder, multirun folder, a folder above some, or a .jsonl log",
    )
    add("--out", type=Path, default=Path("report.html"), metavar="FILE", help="the page (%(default)s)")
    add("--title", default="Training runs", help="title of the page (%(default)s)")
    add("--baseline", metavar="NAME", help="group to compare with (the first validated one without PODS and CERO)")
    add("--target", type=float, metavar="A", help="accuracy that groups are timed to (the baseline's best)")
    add("--metric", metavar="KEY", help="validation metric or data source (the mean over data sources)")
    add("--csv", type=Path, metavar="FILE", help="write a row a run as well")
    add("--curves", type=Path, metavar="FILE", help="write a row a validation as well")
    add("--figures", type=Path, metavar="FOLDER", help="write the figures there as SVG files as well")
    add("--overwrite", action="store_true", help="replace files that are no earlier report")


def run(args: argparse.Namespace) -> int:
    """Run the command; return its exit status: 0, 1 for a failure or 2 for bad use, with the error on stderr."""
    return exit_status(lambda: _run(args))


def _run(args: argparse.Namespace) -> None:
    require("report", ("matplotlib", "rich"))
    from verl_pods_cero import __version__
    from verl_pods_cero.tools.reports import page, terminal
    from verl_pods_cero.tools.reports.accuracy import choose_measure
    from verl_pods_cero.tools.reports.contents import sections
    from verl_pods_cero.tools.reports.groups import group_runs
    from verl_pods_cero.tools.reports.log_files import some
    from verl_pods_cero.tools.reports.results import curves_csv, results, runs_csv
    from verl_pods_cero.tools.reports.runs import find_runs, no_logs

    if isinstance(sys.stdout, io.TextIOWrapper):  # names of files and metrics may be no text
        sys.stdout.reconfigure(errors="backslashreplace")
    _check_options(args)
    runs = find_runs(args.runs)
    if left_out := no_logs(args.runs):
        print(f"note: left out, as they are no logs of verl's file logger: {some(left_out, 3)}", file=sys.stderr)
    groups = group_runs(runs)
    measure = choose_measure(runs, args.metric)
    parts = sections(groups, measure, args.baseline, args.target, left_out)
    figures = _figures(args.figures, parts, overwrite=args.overwrite)
    terminal.show(parts)
    made = f"Made by verl-pods-cero {__version__}, {time.strftime('%Y-%m-%d %H:%M:%S %z')}."
    texts = {args.out: page.page(args.title, made, parts)} | figures
    if args.csv is not None:
        texts[args.csv] = runs_csv(results(groups, measure))
    if args.curves is not None:
        texts[args.curves] = curves_csv(results(groups, measure), measure)
    for path, text in texts.items():
        with written_whole(path) as temporary:
            temporary.write_text(text, encoding="utf-8", errors="backslashreplace")
        print(f"wrote {path}")


def _check_options(args: argparse.Namespace) -> None:
    from verl_pods_cero.tools.reports import page
    from verl_pods_cero.tools.reports.results import CURVE_HEADER, RUN_HEADER

    if args.target is not None and not math.isfinite(args.target):
        raise OptionError("--target", "must be a finite number", args.target, "give it on the scale of the accuracies")
    outputs = (
        ("--out", args.out, page.GENERATOR),
        ("--csv", args.csv, ",".join(RUN_HEADER)),
        ("--curves", args.curves, ",".join(CURVE_HEADER)),
    )
    taken: dict[Path, str] = {}
    for option, path, mark in outputs:
        if path is None:
            continue
        if (other := taken.setdefault(path.resolve(), option)) != option:
            raise OptionError(option, f"must be another file than {other}'s", str(path), "name another")
        _check_output(path, option, mark, overwrite=args.overwrite)


def _figures(folder: Path | None, parts: Sequence[Section], *, overwrite: bool) -> dict[Path, str]:
    """Return the files of `--figures`, named by their headings, in a folder that is made if it is missing."""
    from verl_pods_cero.tools.reports.drawing import CREATOR
    from verl_pods_cero.tools.reports.groups import numbered

    if folder is None:
        return {}
    if not folder.parent.is_dir() or (folder.exists() and not folder.is_dir()):
        raise OptionError(
            "--figures", "must be a folder, or a new one in a folder that exists", str(folder), "name another"
        )
    images = [(part.heading, image) for part in parts for image in part.images]
    stems = numbered((re.sub("[^a-z0-9]+", "-", heading.lower())[-80:].strip("-") for heading, _ in images), "-")
    files = {folder / f"{stem}.svg": image.svg.decode() for stem, (_, image) in zip(stems, images, strict=True)}
    if folder.exists():
        for path in files:
            _check_output(path, "--figures", CREATOR, overwrite=overwrite)
    folder.mkdir(exist_ok=True)
    return files


def _check_output(path: Path, option: str, mark: str, *, overwrite: bool) -> None:
    """Refuse a path that cannot be written, or that holds something else than an earlier file of this option."""
    if path.is_dir():
        raise OptionError(option, "must be a file", str(path), f"use {path / 'report.html'}")
    if not path.parent.is_dir():
        raise OptionError(option, "must be in a folder that exists", str(path), f"make {path.parent} first")
    ours = False
    if path.exists():
        with path.open("rb") as file:
            ours = mark.encode() in file.read(2000)
    rule = "must not hold a file that is no earlier report"
    refuse_to_overwrite(path, option, overwrite=overwrite or ours, rule=rule)
