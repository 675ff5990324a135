"""Runs: a log, the options that it was made with, and how far it came."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from itertools import takewhile
from pathlib import Path

from verl_pods_cero import run_record
from verl_pods_cero.errors import OptionError
from verl_pods_cero.tools.reports.hydra_files import (
    Job,
    is_run_folder,
    last_error_record,
    last_traceback,
    read_job,
    run_folders,
)
from verl_pods_cero.tools.reports.log_files import Log, LogError, is_log, read_log, some

FINISHED, FAILED, INCOMPLETE, OPEN_END, UNREADABLE = "finished", "failed", "incomplete", "end unknown", "unreadable"
"""Statuses: reached its last step; ended by an error; has fewer steps than asked for; does not say how many it was; has
no log that can be read."""


@dataclass(frozen=True, eq=False)
class Run:
    """One training run, or one simulated run."""

    path: Path  # the run folder or the log, as given
    log: Log  # one without records where there is none
    job: Job = field(default_factory=Job)
    status: str = OPEN_END
    detail: str = ""  # how far it came, and the error
    given_name: str | None = None  # on the command line
    sweep: Path | None = None  # the multirun folder that it is a job of


def find_runs(arguments: Sequence[str]) -> list[Run]:
    """Find the runs of the command line: `[NAME=]PATH`, a path being a run folder, any folder above some, or a log.

    A run whose log cannot be read is one of them, unless none has a log that can.

    Raises:
        OptionError: there is no such path, no run is at or below it, or no log can be read.
    """
    runs: dict[Path, Run] = {}
    for argument in arguments:
        name, path = _split(argument)
        for run in _runs_at(path):
            runs.setdefault(run.path.resolve(), replace(run, given_name=name))
    troubles = [run.log.trouble for run in runs.values() if run.log.trouble is not None]
    if len(troubles) == len(runs):
        raise troubles[0]
    return list(runs.values())


def no_logs(arguments: Sequence[str]) -> list[Path]:
    """Return the `.jsonl` files below folders that are no logs, and of which no run was made."""
    folders = [path for _, path in map(_split, arguments) if path.is_dir()]
    return [file for folder in folders for file in _outside(folder, run_folders(folder)) if not is_log(file)]


def _split(argument: str) -> tuple[str | None, Path]:
    # Hydra's job folders may be named key=value: a path that exists is a path.
    name, equals, rest = argument.partition("=")
    if Path(argument).exists() or not equals:
        name, rest = "", argument
    if not rest:
        raise OptionError("RUN", "must name a folder or a log", argument, "give it after the =, or check the variable")
    path = Path(rest)
    if not path.exists():
        there = sorted(one.name for one in path.parent.iterdir()) if path.parent.is_dir() else []
        near = get_close_matches(path.name, there, n=1)
        fix = f"did you mean {near[0]!r}?" if near else "give a run folder, a multirun folder or a .jsonl file"
        raise OptionError("RUN", "must be a folder or a log that exists", rest, fix)
    return name or None, path


def _runs_at(path: Path) -> list[Run]:
    if not path.is_dir():
        return [run_of_log(path)]
    if is_run_folder(path):
        return [_with_status(_run_in(path))]
    folders = run_folders(path)
    if runs := _jobs(path, folders) + [run_of_log(log) for log in _outside(path, folders) if is_log(log)]:
        return runs
    fix = "give a folder that Hydra made (outputs/..., multirun/...) or the logger's .jsonl file"
    raise OptionError("RUN", "must hold a run: a .hydra folder or a log of verl's file logger", str(path), fix)


def _outside(folder: Path, runs: Sequence[Path]) -> list[Path]:
    """Return the `.jsonl` files below a folder that are in none of the run folders below it."""
    return [file for file in sorted(folder.rglob("*.jsonl")) if set(runs).isdisjoint(file.parents)]


def run_of_log(log: Path) -> Run:
    """Return the run of a log, with the options of the run folder that it is in, if it is in one."""
    folder = log.parent.parent
    return _with_status(Run(log, _log_at(log), read_job(folder) if is_run_folder(folder) else Job()))


def _run_in(folder: Path) -> Run:
    job = read_job(folder)
    named = folder / f"{job.config.get('trainer.project_name')}" / f"{job.config.get('trainer.experiment_name')}.jsonl"
    logs = [file for file in sorted(folder.rglob("*.jsonl")) if file == named or is_log(file)]
    if not logs:
        return Run(folder, Log(folder), job)
    if len(logs) > 1 and named not in logs:
        reason = f"it holds {len(logs)}, and its options name none of them"
        fix = f"give one of them: {', '.join(map(str, logs))}"
        return Run(folder, Log(folder, trouble=LogError(folder, reason, "hold one", fix)), job)
    log = _log_at(named if named in logs else logs[0])
    if others := [other for other in logs if other != log.path]:
        more = f"has other logs in its folder, which are left out: {some(others, 3)}"
        log = replace(log, remarks=(*log.remarks, more))
    return Run(folder, log, job)


def _log_at(path: Path) -> Log:
    try:
        return read_log(path)
    except LogError as error:
        return Log(path, trouble=error)


def _jobs(above: Path, folders: Iterable[Path]) -> list[Run]:
    """Return the runs below a folder; a multirun's jobs know their sweep, and that a later job has begun."""
    runs = [replace(_run_in(folder), sweep=_sweep_of(folder, above)) for folder in folders]
    latest: dict[Path | None, int] = {}
    for run in runs:
        latest[run.sweep] = max(latest.get(run.sweep, -1), run.job.number)
    return [
        _with_status(run, over=run.sweep is not None and run.job.one_by_one and run.job.number < latest[run.sweep])
        for run in runs
    ]


