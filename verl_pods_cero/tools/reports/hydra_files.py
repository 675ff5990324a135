"""What Hydra leaves in a run folder: configuration, overrides, and the job's own log."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
# Hydra's job log: [2026-11-30 04:24:10,123][verl.trainer][ERROR] - text
_RECORD = re.compile(r"^\[\d{4}-\d\d-\d\d [\d:,]+\]\[[^\]]*\]\[(?P<level>[A-Z]+)\] - (?P<text>.*)")
_TRACEBACK = "Traceback (most recent call last)"
_LONGEST = 400


@dataclass(frozen=True)
class Job:
    """A run as Hydra started it.

    Attributes:
        overrides: of the command line, without Hydra's own.
        config: values by dotted name; interpolations are left as they were written.
        number: of the job in its multirun.
        one_by_one: the launcher ends a job before it starts the next.
    """

    overrides: tuple[str, ...] = ()
    config: Mapping[str, Any] = field(default_factory=dict)
    number: int | None = None
    one_by_one: bool = False

    def whole_number(self, name: str) -> int | None:
        """Return an option that is a whole number, or None."""
        value = self.config.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else None


def is_run_folder(folder: Path) -> bool:
    """Whether Hydra ran a job here."""
    return (folder / ".hydra" / "overrides.yaml").is_file() or (folder / ".hydra" / "config.yaml").is_file()


def run_folders(folder: Path) -> list[Path]:
    """Return the run folders at or below a folder, in the order of their jobs."""
    found = [path.parent for path in folder.rglob(".hydra") if is_run_folder(path.parent)]
    return sorted(found, key=lambda path: _natural(str(path.relative_to(folder))))


def read_job(folder: Path) -> Job:
    """Read what is there of a run folder's `.hydra`; files that are missing or cut off count as empty."""
    overrides = _yaml(folder / ".hydra" / "overrides.yaml")
    config = _yaml(folder / ".hydra" / "config.yaml")
    hydra = dict(_flatten(_yaml(folder / ".hydra" / "hydra.yaml") or {}))
    number = hydra.get("hydra.job.num")
    return Job(
        overrides=tuple(str(one) for one in overrides) if isinstance(overrides, list) else (),
        config=dict(_flatten(config)) if isinstance(config, dict) else {},
        number=number if isinstance(number, int) else None,
        one_by_one=str(hydra.get("hydra.launcher._target_")).endswith(".BasicLauncher"),
    )


def last_traceback(folder: Path) -> str | None:
    """Return the last line of the last traceback in the job's log files, or None.

    Hydra's log is `<job>.log` in the run folder: `main_ppo.log` for verl.
    """
    for lines in _job_logs(folder):
        starts = [number for number, line in enumerate(lines) if _TRACEBACK in line]
        if not starts:
            continue
        block = []
        for line in lines[starts[-1] :]:
            if _RECORD.match(line) and _TRACEBACK not in line:
                break
            block.append(line.strip())
        return _shortened(next(line for line in reversed(block) if line))
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
    for log in sorted(folder.glob("*.log")):
        yield [_ANSI.sub("", line) for line in log.read_text(encoding="utf-8", errors="replace").splitlines()]


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else text[:_LONGEST] + " ..."


def _yaml(path: Path) -> Any:
    import yaml  # type: ignore[import-untyped]

    if not path.is_file():
        return None
    try:
        return yaml.load(path.read_text(encoding="utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError:
        return None


def _flatten(node: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(node, dict) and node:
        for key, value in node.items():
            yield from _flatten(value, f"{name}.{key}" if name else str(key))
    elif name:
        yield name, tuple(node) if isinstance(node, list) else node


def _natural(text: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", text)]
