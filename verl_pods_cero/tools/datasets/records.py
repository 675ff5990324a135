"""Raw records, one by one, from local files or from the Hugging Face hub."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl_pods_cero.errors import OptionError
from verl_pods_cero.tools.datasets.catalog import Catalogued

SUFFIXES = (".jsonl", ".json", ".parquet")


@dataclass(frozen=True)
class Record:
    """One row as it was found.

    Args:
        file: Name of its file, or of its hub repository.
        row: Its number there, from 1.
        fields: Its content; None where it is no JSON object.
        fault: Why it could not be read.
    """

    file: str
    row: int
    fields: dict[str, Any] | None
    fault: str = ""


def check_files(paths: Iterable[Path]) -> None:
    """Check that every source is there and has a known format.

    Raises:
        OptionError: one is not, or has not.
    """
    for path in paths:
        if not path.is_file():
            raise OptionError("--source", "must name files that exist", str(path), "correct the path")
        if path.suffix not in SUFFIXES:
            raise OptionError("--source", f"must end in {', '.join(SUFFIXES)}", str(path), "convert it to one of these")


def read_files(paths: Iterable[Path]) -> Iterator[Record]:
    """Yield the records of each file: JSON lines (also when named .json), a JSON array, or parquet.

    Raises:
        OptionError: a file is damaged as a whole; a single bad line becomes a record with its fault.
    """
    for path in paths:
        rows = _parquet(path) if path.suffix == ".parquet" else _json(path)
        try:
            for number, (fields, fault) in enumerate(rows, start=1):
                yield Record(path.name, number, fields, fault)
        except (ValueError, OSError) as error:
            raise OptionError(
                "--source", f"must name files that can be read ({error})", str(path), "get the file again"
            ) from error


def count_rows(paths: Iterable[Path]) -> int:
    """Return how many rows the files have, for a progress bar; a JSON array counts by its lines."""
    total = 0
    for path in paths:
        if path.suffix == ".parquet":
            import pyarrow.parquet as pq

            total += pq.read_metadata(path).num_rows
        else:
            with path.open("rb") as file:
                total += sum(1 for line in file if line.strip())
    return total


def read_hub(entry: Catalogued, split: str) -> Iterator[Record]:
    """Yield the records of a data set on the hub.

    Raises:
        OptionError: the hub has no such split, or cannot be reached.
    """
    if split not in entry.hub_splits:
        known = " or ".join(sorted(entry.hub_splits))
        raise OptionError("--split", f"must be {known} for {entry.hub}", split, "use that, or --source")
    from datasets import load_dataset

    try:
        rows = load_dataset(entry.hub, entry.hub_config, split=entry.hub_splits[split])
    except Exception as error:  # the hub's client raises its own, httpx's and the system's errors
        cause = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        raise OptionError(
            "--source",
            f"is needed, because the hub did not give {entry.hub} ({cause})",
            None,
            f"download {entry.hub} where there is a connection and pass --source FILE [FILE...], "
            "or set HF_ENDPOINT to a mirror, or --hub REPOSITORY[:CONFIGURATION] if it has moved",
        ) from error
    for number, fields in enumerate(rows, start=1):
        yield Record(entry.hub, number, dict(fields))


def _json(path: Path) -> Iterator[tuple[dict[str, Any] | None, str]]:
    with path.open(encoding="utf-8-sig") as file:
        start = file.read(1)
        while start.isspace():
            start = file.read(1)
        file.seek(0)
        if start == "[":
            yield from map(_object, json.load(file))
            return
        for line in file:
            if line.strip():
                try:
                    yield _object(json.loads(line))
                except json.JSONDecodeError as error:
                    yield None, f"is not JSON ({error.msg})"


def _object(value: object) -> tuple[dict[str, Any] | None, str]:
    return (value, "") if isinstance(value, dict) else (None, "is not a JSON object")


def _parquet(path: Path) -> Iterator[tuple[dict[str, Any] | None, str]]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=1024):
            for fields in batch.to_pylist():
                yield fields, ""
