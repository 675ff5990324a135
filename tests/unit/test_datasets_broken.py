"""Broken data: whatever a file holds, a data command names what is wrong, and writes all of its files or none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.dataset_rows import command, prepare, sciknoweval, user, verl_schema, write_source
from verl_pods_cero.errors import OptionError
from verl_pods_cero.rewards import check_setup
from verl_pods_cero.tools.datasets.catalog import CATALOG
from verl_pods_cero.tools.datasets.choices import Selection
from verl_pods_cero.tools.datasets.preparation import prepare as read_rows
from verl_pods_cero.tools.datasets.records import Record
from verl_pods_cero.tools.datasets.tally import Tally

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
LONE = "\ud800"


def parquet_bytes(columns: dict[str, Any]) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink)
    return bytes(sink.getvalue())


def json_lines(*rows: Any) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


WHOLE = parquet_bytes({"question": [f"{i} + 2?" for i in range(500)], "answer": [str(i) for i in range(500)]})
NO_TEXT = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe")])

BROKEN: dict[str, bytes] = {
    "pointer.parquet": POINTER,
    "truncated.parquet": WHOLE[: len(WHOLE) // 2],
    "damaged.parquet": WHOLE[:60] + bytes(200) + WHOLE[260:],
    "empty.parquet": b"",
    "no_rows.parquet": parquet_bytes({"question": pa.array([], pa.string())}),
    "text.parquet": json_lines({"question": "?", "answer": "4"}),
    "no_text.parquet": parquet_bytes({"question": NO_TEXT, "answer": NO_TEXT}),
    "numbers.parquet": parquet_bytes({"question": [[1, 2]], "prompt": [[1, 2]], "choices": [7], "reward_model": [1.5]}),
    "nothing.parquet": parquet_bytes({"question": pa.nulls(3), "prompt": pa.nulls(3), "choices": pa.nulls(3)}),
    "pointer.jsonl": POINTER,
    "annex.jsonl": b"/annex/objects/SHA256E-s1--4d7a.jsonl\n",
    "empty.jsonl": b"",
    "blank.jsonl": b"\n\n \n",
    "binary.jsonl": bytes(range(256)) * 4,
    "latin.jsonl": '{"question": "caf\xe9?", "answer": "4"}\n'.encode("latin-1"),
    "utf16.jsonl": '{"question": "?", "answer": "4"}\n'.encode("utf-16"),
    "cut.jsonl": b'{"question": "?", "ans',
    "deep.jsonl": b'{"question": ' + b"[" * 100_000 + b"\n",
    "digits.jsonl": b'{"question": "?", "answer": ' + b"9" * 10_000 + b"}\n",
    "pretty.json": json.dumps({"question": "?", "answer": "4"}, indent=1).encode(),
    "array.json": b'[{"question": "?"',
    "empty_array.json": b"[]",
    "deep.json": b"[" * 100_000,
    "numbers.json": b"[1, 2, null]",
    "surrogate.jsonl": json_lines(
        {"question": f"2{LONE} + 2?", "answer": "4"},
        {"question": "2 + 2?", "answer": f"4 {LONE}\n#### 4"},
        {"question": "2 + 2?", "answer": "4", "level": LONE},
        sciknoweval(LONE),
        sciknoweval(domain=LONE),
        sciknoweval(choices={"text": [LONE, "2", "3", "4"], "label": ["A", "B", "C", "D"]}),
        verl_schema(user(LONE), "4"),
    ),
    "odd.jsonl": json_lines(
        *({"question": "?", "answer": answer} for answer in (None, [], {}, True, float("nan"), float("inf"), " ")),
        *({"prompt": prompt, "answer": "4"} for prompt in (True, [7], [None], [[]], [{}], [{"role": "user"}])),
        {"prompt": [{"role": "user", "content": ["?"]}], "answer": "4"},
        *({"reward_model": model} for model in (None, 7, {}, {"ground_truth": {}}, {"ground_truth": [["4"]]})),
        *(sciknoweval(choices=choices) for choices in (None, 7, {"text": 7, "label": "ABCD"}, {"text": [1]})),
        sciknoweval(details=7, answerKey=["B"]),
        sciknoweval("", domain=["Chemistry"], type=7),
    ),
}
FOLDERS: dict[str, dict[str, bytes]] = {
    "empty_folder": {},
    "other_files": {"README.md": b"# rows"},
    "no_data_set": {"state.json": b"{", "dataset_info.json": b"{}"},
    "no_splits": {"dataset_dict.json": b'{"splits": []}'},
}


def broken(folder: Path, name: str) -> Path:
    path = folder / name
    if name in FOLDERS:
        path.mkdir()
        for file, content in FOLDERS[name].items():
            (path / file).write_bytes(content)
    else:
        path.write_bytes(BROKEN[name])
    return path


@pytest.mark.parametrize("source", [*BROKEN, *FOLDERS])
@pytest.mark.parametrize("name", CATALOG)
def test_a_broken_source_is_named_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, source: str
) -> None:
    output = tmp_path / "out"
    assert command(name, "--source", broken(tmp_path, source), "--output", output) == 2
    said = capsys.readouterr()
    assert source in said.out + said.err
    assert said.err.splitlines()[-1].startswith("error: --source must")
    assert not output.exists()


@pytest.mark.parametrize("name", CATALOG)
def test_a_folder_of_broken_files_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    folder, output = tmp_path / "all", tmp_path / "out"
    folder.mkdir()
    for source in BROKEN:
        broken(folder, source)
    assert command(name, "--source", folder, "--output", output) == 2
    assert command(name, "--source", *folder.glob("*.jsonl"), "--output", output) == 2
    assert "Fix: " in capsys.readouterr().err
    assert not output.exists()


@pytest.mark.parametrize("source", [*BROKEN, *FOLDERS])
def test_a_broken_source_beside_a_good_one_costs_its_own_rows_or_the_run_but_no_file_in_half(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], source: str
) -> None:
    good = write_source(tmp_path / "good.jsonl", [{"question": f"{i}?", "answer": f"#### {i}"} for i in range(20)])
    output = tmp_path / "out"
    status = command("gsm8k", "--source", good, broken(tmp_path, source), "--output", output, "--max-rejected", 1)
    said = capsys.readouterr()
    assert source in said.out + said.err
    assert status in (0, 2)
    if status == 0:
        assert ", kept 20\n" in said.out
        assert [path.name for path in output.iterdir()] == ["train.parquet"]
        assert pq.read_table(output / "train.parquet").num_rows == 20
    else:
        assert not output.exists()


@pytest.mark.parametrize("source", ["pointer.parquet", "pointer.jsonl", "annex.jsonl"])
def test_a_pointer_to_large_storage_is_called_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], source: str
) -> None:
    assert command("gsm8k", "--source", broken(tmp_path, source), "--output", tmp_path / "out") == 2
    assert "a pointer to large storage" in capsys.readouterr().err


def test_a_prompt_of_many_choices_costs_no_time(tmp_path: Path) -> None:
    start = time.process_time()
    hostile = {"prompt": "Which?" + "\nA: x\nB: x\nC: x" * 10_000, "answer": "A"}
    assert len(prepare(tmp_path, "sciknoweval", [hostile, sciknoweval()], "--split", "train")) == 1
    assert time.process_time() - start < 2


def test_half_a_character_costs_its_row_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = {"question": "2 + 2?", "answer": "4"}, {"question": f"{LONE}?", "answer": "4"}
    assert len(prepare(tmp_path, "math", [good, bad])) == 1
    assert "rejected 1: has text that cannot be written (a lone surrogate" in capsys.readouterr().out


KEYS = ("question", "problem", "prompt", "answer", "solution", "choices", "answerKey", "reward_model", "extra_info")
KEYS += ("details", "domain", "type", "level", "data_source", "role", "content", "ground_truth", "text", "label")
TEXTS = ("", " ", "4", "A", "2 + 2?", LONE, "#### 4", "\\boxed{", "1" * 400)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(TEXTS),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=12,
)
GOOD = (sciknoweval(), verl_schema(user("2 + 2?"), "4"), {"question": "2 + 2?", "answer": "4", "level": 1})


@given(st.sampled_from(GOOD), st.dictionaries(st.sampled_from(KEYS), VALUES), st.sampled_from(sorted(CATALOG)))
def test_every_row_is_kept_left_out_or_rejected(row: dict[str, Any], changes: dict[str, Any], name: str) -> None:
    fields = row | changes
    tally = Tally()
    found = read_rows([Record("raw.jsonl", 1, fields)], CATALOG[name], Selection(), None, tally)
    assert len(found) + tally.rejections() + tally.not_wanted.total() == 1
    tally.report().encode()
    for one in found:
        assert one.problem.question and one.problem.answer
        "".join((one.problem.question, one.problem.answer, one.problem.solution)).encode()


@pytest.mark.parametrize("broken_at", [0, 1])
def test_both_files_of_a_divided_data_set_are_written_or_neither(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken_at: int
) -> None:
    write_table: Callable[..., None] = pq.write_table
    written: list[Path] = []

    def fails(table: object, path: Path) -> None:
        written.append(path)
        if len(written) > broken_at:
            raise OSError("disk full")
        write_table(table, path)

    monkeypatch.setattr(pq, "write_table", fails)
    source = write_source(tmp_path / "raw.jsonl", [sciknoweval(f"Question {i}?") for i in range(20)])
    assert command("sciknoweval", "--source", source, "--output", tmp_path / "out") == 1
    assert list((tmp_path / "out").iterdir()) == []


def test_a_folder_in_the_place_of_a_file_is_refused_before_anything_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "train.parquet").mkdir()
    assert command("gsm8k", "--source", "nowhere.jsonl", "--output", tmp_path, "--force") == 2
    assert "--output must not hold a folder of that name" in capsys.readouterr().err


def test_a_terminal_that_knows_no_greek_gets_its_report(tmp_path: Path) -> None:
    source = write_source(tmp_path / "raw.jsonl", [{"question": "α + 2?", "answer": "4"}])
    code = f"from verl_pods_cero.tools.cli import main; main(['data', 'math', '--source', {str(source)!r}])"
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, check=True)
    assert rb'"question": "\u03b1 + 2?"' in done.stdout


def test_the_check_before_training_names_the_file_whose_rows_have_no_data_source(tmp_path: Path) -> None:
    write_source(tmp_path / "rows.jsonl", [{"prompt": user("?")}])
    write_source(tmp_path / "rows.parquet", [{"prompt": user("?")}])
    (tmp_path / "pointer.parquet").write_bytes(POINTER)
    for name, message in (
        ("rows.jsonl", "data_source has no scorer"),
        ("rows.parquet", "data_source must be a column that can be read"),
        ("pointer.parquet", "data_source must be a column that can be read"),
    ):
        with pytest.raises(OptionError, match=rf"{name}: {message}"):
            check_setup([str(tmp_path / name)])
