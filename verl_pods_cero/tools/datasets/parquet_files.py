"""verl's rows, written as parquet: all files of a data set whole, or none."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from verl_pods_cero.files import written_whole
from verl_pods_cero.tools.datasets.catalog import Catalogued
from verl_pods_cero.tools.datasets.preparation import Found
from verl_pods_cero.tools.datasets.prompts import messages


def verl_row(found: Found, entry: Catalogued, split: str, index: int, style: str) -> dict[str, Any]:
    """Return one row of verl's schema.

    `extra_info` has the same fields for every data set, because verl joins the files of a run into one table.
    """
    problem, record = found.problem, found.record
    return {
        "data_source": entry.data_source,
        "prompt": messages(problem.question, entry, style),
        "ability": entry.ability,
        "reward_model": {"style": "rule", "ground_truth": problem.answer},
        "extra_info": {
            "index": index,
            "split": split,
            "question": problem.question,
            "answer": problem.solution or problem.answer,
            "subject": problem.subject,
            "level": problem.level,
            "source_file": record.file,
            "source_row": record.row,
        },
    }


def write(files: Mapping[Path, list[dict[str, Any]]]) -> None:
    """Write the rows of each file; the files are put in place when all are written."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with ExitStack() as written:
        for path, rows in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            table = pa.Table.from_pylist(rows, schema=_schema())
            pq.write_table(table, written.enter_context(written_whole(path)))


def _schema() -> Any:
    """A fixed schema: an empty column would otherwise get another type in one file than in the next."""
    import pyarrow as pa

    text, number = pa.string(), pa.int64()
    message = pa.struct({"role": text, "content": text})
    extra = dict.fromkeys(
        ("index", "split", "question", "answer", "subject", "level", "source_file", "source_row"), text
    )
    extra |= {"index": number, "source_row": number}
    columns = {"data_source": text, "prompt": pa.list_(message), "ability": text}
    columns["reward_model"] = pa.struct({"style": text, "ground_truth": text})
    return pa.schema(columns | {"extra_info": pa.struct(extra)})
