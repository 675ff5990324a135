"""Runs: a log, the options that it was made with, and how far it came."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path

from verl_pods_cero.errors import OptionError
from verl_pods_cero.tools.reports.hydra_files import (
    Job,
    is_run_folder,
    last_error_record,
    last_traceback,
    read_job,
    run_folders,
)
from verl_pods_cero.tools.reports.log_files import Log, is_log, read_log

FINISHED, FAILED, INCOMPLETE, OPEN_END = "finished", "failed", "incomplete", "end unknown"
"""Statuses: reached its last step; ended by an error; has fewer steps than asked for; does not say how many it was."""


@dataclass(frozen=True)
class Run:
    """One training run, or one simulated run.

    Attributes:
        path: the run folder or the log, as given.
        log: its log; one without records where there is none.
        job: what Hydra left of it.
        status: one of the statuses above.
        detail: how far it came, and the error.
        given_name: the name on the command line, if it was given one.
        sweep: the multirun folder that it is a job of.
    """

    path: Path
    log: Log
    job: Job = field(default_factory=Job)
    status: str = OPEN_END
    detail: str = ""
    given_name: str | None = None
    sweep: Path | None = None


def find_runs(arguments: Sequence[str]) -> list[Run]:
    """Find the runs of the command line: `[NAME=]PATH`, a path being a run folder, any folder above some, or a log.

    Raises:
        OptionError: there is no such path, or no run is at or below it.
    """
    runs: dict[Path, Run] = {}
    for argument in arguments:
        name, path = _split(argument)
        for run in _runs_at(path):
            runs.setdefault(run.path.resolve(), replace(run, given_name=name))
    return list(runs.values())


def no_logs(arguments: Sequence[str]) -> list[Path]:
    """Return the `.jsonl` files of folders of logs that are no logs, and of which no run was made."""
    folders = [path for _, path in map(_split, arguments) if path.is_dir()]
    plain = [folder for folder in folders if not is_run_folder(folder) and not run_folders(folder)]
    return [file for folder in plain for file in sorted(folder.rglob("*.jsonl")) if not is_log(file)]


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
    if path.is_file():
        return [run_of_log(path)]
    if is_run_folder(path):
        return [_with_status(_run_in(path))]
    if folders := run_folders(path):
        return _jobs(path, folders)
    if logs := [log for log in sorted(path.rglob("*.jsonl")) if is_log(log)]:
        return [run_of_log(log) for log in logs]
    fix = "give a folder that Hydra made (outputs/..., multirun/...) or the logger's .jsonl file"
    raise OptionError("RUN", "must hold a run: a .hydra folder or a log of verl's file logger", str(path), fix)


def run_of_log(log: Path) -> Run:
    """Return the run of a log, with the options of the run folder that it is in, if it is in one."""
    folder = log.parent.parent
    job = read_job(folder) if is_run_folder(folder) else Job()
    return _with_status(Run(log, read_log(log), job))


def _run_in(folder: Path) -> Run:
    job = read_job(folder)
    log = folder / f"{job.config.get('trainer.project_name')}" / f"{job.config.get('trainer.experiment_name')}.jsonl"
    logs = [log] if log.is_file() else [other for other in sorted(folder.rglob("*.jsonl")) if is_log(other)]
    if len(logs) > 1:
        fix = f"give one of them: {', '.join(map(str, logs))}"
        raise OptionError("RUN", "must hold one log of verl's file logger", str(folder), fix)
    return Run(folder, read_log(logs[0]) if logs else Log(folder, ()), job)


def _jobs(above: Path, folders: Iterable[Path]) -> list[Run]:
    """Return the runs below a folder; a multirun's jobs know their sweep, and that a later job has begun."""
    runs = [replace(_run_in(folder), sweep=_sweep_of(folder, above)) for folder in folders]
    latest: dict[Path | None, int] = {}
    for run in runs:
        latest[run.sweep] = max(latest.get(run.sweep, -1), _number(run))
    return [
        _with_status(run, over=run.sweep is not None and run.job.one_by_one and _number(run) < latest[run.sweep])
        for run in runs
    ]


def _number(run: Run) -> int:
    return -1 if run.job.number is None else run.job.number


def _sweep_of(folder: Path, above: Path) -> Path | None:
    for parent in folder.parents:
        if (parent / "multirun.yaml").is_file():
            return parent
        if parent == above:
            break
    return None


def _with_status(run: Run, over: bool = False) -> Run:
    """Say how far a run came; `over`: a later job of its multirun has begun, so it has ended."""
    steps = run.log.training[-1].step if run.log.training else 0
    asked = run.job.whole_number("trainer.total_training_steps")
    reached = f"{steps} of {asked} steps" if asked else f"{steps} step{'s' * (steps != 1)}"
    if asked and (steps >= asked or _allocation_ended(run, asked)):
        return replace(run, status=FINISHED, detail=reached)
    if not run.log.records:
        reached = "no steps logged"
    error = last_traceback(run.path) if run.path.is_dir() else None
    if error is not None or over:
        error = error or last_error_record(run.path) or "its job log says no error"
        return replace(run, status=FAILED, detail=f"{reached}: {error}")
    if asked or not run.log.records:
        return replace(run, status=INCOMPLETE, detail=f"{reached}: running or stopped, last written {_written(run)}")
    return replace(run, detail=reached)


def _written(run: Run) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(run.log.path.stat().st_mtime))


def _allocation_ended(run: Run, asked: int) -> bool:
    """Whether an allocator ended the run before its last step, as it may: its budget or its rounds are used up."""
    if not run.log.training:
        return False
    values = run.log.training[-1].values
    rounds = run.job.whole_number("pods_cero.allocator.rounds")
    if rounds is None and run.job.config.get("pods_cero.allocator.schedule") == "round":
        rounds = asked
    spent = values.get("cero/budget_left", 1.0) <= 0
    return spent or (rounds is not None and values.get("cero/round", 0.0) >= rounds)


SEED_IN_NAME = re.compile(r"(?:[-_./ ]|(?<![A-Za-z0-9]))seed[-_=]?(\d+)", re.IGNORECASE)
"""A seed in the name of a file, a folder or an experiment."""


def without_seed(name: str) -> str:
    """Take the seed out of a name.

    >>> without_seed("grpo_seed3"), without_seed("runs/seed=12/pods"), without_seed("linseed")
    ('grpo', 'runs/pods', 'linseed')
    """
    return SEED_IN_NAME.sub("", name)
