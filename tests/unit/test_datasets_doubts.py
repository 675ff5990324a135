"""Data that is not what the command was told: repeated rows, another data set, other file names, folders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import datasets
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.dataset_rows import command, ground_truths, prepare, sciknoweval, user, verl_schema, write_source
from verl_pods_cero.tools.datasets.records import Record
from verl_pods_cero.tools.datasets.tally import Tally

GSM8K = [{"question": f"{i} + 1?", "answer": f"So\n#### {i + 1}"} for i in range(30)]
MATH = [
    {"problem": f"{i} + $x$?", "solution": rf"\boxed{{{i}{'' if i % 3 else ' + x'}}}", "level": "Level 1"}
    for i in range(60)
]
AIME = [{"problem": f"{i} + 1?", "answer": str(i + 1)} for i in range(30)]


# --- repeated rows


def test_a_test_set_that_repeats_its_problems_asks_each_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ground_truths(prepare(tmp_path, "aime24", AIME * 32)) == [str(i + 1) for i in range(30)]
    assert "read 960 rows, kept 30\nremoved 930 duplicates (same question, same answer)" in capsys.readouterr().out
    assert len(prepare(tmp_path, "aime24", AIME * 32, "--no-deduplicate", "--force")) == 960
    assert "warning: 930 rows repeat an earlier question and its answer" in capsys.readouterr().out


def test_repeated_rows_of_other_data_sets_are_kept_with_a_warning_and_go_on_demand(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    raw = [*GSM8K, *GSM8K[:2], {"question": GSM8K[0]["question"], "answer": "#### 7"}]
    assert len(prepare(tmp_path, "gsm8k", raw)) == 33
    said = capsys.readouterr().out
    repeated = "repeat an earlier question and its answer (--deduplicate removes them): raw.jsonl rows 31-32\n"
    assert f"warning: 2 rows {repeated}" in said
    assert "kept both, with different answers to one question: raw.jsonl row 1, raw.jsonl row 33" in said
    assert len(prepare(tmp_path, "gsm8k", raw, "--deduplicate", "--force")) == 31


# --- another data set than the one named


@pytest.mark.parametrize(
    ("name", "raw", "status", "said"),
    [
        ("gsm8k", MATH, 2, "'20 of 60 rows rejected'. Fix: the rejected ones are rows of math: name that"),
        ("gsm8k", [sciknoweval()], 2, "hold usable rows, got 0. Fix: the rejected ones are rows of sciknoweval"),
        ("sciknoweval", GSM8K, 2, "got 0. Fix: the rejected ones are rows of gsm8k"),
        ("math", GSM8K, 0, "warning: 30 rows have their answer after ####, as gsm8k's do"),
        ("aime25", MATH, 0, "warning: 20 rows have an answer that is no integer, as aime25's are"),
        ("aime24", [verl_schema(user("2?"), "2")], 0, "took 1 rows whose data_source was 'found somewhere' (now"),
    ],
)
def test_rows_of_another_data_set_are_refused_or_pointed_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, raw: list[Any], status: int, said: str
) -> None:
    source = write_source(tmp_path / "raw.jsonl", raw)
    assert command(name, "--source", source, "--output", tmp_path / "out") == status
    captured = capsys.readouterr()
    assert said in captured.out + captured.err
    assert (tmp_path / "out").exists() is (status == 0)


def test_how_many_rows_may_be_rejected_is_an_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(prepare(tmp_path, "gsm8k", MATH, "--max-rejected", 0.5)) == 40
    source = write_source(tmp_path / "raw.jsonl", [*GSM8K, {"question": "?"}])
    strict = ["--max-rejected", 0, "--output", tmp_path / "strict"]
    assert command("gsm8k", "--source", source, *strict) == 2
    assert "but for 0 of them, got '1 of 31 rows rejected'. Fix: see above" in capsys.readouterr().err
    for share in (-0.1, 1.1, float("nan")):
        assert command("gsm8k", "--source", source, "--max-rejected", share) == 2
        assert "--max-rejected must be a share from 0 to 1" in capsys.readouterr().err


def test_level_and_subject_of_verl_rows_are_kept_wherever_they_stand(tmp_path: Path) -> None:
    described = {"level": "Level 5", "type": "Algebra"}
    for number, row in enumerate(
        (
            verl_schema(user("2 + 2?"), "4", **described),
            verl_schema(user("2 + 2?"), "4") | described,
            verl_schema(user("2 + 2?"), {"target": "4", **described}),
            verl_schema(user("2 + 2?"), "4", level=None, type=None) | described,
            {"problem": "2 + 2?", "answer": "4", **described},
        )
    ):
        (tmp_path / str(number)).mkdir()
        [written] = prepare(tmp_path / str(number), "math", [row])
        assert (written["extra_info"]["level"], written["extra_info"]["subject"]) == ("Level 5", "Algebra")


# --- files and folders


@pytest.mark.parametrize("file", ["RAW.JSONL", "Raw.Json", "raw.PARQUET"])
def test_endings_may_be_written_in_capitals(tmp_path: Path, file: str) -> None:
    written = write_source(tmp_path / f"raw{Path(file).suffix.lower()}", GSM8K)
    written.rename(tmp_path / file)
    assert command("gsm8k", "--source", tmp_path / file, "--output", tmp_path / "out") == 0


def test_a_folder_gives_its_files_in_order(tmp_path: Path) -> None:
    folder = tmp_path / "raw"
    folder.mkdir()
    write_source(folder / "b.jsonl", GSM8K[:1])
    write_source(folder / "a.parquet", GSM8K[1:2])
    (folder / "README.md").write_text("rows")
    assert command("gsm8k", "--source", folder, "--output", tmp_path / "out") == 0
    rows = pq.read_table(tmp_path / "out" / "train.parquet").to_pylist()
    assert [row["extra_info"]["source_file"] for row in rows] == ["a.parquet", "b.jsonl"]


def test_a_folder_of_several_splits_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for split in ("train-00000-of-00001", "test-00000-of-00001"):
        write_source(tmp_path / f"{split}.parquet", GSM8K)
    assert command("gsm8k", "--source", tmp_path, "--output", tmp_path / "out") == 2
    said = capsys.readouterr().err
    assert "must hold the files of one split, not test-00000-of-00001.parquet and train-00000-of-00001.parquet" in said


def test_a_data_set_saved_to_disk_is_read(tmp_path: Path) -> None:
    rows = datasets.Dataset.from_list(GSM8K)
    rows.save_to_disk(tmp_path / "one")
    assert command("gsm8k", "--source", tmp_path / "one", "--output", tmp_path / "out") == 0
    first, last = (pq.read_table(tmp_path / "out" / "train.parquet").to_pylist()[i]["extra_info"] for i in (0, -1))
    assert (first["source_file"], first["source_row"], last["source_row"]) == ("one", 1, 30)


@pytest.mark.parametrize(
    ("name", "options", "saved", "read"),
    [
        ("gsm8k", (), ("train", "test"), "train"),
        ("gsm8k", ("--split", "test"), ("train", "test"), "test"),
        ("aime24", (), ("train",), "train"),  # the hub calls these test problems train
        ("gsm8k", ("--split", "test"), ("train", "validation"), None),
    ],
)
def test_of_a_saved_data_set_with_several_splits_the_wanted_one_is_read(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    options: tuple[str, ...],
    saved: tuple[str, ...],
    read: str | None,
) -> None:
    every = {split: datasets.Dataset.from_list([{"question": f"{split}?", "answer": "4"}]) for split in saved}
    datasets.DatasetDict(every).save_to_disk(tmp_path / "all")
    status = command(name, "--source", tmp_path / "all", "--output", tmp_path / "out", *options)
    if read is None:
        assert status == 2
        assert "must hold the split test, not train, validation" in capsys.readouterr().err
    else:
        assert status == 0
        [path] = (tmp_path / "out").iterdir()
        [row] = pq.read_table(path).to_pylist()
        assert row["extra_info"]["question"] == f"{read}?"


# --- the report


def test_a_report_stays_short_whatever_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    raw: list[Any] = [*GSM8K, *([7, "?"] * 500), *({"question": "?", "answer": "?" * i} for i in range(500))]
    raw += [{"question": f"{i % 2}?" * 9, "answer": f"{i}"} for i in range(500)]
    raw += [{"question": f"{i}?", "answer": "1", "data_source": "long" * i} for i in range(500)]
    (tmp_path / "raw.jsonl").write_text("".join(json.dumps(row) + "\n" for row in raw))
    assert command("gsm8k", "--source", tmp_path / "raw.jsonl", "--output", tmp_path / "out") == 2
    said = capsys.readouterr().out
    assert "... and " in said
    assert len(said) < 20_000


@given(st.sets(st.integers(1, 60), min_size=1))
def test_the_rows_of_a_report_are_the_rows_rejected(rows: set[int]) -> None:
    tally = Tally()
    for row in rows:
        tally.reject(Record("raw.jsonl", row, None), "is bad")
    listed = tally.report().partition("raw.jsonl row")[2].removeprefix("s").strip()
    named: set[int] = set()
    for span in listed.removesuffix(", ...").split(", "):
        first, _, last = span.partition("-")
        named |= set(range(int(first), int(last or first) + 1))
    assert named == rows or (listed.endswith(", ...") and named < rows)
