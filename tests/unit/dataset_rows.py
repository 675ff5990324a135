"""Rows of data sets as they are found, and the command that prepares them, for the tests."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from verl_pods_cero.tools.datasets import add_arguments, run


def sciknoweval(question: str = "Which?", **changes: Any) -> dict[str, Any]:
    row = {
        "prompt": {"default": "Please directly give the answer without any explanation."},
        "question": question,
        "choices": {"text": ["one", "two", "three", "four"], "label": ["A", "B", "C", "D"]},
        "answerKey": "B",
        "type": "mcq-4-choices",
        "domain": "Chemistry",
        "details": {"level": "L3", "task": "counting"},
    }
    return {**row, **changes}


def verl_schema(prompt: Any, ground_truth: Any, **extra: Any) -> dict[str, Any]:
    return {
        "data_source": "found somewhere",
        "prompt": prompt,
        "reward_model": {"style": "rule", "ground_truth": ground_truth},
        "extra_info": {"index": 7, **extra},
    }


def user(content: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": content}]


def write_source(path: Path, rows: list[Any]) -> Path:
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def command(*arguments: object) -> int:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return run(parser.parse_args([str(argument) for argument in arguments]))


def prepare(tmp_path: Path, name: str, rows: list[Any], *options: object, file: str = "raw.jsonl") -> list[Any]:
    """Run the command on these rows; return what it wrote, all files in order."""
    source = write_source(tmp_path / file, rows)
    output = tmp_path / "out"
    assert command(name, "--source", source, "--output", output, *options) == 0
    return [row for path in sorted(output.glob("*.parquet")) for row in pq.read_table(path).to_pylist()]


def ground_truths(rows: list[Any]) -> list[str]:
    return [row["reward_model"]["ground_truth"] for row in rows]
