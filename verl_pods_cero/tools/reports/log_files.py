"""Logs of verl's file logger: JSON lines `{"step": s, "data": {...}}`, finished or still being written."""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from sys import intern

import numpy as np

from verl_pods_cero.core.arrays import Floats, Ints
from verl_pods_cero.errors import OptionError

VALIDATION = "val-"
"""What the names of verl's validation metrics begin with."""

LARGEST = 1e100
"""Numbers beyond it are left out: sums and squares of the others stay finite."""

_LAST_STEP = 2**53  # whole numbers up to here are floats
_LONGEST_LINE = 2**24
_LINES_TO_KNOW_IT_BY = 20
_FIX = 'give the file of verl\'s logger: trainer.logger=[console,file] writes lines {"step": ..., "data": {...}}'

Record = tuple[int, Mapping[str, float]]
"""A step, and its numbers by name."""


class LogError(OptionError):
    """There is no log where one should be; `clause` says why in a few words."""

    def __init__(self, path: Path, reason: str, holder: str = "be a", fix: str = _FIX) -> None:
        self.clause = f"no log to read ({reason})"
        super().__init__("RUN", f"must {holder} log of verl's file logger, and {reason}", str(path), fix)


@dataclass(frozen=True, eq=False)
class _Alike:
    """Records of the same names: steps and places in the file, shape (R,), and values, shape (R, names)."""

    names: tuple[str, ...]
    steps: Ints
    places: Ints
    values: Floats


@dataclass(frozen=True, eq=False)
class Log:
    """A log as far as it could be read: what was logged of R steps."""

    path: Path
    alike: tuple[_Alike, ...] = ()  # its records, those of the same names together
    remarks: tuple[str, ...] = ()  # what is missing or odd, each a clause about the log
    trouble: LogError | None = None  # why it could not be read

    @classmethod
    def of(cls, path: Path, records: Iterable[Record]) -> Log:
        """Collect records in the order of the file; a step may come more than once.

        >>> log = Log.of(Path("run.jsonl"), [(1, {"a": 1.0}), (1, {"val-b": 0.5}), (2, {"a": 3.0})])
        >>> log.steps.tolist(), log.column("a").tolist(), log.column("val-b").tolist()
        ([1, 2], [1.0, 3.0], [0.5, nan])
        """
        found: dict[tuple[str, ...], tuple[array[int], array[int], array[float]]] = {}
        for place, (step, values) in enumerate(records):
            steps, places, numbers = found.setdefault(tuple(values), (array("q"), array("q"), array("d")))
            steps.append(step)
            places.append(place)
            numbers.extend(values.values())
        return cls(
            path,
            tuple(
                _Alike(
                    names, np.asarray(steps), np.asarray(places), np.asarray(numbers).reshape(len(steps), len(names))
                )
                for names, (steps, places, numbers) in found.items()
            ),
        )

    @cached_property
    def steps(self) -> Ints:
        """Every step that was logged, ascending, shape (R,)."""
        return np.unique(self._steps(lambda _: True))

    @cached_property
    def training(self) -> Ints:
        """The steps of which more than a validation was logged, ascending."""
        return np.unique(self._steps(_is_training))

    @cached_property
    def validations(self) -> Ints:
        """The steps of which a validation was logged, be it with a training step or before it, ascending."""
        return np.unique(self._steps(lambda names: any(name.startswith(VALIDATION) for name in names)))

    @cached_property
    def repeated(self) -> Ints:
        """The steps that were trained more than once, ascending."""
        steps, times = np.unique(self._steps(_is_training), return_counts=True)
        return np.asarray(steps[times > 1])

    @cached_property
    def names(self) -> frozenset[str]:
        """Every name that was logged."""
        return frozenset(name for part in self.alike for name in part.names)

    @property
    def begins_late(self) -> bool:
        """Whether earlier training steps are not in it, as in the log of a run that was resumed."""
        return bool(len(self.training)) and self.training[0] > 1

    def column(self, name: str) -> Floats:
        """Return the values of a metric at every step, shape (R,); NaN where it was not logged, the later of two."""
        column = np.full(len(self.steps), np.nan)
        parts = [(p.places, p.steps, p.values[:, p.names.index(name)]) for p in self.alike if name in p.names]
        if parts:
            places, steps, values = (np.concatenate(part) for part in zip(*parts, strict=True))
            order = np.argsort(places)
            column[np.searchsorted(self.steps, steps[order])] = values[order]
        return column

    def series(self, name: str) -> tuple[Floats, Floats]:
        """Return the steps at which `name` was logged, and its values there."""
        column = self.column(name)
        there = np.isfinite(column)
        return self.steps[there].astype(np.float64), column[there]

    def _steps(self, wanted: Callable[[tuple[str, ...]], bool]) -> Ints:
        return np.concatenate([np.empty(0, dtype=np.int64), *(p.steps for p in self.alike if wanted(p.names))])


