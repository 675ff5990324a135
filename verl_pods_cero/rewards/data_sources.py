"""The data sources that a file in verl's schema names."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from verl_pods_cero.errors import OptionError


def data_sources(file: Path) -> set[str]:
    """Return what stands in the column `data_source`: of a parquet file, of JSON lines, or of a JSON array.

    A line that is no JSON object is left to verl; a row without the field gives "None".

    Raises:
        OptionError: the file cannot be read.
    """
    try:
        return set(map(str, _parquet(file) if file.suffix == ".parquet" else _json(file)))
    except (OSError, ValueError) as error:
        cause, fix = str(error).partition("\n")[0], "write the file with `verl-pods-cero data <name>`"
        raise OptionError("data_source", f"must be a column that can be read ({cause})", str(file), fix) from error


def _parquet(file: Path) -> Iterable[object]:
    import pyarrow.parquet as pq

    table = pq.read_table(file, columns=["data_source"])
    return table.column(0).unique().to_pylist() if table.num_columns else [None]


def _json(file: Path) -> Iterator[object]:
    with file.open(encoding="utf-8-sig") as lines:
        for number, line in enumerate(lines):
            if number == 0 and line.lstrip().startswith("["):
                yield from (row.get("data_source") for row in json.loads(line + lines.read()) if isinstance(row, dict))
                return
            try:
                row = json.loads(line)
            except json.JSONDecodeError:
                continue
            if isinstance(row, dict):
                yield row.get("data_source")
