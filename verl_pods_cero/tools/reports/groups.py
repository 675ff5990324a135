"""Runs that differ by their seed alone, drawn as one with its spread."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from verl_pods_cero.tools.reports.log_files import Log
from verl_pods_cero.tools.reports.quantities import GENERATED, KEPT
from verl_pods_cero.tools.reports.runs import FAILED, FINISHED, INCOMPLETE, SEED_IN_NAME, Run, without_seed

# Places do not make another experiment of a run; its name does, without the seed in it.
_PLACES = ("trainer.default_local_dir", "trainer.rollout_data_dir", "trainer.validation_data_dir", "quickstart.folder")

IN_NAME = "in the name"
"""What a seed is called that only the name of a log tells."""


@dataclass(frozen=True)
class Group:
    """Runs of one name, which is unique in a report, in the order given."""

    name: str
    runs: tuple[Run, ...]

    @cached_property
    def logged(self) -> tuple[Run, ...]:
        """The runs with records: one that was refused before it started has none."""
        return tuple(run for run in self.runs if len(run.log.steps))

    @cached_property
    def drawn(self) -> tuple[Run, ...]:
        """The runs that figures and means are made of: those with records that came as far as the others.

        Left out are failed ones beside others, incomplete ones beside finished ones, and other unfinished ones whose
        last validation is before half of the latest: means are taken at the validations that all runs had.
        """
        short = (FAILED, INCOMPLETE) if any(run.status == FINISHED for run in self.logged) else (FAILED,)
        runs = tuple(run for run in self.logged if run.status not in short) or self.logged
        latest = max((_last(run.log) for run in runs), default=0)
        return tuple(run for run in runs if run.status == FINISHED or 2 * _last(run.log) >= latest)

    @property
    def is_plain(self) -> bool:
        """Whether its logs have nothing of PODS and CERO: numbers of rollouts may be there, if all were kept."""
        return all(_is_plain(run.log) for run in self.drawn)


def group_runs(runs: Sequence[Run]) -> list[Group]:
    """Group runs by the name they were given, or by all options but seeds and places."""
    members: dict[Hashable, list[Run]] = {}
    for run in runs:
        members.setdefault(_identity(run), []).append(run)
    own = own_overrides([group[0] for group in members.values()])
    names = [_name(group[0], overrides) for group, overrides in zip(members.values(), own, strict=True)]
    stems = Counter(names)
    unclear = {
        number: Path(without_seed(str(run.path))).absolute()
        for number, (name, (run, *_)) in enumerate(zip(names, members.values(), strict=True))
        if stems[name] > 1 and run.given_name is None
    }
    for number, place in unclear.items():
        root = os.path.commonpath([other.parent for other in unclear.values()])
        names[number] = f"{names[number]} ({os.path.relpath(place, root)})"
    return [Group(name, tuple(group)) for name, group in zip(numbered(names), members.values(), strict=True)]


def _last(log: Log) -> int:
    """Return the step of the last validation of a log with records, or its last step where it has none."""
    return int((log.validations if len(log.validations) else log.steps)[-1])


def _is_plain(log: Log) -> bool:
    ours = {name for name in log.names if name.startswith(("pods/", "cero/"))}
    return ours <= {GENERATED, KEPT} and not (log.column(KEPT) < log.column(GENERATED)).any()


def seeds_of(run: Run) -> dict[str, str]:
    """Return what tells a run from the others of its group: its seeds by name, or those in the name of its file."""
    seeds = {name: str(value) for name, value in run.job.config.items() if _is_seed(name)}
    in_name = SEED_IN_NAME.findall(str(run.path))
    return seeds or ({IN_NAME: " ".join(in_name)} if in_name else {})


def _is_seed(name: str) -> bool:
    return name.rpartition(".")[2] == "seed" or name.endswith("_seed")


def _identity(run: Run) -> Hashable:
    if run.given_name is not None:
        return run.given_name
    if run.job.config:
        options = {name: value for name, value in run.job.config.items() if not _is_seed(name) and name not in _PLACES}
        return tuple(sorted((name, without_seed(repr(value))) for name, value in options.items()))
    return without_seed(str(run.path.with_suffix("")))


def own_overrides(runs: Sequence[Run], seeds: bool = False) -> list[str]:
    """Return the overrides of each run that not all of them have, as `short_overrides` writes them."""
    sets = [frozenset(run.job.overrides) for run in runs if run.job.overrides]
    shared = frozenset.intersection(*sets) if len(sets) > 1 else frozenset[str]()
    return [short_overrides([one for one in run.job.overrides if one not in shared], seeds) for run in runs]


def _name(run: Run, overrides: str) -> str:
    if run.given_name is not None:
        return run.given_name
    if not run.job.config:
        return without_seed(run.path.stem).strip("-_ ") or run.path.stem
    if run.sweep is not None and overrides:
        return overrides
    experiment = without_seed(str(run.job.config.get("trainer.experiment_name", run.path.name)))
    return f"{experiment} {overrides}".strip()


def short_overrides(overrides: Iterable[str], seeds: bool = False) -> str:
    """Write overrides by the last part of their names, without names and places, and without seeds unless asked for.

    >>> short_overrides(["actor_rollout_ref.rollout.n=32", "+quickstart.seed=1", "~pods_cero.filter.keep"])
    'n=32 ~keep'
    """
    words = []
    for override in overrides:
        name, equals, value = override.partition("=")
        sign = "~" if name.startswith("~") else ""
        name = name.lstrip("+~")
        if (seeds or not _is_seed(name)) and name not in (*_PLACES, "trainer.experiment_name", "trainer.project_name"):
            words.append(f"{sign}{name.rpartition('.')[2]}{equals}{value}")
    return " ".join(words)


def numbered(names: Iterable[str], mark: str = " #") -> list[str]:
    """Make names unique, and writable: a name of a file that is no UTF-8 can be neither written nor drawn.

    >>> numbered(["a", "b", "a"])
    ['a', 'b', 'a #2']
    """
    seen: Counter[str] = Counter()
    unique = []
    for name in names:
        seen[name] += 1
        unique.append(name if seen[name] == 1 else f"{name}{mark}{seen[name]}")
    return [name.encode(errors="backslashreplace").decode() for name in unique]