def _is_training(names: tuple[str, ...]) -> bool:
    return any(not name.startswith(VALIDATION) for name in names)


def is_log(path: Path) -> bool:
    """Whether one of the first lines of a file has the form of verl's file logger, or the first is not ended yet."""
    try:
        first = list(islice(_lines(path), _LINES_TO_KNOW_IT_BY)) if path.is_file() else ["no file\n"]
    except OSError:
        return False
    return not "".join(first[:1]).endswith("\n") or any(_fields(line) for line in first)


def read_log(path: Path) -> Log:
    """Read a log once, line by line; a last line that is cut off, and lines that are no record, are left out and said.

    Raises:
        LogError: it is no file that can be read, or has lines, and none that is whole has the form of verl's
            file logger.
    """
    if not path.is_file():
        raise LogError(path, "it is a folder" if path.is_dir() else "it is no file")
    reading = _Reading()
    try:
        log = Log.of(path, reading.records(_lines(path)))
    except OSError as error:
        raise LogError(path, f"it cannot be read ({error.strerror})") from error
    if reading.bad and not log.alike:
        raise LogError(path, "none of its lines is a record")
    return replace(log, remarks=(*reading.remarks(), *_remarks(log)))


def records(lines: Iterable[str]) -> Iterator[Record]:
    """Return the records of whole lines of a log; others are left out."""
    return _Reading().records(lines)


def _lines(path: Path) -> Iterator[str]:
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        yield from iter(lambda: file.readline(_LONGEST_LINE), "")


@dataclass
class _Reading:
    """What was met in the lines of a log."""

    blank: bool = True
    cut: bool = False
    bad: list[int] = field(default_factory=list)
    beyond: list[int] = field(default_factory=list)

    def records(self, lines: Iterable[str]) -> Iterator[Record]:
        """Return the records of lines, each with its finite numbers."""
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            self.blank = False
            fields = _fields(line)
            if fields is None:
                self.cut = not line.endswith("\n") and line[:2] in ("{", '{"')
                self.bad += [] if self.cut else [number]
                continue
            step, data = fields
            # whole numbers of any size compare with a float, but do not all become one
            values = {intern(k): v for k, v in data.items() if isinstance(v, (int, float)) and -LARGEST <= v <= LARGEST}
            if len(values) < len(data) and any(isinstance(v, int | float) and abs(v) > LARGEST for v in data.values()):
                self.beyond.append(number)
            yield step, values

    def remarks(self) -> Iterator[str]:
        """Say what was left out, each a clause about the log."""
        if self.blank:
            yield "is empty"
        if self.cut:
            yield "ends in a line that is cut off, which is left out: the run is writing it, or was stopped there"
        if self.bad:
            yield f"has {len(self.bad)} unreadable lines, which are left out (the first is line {self.bad[0]})"
        if self.beyond:
            yield (
                f"has numbers beyond {LARGEST:.0e} in {len(self.beyond)} lines, which are left out "
                f"(the first is line {self.beyond[0]})"
            )


def _fields(line: str) -> tuple[int, dict[str, object]] | None:
    """Return the step and the data of a line, or None if it is no record."""
    try:
        match json.loads(line):
            case {"step": int(step), "data": dict(data)} if not isinstance(step, bool) and 0 <= step <= _LAST_STEP:
                return step, data
    except (ValueError, RecursionError):  # nested deeper than Python follows
        pass
    return None


def _remarks(log: Log) -> Iterator[str]:
    """Say what is odd about the steps, each a clause about the log."""
    if len(log.repeated):
        yield f"has steps that were trained twice, of which the later counts: {some(log.repeated.tolist(), 5)}"
    blank = np.setdiff1d(log.steps[log.steps > 0], np.union1d(log.training, log.validations)).tolist()
    if blank:
        yield f"has no number of {len(blank)} of its steps: {some(blank, 5)}"
    if len(log.training):
        first, missing = log.training[0], np.ptp(log.training) + 1 - len(log.training) - len(blank)
        if missing > 0:
            yield f"lacks {missing} steps of training: time, rollouts and tokens are lower bounds"
    if log.begins_late:
        yield (
            f"begins with step {first}: time, rollouts and tokens count from there "
            "(verl starts a new log when a run is resumed)"
        )


def some(things: Sequence[object], few: int) -> str:
    """Name the first of some things, and how many more there are.

    >>> some(["a", "b", "c", "d", "e"], 3)
    'a, b, c and 2 more'
    """
    more = f" and {len(things) - few} more" if len(things) > few else ""
    return ", ".join(map(str, things[:few])) + more