def _sweep_of(folder: Path, above: Path) -> Path | None:
    inside = takewhile(lambda parent: parent != above.parent, folder.parents)
    return next((parent for parent in inside if (parent / "multirun.yaml").is_file()), None)


def _with_status(run: Run, over: bool = False) -> Run:
    """Say how far a run came; `over`: a later job of its multirun has begun, so it has ended."""
    steps = int(run.log.training[-1]) if len(run.log.training) else 0
    asked = run.job.whole_number("trainer.total_training_steps")
    reached = f"{steps} of {asked} steps" if asked else f"{steps} step{'s' * (steps != 1)}"
    if asked and (steps >= asked or _allocation_ended(run, asked)):
        return replace(run, status=FINISHED, detail=reached)
    if not len(run.log.steps):
        reached = run.log.trouble.clause if run.log.trouble else "no steps logged"
    record = run_record.read(run.path) if run.path.is_dir() else None
    error = last_traceback(run.path) if run.path.is_dir() else None
    if record is not None and record.error:
        error = record.error
    elif record is not None and record.ended is None and record.alive is False:
        error = f"process {record.pid} is gone and left no word: it was killed or interrupted"
    if error is not None or over:
        error = error or last_error_record(run.path) or "its job log says no error"
        return replace(run, status=FAILED, detail=f"{reached}: {error}")
    if run.log.trouble is not None:
        return replace(run, status=UNREADABLE, detail=reached)
    if asked or not len(run.log.steps):
        # a run that was refused before it started leaves its folder, and says so nowhere in it
        stage = "starting, or refused before it started" if run.log.path.is_dir() else "running or stopped"
        if record is not None and record.alive:
            stage = f"running, as process {record.pid}"
        written = time.strftime("%Y-%m-%d %H:%M", time.localtime(run.log.path.stat().st_mtime))
        return replace(run, status=INCOMPLETE, detail=f"{reached}: {stage}, last written {written}")
    return replace(run, detail=reached)


def _allocation_ended(run: Run, asked: int) -> bool:
    """Whether an allocator ended the run before its last step, as it may: its budget or its rounds are used up."""
    if not len(run.log.training):
        return False
    last = run.log.steps == run.log.training[-1]
    left, ended = (run.log.column(name)[last].item() for name in ("cero/budget_left", "cero/round"))
    rounds = run.job.whole_number("pods_cero.allocator.rounds")
    if rounds is None and run.job.config.get("pods_cero.allocator.schedule") == "round":
        rounds = asked
    return left <= 0 or (rounds is not None and ended >= rounds)  # NaN, where it is not logged, is neither


SEED_IN_NAME = re.compile(r"(?:[-_./ ]|(?<![A-Za-z0-9]))seed[-_=]?(\d+)", re.IGNORECASE)
"""A seed in the name of a file, a folder or an experiment."""


def without_seed(name: str) -> str:
    """Take the seed out of a name.

    >>> without_seed("grpo_seed3"), without_seed("runs/seed=12/pods"), without_seed("linseed")
    ('grpo', 'runs/pods', 'linseed')
    """
    return SEED_IN_NAME.sub("", name)
