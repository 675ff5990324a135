"""Logs of verl's file logger: JSON lines `{"step": s, "data": {...}}`, finished or still being written."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from sys import intern

import numpy as np
import numpy.typing as npt

from verl_pods_cero.errors import OptionError

Floats = npt.NDArray[np.float64]

VALIDATION = "val-"
"""What the names of verl's validation metrics begin with."""


@dataclass(frozen=True)
class Record:
    """What was logged of one step: its finite numbers, by name."""

    step: int
    values: Mapping[str, float]

    @property
    def is_training(self) -> bool:
        """Whether more than a validation was logged.

        >>> Record(0, {"val-core/sums/acc/mean@1": 0.5}).is_training
        False
        """
        return any(not name.startswith(VALIDATION) for name in self.values)

    @property
    def is_validation(self) -> bool:
        """Whether a validation was logged, be it with a training step or before it."""
        return any(name.startswith(VALIDATION) for name in self.values)


@dataclass(frozen=True)
class Log:
    """A log as far as it could be read.

    Attributes:
        path: the file.
        records: one a step, in order.
        remarks: what is missing or odd, each a clause about the log.
    """

    path: Path
    records: tuple[Record, ...]
    remarks: tuple[str, ...] = ()

    @property
    def training(self) -> tuple[Record, ...]:
        """The records of training steps."""
        return tuple(record for record in self.records if record.is_training)

    @property
    def begins_late(self) -> bool:
        """Whether earlier training steps are not in it, as in the log of a run that was resumed."""
        return bool(self.training) and self.training[0].step > 1

    @property
    def names(self) -> frozenset[str]:
        """Every name that was logged."""
        return frozenset(name for record in self.records for name in record.values)

    def series(self, name: str) -> tuple[Floats, Floats]:
        """Return the steps at which `name` was logged, and its values there."""
        pairs = [(record.step, record.values[name]) for record in self.records if name in record.values]
        steps, values = zip(*pairs, strict=True) if pairs else ((), ())
        return np.array(steps, dtype=np.float64), np.array(values, dtype=np.float64)


def is_log(path: Path) -> bool:
    """Whether the first line of a file has the form of verl's file logger, or is not written to its end yet."""
    with path.open(encoding="utf-8", errors="replace") as file:
        line = file.readline()
    return not line.endswith("\n") or _parse(line) is not None


def read_log(path: Path) -> Log:
    """Read a log; a last line that is cut off, and lines that are no record, are left out and said.

    Raises:
        OptionError: the file has lines, and none that is whole has the form of verl's file logger.
    """
    text = path.read_text(encoding="utf-8", errors="replace")
    lines = text.splitlines()
    parsed = [_parse(line) for line in lines]
    remarks = []
    if not text.strip():
        remarks.append("is empty")
    cut = bool(lines) and parsed[-1] is None and not text.endswith("\n")
    if cut:
        lines, parsed = lines[:-1], parsed[:-1]
        remarks.append("ends in a line that is cut off, which is left out: the run is writing it, or was stopped there")
    bad = [number for number, (line, record) in enumerate(zip(lines, parsed, strict=True), 1) if line and not record]
    if bad and len(bad) == len([line for line in lines if line]):
        fix = 'give the file of verl\'s logger: trainer.logger=[console,file] writes lines {"step": ..., "data": {...}}'
        raise OptionError("RUN", "must be a log of verl's file logger", str(path), fix)
    if bad:
        remarks.append(f"has {len(bad)} unreadable lines, which are left out (the first is line {bad[0]})")
    records, merged = _by_step([record for record in parsed if record])
    if merged:
        remarks.append(f"has steps that were trained twice, of which the later counts: {merged}")
    log = Log(path, records, tuple(remarks))
    if not log.begins_late:
        return log
    late = (
        f"begins with step {log.training[0].step}: time, rollouts and tokens count from there "
        "(verl starts a new log when a run is resumed)"
    )
    return replace(log, remarks=(*log.remarks, late))


def _parse(line: str) -> Record | None:
    try:
        fields = json.loads(line)
    except ValueError:
        return None
    if not isinstance(fields, dict) or not isinstance(fields.get("data"), dict):
        return None
    step = fields.get("step")
    if not isinstance(step, int) or isinstance(step, bool):
        return None
    # a long log repeats a few hundred names on every line
    return Record(step, {intern(name): float(value) for name, value in fields["data"].items() if _is_number(value)})


def _is_number(value: object) -> bool:
    # orjson writes NaN and infinity as null
    return isinstance(value, int | float) and math.isfinite(value)


def _by_step(records: list[Record]) -> tuple[tuple[Record, ...], str]:
    """Merge records of one step: a validation may come after its step, and a resumed run repeats steps."""
    merged: dict[int, Record] = {}
    repeated = set()
    for record in records:
        before = merged.get(record.step)
        if before is not None and before.is_training and record.is_training:
            repeated.add(record.step)
        merged[record.step] = Record(record.step, {**(before.values if before else {}), **record.values})
    return tuple(merged[step] for step in sorted(merged)), some(sorted(repeated), 5)


def some(things: Sequence[object], few: int) -> str:
    """Name the first of some things, and how many more there are.

    >>> some(["a", "b", "c", "d", "e"], 3)
    'a, b, c and 2 more'
    """
    more = f" and {len(things) - few} more" if len(things) > few else ""
    return ", ".join(map(str, things[:few])) + more
