"""What Hydra leaves in a run folder: configuration, overrides, and the job's own log."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from errno import ENOENT
from itertools import takewhile
from pathlib import Path
from typing import Any

_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
# Hydra's job log: [2026-11-30 04:24:10,123][verl.trainer][ERROR] - text
_RECORD = re.compile(r"^\[\d{4}-\d\d-\d\d [\d:,]+\]\[[^\]]*\]\[(?P<level>[A-Z]+)\] - (?P<text>.*)")
_TRACEBACK = "Traceback (most recent call last)"
_LONGEST = 400
_DEEPEST = 100
_FILES = {"overrides.yaml": list, "config.yaml": dict, "hydra.yaml": dict}


@dataclass(frozen=True)
class Job:
    """A run as Hydra started it."""

    overrides: tuple[str, ...] = ()  # of the command line, without Hydra's own
    config: Mapping[str, Any] = field(default_factory=dict)  # by dotted name; interpolations as they were written
    number: int = -1  # in its multirun, if it is of one
    one_by_one: bool = False  # the launcher ends a job before it starts the next
    remarks: tuple[str, ...] = ()  # which of its files could not be read, each a clause about the run

    def whole_number(self, name: str) -> int | None:
        """Return an option that is a whole number which a float holds exactly, or None."""
        value = self.config.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= 2**53 else None


def is_run_folder(folder: Path) -> bool:
    """Whether Hydra ran a job here."""
    return (folder / ".hydra" / "overrides.yaml").is_file() or (folder / ".hydra" / "config.yaml").is_file()


def run_folders(folder: Path) -> list[Path]:
    """Return the run folders at or below a folder, in the order of their jobs."""
    found = [path.parent for path in folder.rglob(".hydra") if is_run_folder(path.parent)]
    return sorted(found, key=lambda path: _natural(str(path.relative_to(folder))))


def read_job(folder: Path) -> Job:
    """Read what is there of a run folder's `.hydra`; files that are missing or broken count as empty, and are said."""
    remarks: list[str] = []
    overrides, config, hydra = (_yaml(folder / ".hydra" / name, kind, remarks) for name, kind in _FILES.items())
    settings = dict(_flatten(hydra))
    number = settings.get("hydra.job.num")
    return Job(
        overrides=tuple(map(str, overrides)),
        config=dict(_flatten(config)),
        number=number if isinstance(number, int) else -1,
        one_by_one=str(settings.get("hydra.launcher._target_")).endswith(".BasicLauncher"),
        remarks=tuple(remarks),
    )


def last_traceback(folder: Path) -> str | None:
    """Return the last line of the last traceback in the job's log files, or None.

    Hydra's log is `<job>.log` in the run folder: `main_ppo.log` for verl.
    """
    for lines in _job_logs(folder):
        starts = [number for number, line in enumerate(lines) if _TRACEBACK in line]
        if starts:
            first, *others = lines[starts[-1] :]
            block = takewhile(lambda line: not _RECORD.match(line), others)
            return _shortened([first, *filter(str.strip, block)][-1].strip())
    return None


def last_error_record(folder: Path) -> str | None:
    """Return the text of the last record of level ERROR or above in the job's log files, or None."""
    for lines in _job_logs(folder):
        records = [match for line in lines if (match := _RECORD.match(line))]
        errors = [match["text"] for match in records if match["level"] in ("ERROR", "CRITICAL") and match["text"]]
        if errors:
            return _shortened(errors[-1])
    return None


def _job_logs(folder: Path) -> Iterator[list[str]]:
    for log in filter(Path.is_file, sorted(folder.glob("*.log"))):
        with suppress(OSError):
            yield [_ANSI.sub("", line) for line in log.read_text(encoding="utf-8", errors="replace").splitlines()]


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else text[:_LONGEST] + " ..."


def _yaml(path: Path, kind: type, remarks: list[str]) -> Any:
    """Return what a file of Hydra holds, or an empty `kind` and a remark on what is wrong with it."""
    import yaml  # type: ignore[import-untyped]

    loader, depth = getattr(yaml, "CSafeLoader", yaml.SafeLoader), 0
    try:
        if not path.is_file():
            raise FileNotFoundError(ENOENT, "it is missing")
        text = path.read_text(encoding="utf-8-sig")
        for event in yaml.parse(text, loader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            # Hydra writes no aliases: a few lines of them may stand for more than memory holds
            if isinstance(event, yaml.AliasEvent) or depth > _DEEPEST:
                raise ValueError
        held = yaml.load(text, loader)
    except OSError as error:
        wrong = f"cannot be read ({error.strerror})"
    except (yaml.YAMLError, ValueError, RecursionError):
        wrong = "is broken"
    else:
        if isinstance(held, kind):
            return held
        wrong = "does not hold what Hydra writes"
    remarks.append(f"has options that are not known: .hydra/{path.name} {wrong}")
    return kind()


def _flatten(node: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(node, dict) and node:
        for key, value in node.items():
            yield from _flatten(value, f"{name}.{key}" if name else str(key))
    elif name:
        yield name, tuple(node) if isinstance(node, list) else node


def _natural(text: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", text)]
