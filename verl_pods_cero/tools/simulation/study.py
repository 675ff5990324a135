"""One simulation from its options to its folder."""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

import verl_pods_cero
from verl_pods_cero.core.pods import keep_count
from verl_pods_cero.errors import OptionError, nearest
from verl_pods_cero.tools.command_line import refuse_to_overwrite
from verl_pods_cero.tools.reports.terminal import wide_console
from verl_pods_cero.tools.simulation import csv_files, figures, terminal
from verl_pods_cero.tools.simulation.command import SMOOTHING, complete, world_name
from verl_pods_cero.tools.simulation.experiment import Experiment, cores, run_all
from verl_pods_cero.tools.simulation.filters import FILTER_MEASURES
from verl_pods_cero.tools.simulation.learner import UPDATES, Learner
from verl_pods_cero.tools.simulation.measures import MEASURES, Result
from verl_pods_cero.tools.simulation.players import parse_players, settings_for
from verl_pods_cero.tools.simulation.recording import Recording, read_recording
from verl_pods_cero.tools.simulation.summary import summarise
from verl_pods_cero.tools.simulation.worlds import RecordedWorld

RECORD = "simulation.json"


def simulate(args: argparse.Namespace) -> None:
    """Play, write the folder, and print the tables.

    Raises:
        OptionError: the options are wrong.
        RunError: an allocator failed.
        OSError: the folder cannot be written.
    """
    started = time.perf_counter()
    kind = world_name(args)
    recording = _recording(args)
    complete(args, kind)
    output: Path = args.out or Path(f"simulation-{kind}")
    if output.exists() and not (output / RECORD).is_file():
        raise OptionError("--out", "must be new, or a folder that this command wrote", str(output), "name another one")
    refuse_to_overwrite(output, "--out", overwrite=args.overwrite)
    for name in ("seeds", "steps", "batch", "n", "prompts", "offered", "target", "jobs"):
        value, least = getattr(args, name), 2 if name == "n" else 1
        if value is not None and value < least:
            raise OptionError(f"--{name}", f"must be at least {least}", value, f"use {least} or more")
    experiment = _experiment(args, kind, recording)
    experiment.check()
    jobs = args.jobs or cores()
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{output.name}-", dir=output.parent) as scratch:
        made = Path(scratch) / "made"
        (made / "runs").mkdir(parents=True)
        results = _played(experiment, made / "runs", jobs)
        summary = summarise(results, [player.label for player in experiment.players], args.target)
        budget = settings_for(experiment.players[0], experiment.sizes, 0).budget
        csv_files.write_all(made, summary, budget)
        drawn = figures.draw_all(made, summary, budget, _title(args, kind, experiment))
        _write_record(made / RECORD, args, experiment, recording, summary.target, budget)
        _put_in_place(made, output, Path(scratch) / "replaced")
    console = wide_console()
    console.print(terminal.allocator_table(summary))
    if experiment.learner is not None:
        console.print(terminal.learner_table(summary))
    if (filters := terminal.filter_table(summary)) is not None:
        console.print(filters)
    print(f"{len(results)} runs in {time.perf_counter() - started:.0f} s on {jobs} processes")
    print(f"Tables: {', '.join(sorted(path.name for path in output.glob('*.csv')))} in {output}")
    print(f"Figures: {', '.join(path.name for path in drawn)}")
    print(f"Logs of the runs, for `verl-pods-cero report`: {output / 'runs'}")


def _experiment(args: argparse.Namespace, kind: str, recording: Recording | None) -> Experiment:
    world = None if recording is None else RecordedWorld.of(recording, _smoothing(args))
    sizes = {
        "num_prompts": world.num_prompts if world else args.prompts,
        "batch_prompts": args.batch,
        **{name: getattr(args, name) for name in ("budget", "steps", "n", "n_max", "unit", "rho", "lam")},
    }
    learner = _learner(args) if kind == "learner" else None
    # The learner takes its steps on all that was sampled.
    keeps = () if learner and args.keep is None else _keeps(args.keep, args.n)
    players = tuple(parse_players(args.allocators))
    return Experiment(players, sizes, keeps, args.seeds, world, learner, args.offered)


