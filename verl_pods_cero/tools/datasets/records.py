"""Raw records, one by one, from local files and folders or from the Hugging Face hub."""

from __future__ import annotations

import codecs
import json
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl_pods_cero.errors import OptionError
from verl_pods_cero.tools.datasets.catalog import Catalogued

SUFFIXES = (".jsonl", ".json", ".parquet")

# How the files begin that git LFS, git-annex and Xet leave in place of large ones.
_POINTERS = (b"version https://git-lfs", b"/annex/objects/", b"# xet version")
_SPLIT = re.compile("(?<![a-z])(train|test|val|valid|validation|dev)(?![a-z])")


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


def find_files(sources: Iterable[Path], splits: tuple[str, ...]) -> list[Path]:
    """Return what to read: files, those of a folder, and folders that hold a data set saved by `datasets`.

    Args:
        sources: Files and folders.
        splits: Names of the split that is wanted, where a saved data set has several; the first one there counts.

    Raises:
        OptionError: a source is missing, is of no known format, or holds other splits.
    """
    found: list[Path] = []
    for source in sources:
        if not source.exists():
            raise OptionError("--source", "must name files that exist, or folders", str(source), "correct the path")
        if source.is_dir():
            found += _in_folder(source, splits)
        elif _is_data(source):
            found.append(source)
        else:
            rule = f"must end in {', '.join(SUFFIXES)}"
            raise OptionError("--source", rule, str(source), "convert it to one of these")
    return found


def read_files(paths: Iterable[Path]) -> Iterator[Record]:
    """Yield the records of each file: JSON lines (also when named .json), a JSON array, parquet, or a saved data set.

    Raises:
        OptionError: a file is damaged as a whole, or empty; a single bad line becomes a record with its fault.
    """
    for path in paths:
        read = _saved if path.is_dir() else _parquet if path.suffix.lower() == ".parquet" else _json
        name = os.fsencode(path.name).decode(errors="backslashreplace")
        number = 0
        try:
            _refuse_pointer(path)
            for number, (fields, fault) in enumerate(read(path), start=1):
                yield Record(name, number, fields, fault)
        except Exception as error:  # each library raises its own, the system's and Python's errors
            raise OptionError(
                "--source", f"must name files that can be read ({_cause(error)})", str(path), "get the file again"
            ) from error
        if number == 0:
            raise OptionError("--source", "must name files that hold rows", str(path), "get it again, or leave it out")


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
        raise OptionError(
            "--source",
            f"is needed, because the hub did not give {entry.hub} ({_cause(error)})",
            None,
            f"download {entry.hub} where there is a connection and pass --source FILE [FILE...], "
            "or set HF_ENDPOINT to a mirror, or --hub REPOSITORY[:CONFIGURATION] if it has moved",
        ) from error
    for number, fields in enumerate(rows, start=1):
        yield Record(entry.hub, number, dict(fields))


def _in_folder(folder: Path, splits: tuple[str, ...]) -> list[Path]:
    inside = sorted(folder.iterdir())
    if (folder / "state.json").is_file():
        return [folder]
    if (folder / "dataset_dict.json").is_file():
        saved = [path.name for path in inside if (path / "state.json").is_file()]
        for split in splits:
            if split in saved:
                return [folder / split]
        rule = f"must hold the split {splits[0]}, not {', '.join(saved) or 'none'}"
        raise OptionError(
            "--source", rule, str(folder), f"name one split's folder, such as {folder / (saved or splits)[0]}"
        )
    files = [path for path in inside if path.is_file() and _is_data(path) and not path.name.startswith(".")]
    if not files:
        rule = f"must hold files that end in {', '.join(SUFFIXES)}, or a data set saved to disk"
        raise OptionError("--source", rule, str(folder), "name the files")
    named = {found[1]: path.name for path in files if (found := _SPLIT.search(path.name.lower()))}
    if len(named) > 1:
        rule = f"must hold the files of one split, not {' and '.join(named.values())}"
        raise OptionError("--source", rule, str(folder), "name the files of one split")
    return files


def _is_data(path: Path) -> bool:
    return path.suffix.lower() in SUFFIXES


def _cause(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


def _json(path: Path) -> Iterator[tuple[dict[str, Any] | None, str]]:
    with path.open("rb") as file:
        start = b""
        for line in file:
            start = line.removeprefix(codecs.BOM_UTF8).strip()
            if start:
                break
        file.seek(0)
        if start.startswith(b"["):
            yield from map(_object, json.loads(file.read().decode("utf-8-sig")))
            return
        for line in file:
            if line.strip():
                try:
                    yield _object(json.loads(line.decode("utf-8-sig")))
                except (ValueError, RecursionError) as error:
                    yield None, f"is not JSON ({getattr(error, 'msg', type(error).__name__)})"


def _object(value: object) -> tuple[dict[str, Any] | None, str]:
    return (value, "") if isinstance(value, dict) else (None, "is not a JSON object")


def _parquet(path: Path) -> Iterator[tuple[dict[str, Any] | None, str]]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=1024):
            for fields in batch.to_pylist():
                yield fields, ""


def _saved(folder: Path) -> Iterator[tuple[dict[str, Any] | None, str]]:
    from datasets import load_from_disk

    for fields in load_from_disk(str(folder)):
        yield dict(fields), ""


def _refuse_pointer(path: Path) -> None:
    if path.is_file():
        with path.open("rb") as file:
            if file.read(100).startswith(_POINTERS):
                raise ValueError("a pointer to large storage, not the file itself; `git lfs pull` or its like gets it")