def _learner(args: argparse.Namespace) -> Learner:
    given = {
        name: getattr(args, name)
        for name in ("update", "noise", "difficulty", "transfer")
        if getattr(args, name) is not None
    }
    learner = Learner(**given)
    if learner.update not in UPDATES:
        raise OptionError("--update", "names none", learner.update, nearest(learner.update, UPDATES))
    for name, least, most in (("noise", 0.0, 1000.0), ("difficulty", -100.0, 100.0), ("transfer", 0.0, 1.0)):
        if not least <= (value := getattr(learner, name)) <= most:
            raise OptionError(f"--{name}", f"must lie between {least:g} and {most:g}", value, "use one in that range")
    if learner.noise and learner.update == "sgd":
        fix = "add --update adam, or leave it out"
        raise OptionError("--noise", "moves nothing under sgd, which does not divide by it", learner.noise, fix)
    return learner


def _recording(args: argparse.Namespace) -> Recording | None:
    return None if args.recorded is None else read_recording(args.recorded)


def _smoothing(args: argparse.Namespace) -> float:
    value = SMOOTHING if args.smoothing is None else float(args.smoothing)
    if not 0.0 <= value < float("inf"):
        raise OptionError("--smoothing", "must be a number of visits, at least 0", value, f"use {SMOOTHING:g}")
    return value


def _keeps(text: str | None, n: int) -> tuple[int, ...]:
    if text is None:
        return tuple(keep for keep in dict.fromkeys((n // 2, n // 4)) if keep >= 2)
    if text == "none":
        return ()
    keeps = []
    for part in text.split(","):
        if not part.strip().isdecimal():
            raise OptionError("--keep", "must be whole numbers with commas, or none", text, f"use {max(2, n // 2)}")
        keeps.append(keep_count(n, keep=int(part)))
    return tuple(dict.fromkeys(keeps))


def _played(experiment: Experiment, folder: Path, jobs: int) -> list[Result]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    results = []
    with Progress(*columns, console=Console(stderr=True)) as progress:
        bar = progress.add_task("runs", total=len(experiment.players) * experiment.seeds)
        for result in run_all(experiment, folder, jobs):
            results.append(result)
            progress.update(bar, advance=1, description=f"{result.player}, seed {result.seed}")
        progress.update(bar, description="runs")
    return results


def _title(args: argparse.Namespace, kind: str, experiment: Experiment) -> str:
    sizes = experiment.sizes
    world = args.recorded.name if args.recorded is not None else f"{kind} world"
    return (
        f"{world}: {sizes['num_prompts']} prompts, {sizes['steps']} steps of {sizes['batch_prompts']} prompts,"
        f" n = {sizes['n']};"
        f"{'' if experiment.learner is None else f' {_words(experiment.learner)};'}"
        f" {experiment.seeds} seeds"
    )


def _words(learner: Learner) -> str:
    noise = f", noise {learner.noise:g}" if learner.noise else ""
    transfer = f", transfer {learner.transfer:g}" if learner.transfer < 1 else ""
    return f"difficulty {learner.difficulty:g}, {learner.update}{noise}{transfer}"


def _write_record(
    path: Path, args: argparse.Namespace, experiment: Experiment, recording: Recording | None, target: int, budget: int
) -> None:
    record = {
        "version": verl_pods_cero.__version__,
        "options": {name: str(value) if isinstance(value, Path) else value for name, value in vars(args).items()},
        "allocators": [player.label for player in experiment.players],
        "sizes": experiment.sizes | {"batch": experiment.sizes["batch_prompts"], "budget": budget},
        "prompts": experiment.sizes["num_prompts"],
        "keep": experiment.keeps,
        "seeds": experiment.seeds,
        "offered": experiment.offered,
        "learner": None if experiment.learner is None else asdict(experiment.learner),
        "target": target,
        "recorded_mixed_share": None if recording is None else recording.mixed_share,
        "measures": MEASURES | FILTER_MEASURES,
    }
    path.write_text(json.dumps(record, indent=2, default=str) + "\n", encoding="utf-8")


def _put_in_place(made: Path, output: Path, replaced: Path) -> None:
    if output.exists():
        os.replace(output, replaced)  # noqa: PTH105 - the atomic one, by its known name
    os.replace(made, output)  # noqa: PTH105
