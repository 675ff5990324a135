"""Data sets: every schema found in the wild becomes verl rows, and no row goes missing in silence."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests import published_data
from tests.unit.dataset_rows import command, ground_truths, prepare, sciknoweval, user, verl_schema, write_source
from verl_pods_cero.rewards.scoring import scorer_name
from verl_pods_cero.tools.datasets.catalog import CATALOG

DAPO_PROMPT = CATALOG["dapo_math_17k"].instruction.format(question="What is 2 + 2?")


# --- the package


def test_the_package_imports_no_data_library() -> None:
    code = (
        "import sys, verl_pods_cero.tools.datasets\n"
        "heavy = ('torch', 'verl', 'numpy', 'pyarrow', 'pandas', 'datasets', 'transformers', 'tqdm')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_every_data_source_has_a_scorer() -> None:
    for entry in CATALOG.values():
        assert scorer_name(entry.data_source)


@pytest.mark.parametrize("source", sorted({entry.data_source for entry in CATALOG.values()}))
def test_verl_itself_scores_every_data_source_but_sciknoweval(source: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from verl.utils.reward_score import default_compute_score
    if source == "sciknoweval":
        with pytest.raises(NotImplementedError):
            default_compute_score(source, "4", "4")
    else:
        default_compute_score(source, "#### 4", "4")


def test_the_documented_data_sets_are_the_ones_there_are(repository: Path) -> None:
    text = (repository / "docs" / "data_and_rewards.md").read_text()
    table = re.findall(r"^\| `(\w+)` \| [^|]+ \| `([^`]+)` \| ([^ ,]+)", text, flags=re.MULTILINE)
    assert table == [(entry.name, entry.data_source, entry.hub) for entry in CATALOG.values()]


# --- verl's schema


@pytest.mark.parametrize("name", [name for name in CATALOG if name != "sciknoweval"])
def test_every_data_set_gives_the_same_columns(tmp_path: Path, name: str) -> None:
    [row] = prepare(tmp_path, name, [{"question": "What is 2 + 2?", "answer": "4"}])
    assert row["data_source"] == CATALOG[name].data_source
    assert "What is 2 + 2?" in row["prompt"][0]["content"]
    assert row["reward_model"] == {"style": "rule", "ground_truth": "4"}
    assert row["extra_info"] == {
        "index": 0,
        "split": CATALOG[name].split,
        "question": "What is 2 + 2?",
        "answer": "4",
        "subject": "",
        "level": "",
        "source_file": "raw.jsonl",
        "source_row": 1,
    }


def test_verl_can_join_the_files_of_different_data_sets(tmp_path: Path) -> None:
    schemas = []
    for name, row in (
        ("math500", {"problem": "?", "answer": "4", "solution": "s", "level": 2}),
        ("sciknoweval", sciknoweval()),
    ):
        (tmp_path / name).mkdir()
        prepare(tmp_path / name, name, [row], "--test-fraction", 0)
        schemas += [pq.read_schema(path) for path in (tmp_path / name / "out").glob("*.parquet")]
    assert schemas[0].equals(schemas[1])


def test_indices_are_unique_whatever_the_source_says(tmp_path: Path) -> None:
    rows = prepare(tmp_path, "math", [verl_schema(user(f"Question {i}?"), "4") for i in range(5)])
    assert [row["extra_info"]["index"] for row in rows] == [0, 1, 2, 3, 4]


# --- schemas in the wild


@pytest.mark.parametrize(
    ("name", "row", "answer"),
    [
        ("gsm8k", {"question": "2 + 2?", "answer": "2 + 2 = <<2+2=4>>4\n#### 4"}, "4"),
        ("gsm8k", {"question": "2 + 2?", "answer": "#### 1,450,000"}, "1450000"),
        (
            "math",
            {"problem": "2 + 2?", "solution": r"It is $\boxed{\frac{8}{2}}$.", "level": "Level 1"},
            r"\frac{8}{2}",
        ),
        ("math", {"problem": "2 + 2?", "solution": "...", "answer": "4", "type": "Algebra"}, "4"),
        ("math", {"question": "2 + 2?", "gt_answer": "251.60"}, "251.60"),
        ("aime24", {"id": 60, "problem": "2 + 2?", "solution": "s", "answer": "204", "url": "u"}, "204"),
        ("aime24", {"ID": "2024-I-1", "Problem": "2 + 2?", "Solution": "s", "Answer": 204}, "204"),
        ("aime25", {"problem": "2 + 2?", "answer": "073"}, "73"),
        ("amc23", {"id": 0, "question": "2 + 2?", "answer": 27.0, "url": "u"}, "27"),
        ("dapo_math_17k", {"prompt": "2 + 2?", "solution": "34"}, "34"),
        ("dapo_math_17k", verl_schema(user("2 + 2?"), "34", answer=""), "34"),
        ("dapo_math_17k", verl_schema("2 + 2?", ["34"]), "34"),
        ("math", verl_schema(user("2 + 2?"), {"question": "2 + 2?", "solution": "s", "target": "5"}), "5"),
        ("aime24", verl_schema(user("Solve: 2 + 2?"), "540", raw_problem="2 + 2?", split=None), "540"),
    ],
)
def test_rows_are_read_in_the_schemas_that_exist(tmp_path: Path, name: str, row: dict[str, Any], answer: str) -> None:
    [written] = prepare(tmp_path, name, [row])
    assert ground_truths([written]) == [answer]
    assert written["extra_info"]["question"] == "2 + 2?"


@pytest.mark.parametrize("file", ["raw.json", "raw.jsonl", "raw.parquet"])
def test_files_are_read_by_their_content(tmp_path: Path, file: str) -> None:
    rows = prepare(tmp_path, "gsm8k", [{"question": f"{i}?", "answer": f"#### {i}"} for i in range(3)], file=file)
    assert ground_truths(rows) == ["0", "1", "2"]


def test_a_json_array_is_read_too(tmp_path: Path) -> None:
    source = tmp_path / "raw.json"
    source.write_text(json.dumps([{"question": "?", "answer": "4"}], indent=1))
    assert command("gsm8k", "--source", source, "--output", tmp_path) == 0


def test_several_files_become_one_data_set(tmp_path: Path) -> None:
    for name in ("a.jsonl", "b.jsonl"):
        write_source(tmp_path / name, [{"question": name, "answer": "4"}])
    assert command("math", "--source", tmp_path / "a.jsonl", tmp_path / "b.jsonl", "--output", tmp_path) == 0
    rows = pq.read_table(tmp_path / "train.parquet").to_pylist()
    assert [row["extra_info"]["source_file"] for row in rows] == ["a.jsonl", "b.jsonl"]


def test_a_published_instruction_is_not_asked_twice(tmp_path: Path) -> None:
    [row] = prepare(tmp_path, "dapo_math_17k", [verl_schema(user(DAPO_PROMPT), "4")])
    assert row["prompt"] == user(DAPO_PROMPT)
    assert row["extra_info"]["question"] == "What is 2 + 2?"


def test_the_tags_style_asks_for_tags_in_a_system_message(tmp_path: Path) -> None:
    [row] = prepare(tmp_path, "gsm8k", [{"question": "2 + 2?", "answer": "#### 4"}], "--style", "tags")
    system, question = row["prompt"]
    assert (system["role"], question) == ("system", {"role": "user", "content": "2 + 2?"})
    assert all(tag in system["content"] for tag in ("<think>", "</think>", "<answer>", "</answer>"))


# --- SciKnowEval


def test_choices_are_in_the_prompt_with_letters_and_reasoning_is_asked_for(tmp_path: Path) -> None:
    [row] = prepare(tmp_path, "sciknoweval", [sciknoweval()], "--test-fraction", 0)
    content = row["prompt"][0]["content"]
    assert "Which?\n\nA: one\nB: two\nC: three\nD: four\n\nThink step by step." in content
    assert "without any explanation" not in content
    assert ground_truths([row]) == ["B"]


def test_a_republished_question_reads_like_the_published_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prompt = "Which?\n\nA: one\nB: two\nC: three\nD: four\nPlease reason step by step."
    republished = {"idx": 1, "kind": "mcq", "answer": "B", "prompt": prompt, "system": "Given a question"}
    rows = prepare(tmp_path, "sciknoweval", [sciknoweval(), republished], "--split", "train")
    assert rows[0]["prompt"] == rows[1]["prompt"]
    assert "took 1 rows that do not say their domain and level" in capsys.readouterr().out


def test_only_the_chosen_domain_level_and_type_are_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    raw = [
        sciknoweval(),
        sciknoweval(domain="Physics"),
        sciknoweval(details={"level": "L4"}),
        sciknoweval(type="true_or_false"),
    ]
    assert len(prepare(tmp_path, "sciknoweval", raw, "--split", "test")) == 1
    said = capsys.readouterr().out
    for line in ("read 4 rows, kept 1", "left out 1: domain Physics", "left out 1: level L4", "left out 1: type"):
        assert line in said
    more = ["--domain", "Chemistry", "physics", "--level", "l3", "L4", "--split", "test", "--force"]
    assert len(prepare(tmp_path, "sciknoweval", raw, *more)) == 3


def test_the_split_is_the_same_for_a_seed_and_never_parts_a_question(tmp_path: Path) -> None:
    raw = [sciknoweval(f"Question {i % 20}?", answerKey="ABCD"[i % 4]) for i in range(40)]
    splits = []
    for seed, force in ((1, ()), (1, ("--force",)), (2, ("--force",))):
        rows = prepare(tmp_path, "sciknoweval", raw, "--seed", seed, *force)
        splits.append([(row["extra_info"]["split"], row["extra_info"]["question"]) for row in rows])
    assert splits[0] == splits[1] != splits[2]
    sides = {side: {question for split, question in splits[0] if split == side} for side in ("train", "test")}
    assert len(sides["test"]) == 2
    assert not sides["train"] & sides["test"]


# --- what becomes of every row


def test_unusable_rows_are_counted_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "raw.jsonl"
    good = {"question": "2 + 2?", "answer": "#### 4"}
    bad = [
        {"question": "2 + 2?"},
        {"answer": "#### 4"},
        {"question": "?", "answer": "#### four"},
        verl_schema(user("?"), ["3", "4"]),
        [1, 2],
        {"question": "? ", "answer": None},
    ]
    source.write_text("\n".join([json.dumps(row) for row in [good, *bad]] + ["{", "", json.dumps(good)]))
    assert command("gsm8k", "--source", source, "--output", tmp_path) == 0
    said = capsys.readouterr().out
    assert "read 9 rows, kept 2" in said
    assert (
        r"rejected 2: has no answer (no answer field, no #### and no \boxed{} in a solution): raw.jsonl rows 2, 7"
        in said
    )
    for line in (
        "rejected 1: has no question",
        "rejected 1: has an answer that is no number: raw.jsonl row 4",
        "rejected 1: has 2 ground truths: raw.jsonl row 5",
        "rejected 1: is not a JSON object: raw.jsonl row 6",
        "rejected 1: is not JSON",
    ):
        assert line in said


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"answerKey": "E"}, "names no right letter among A, B, C, D"),
        ({"choices": {"text": ["one", "two"], "label": ["A", "B"]}}, "has 2 choices labelled A, B, not A, B, C, D"),
        ({"choices": {"text": list("xyyz"), "label": list("ABCD")}}, "has two choices that read like the right one"),
        ({"question": ""}, "has no question"),
    ],
)
def test_unusable_choices_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any], reason: str
) -> None:
    prepare(tmp_path, "sciknoweval", [sciknoweval(**changes), sciknoweval()], "--split", "train")
    assert f"rejected 1: {reason}: raw.jsonl row 1" in capsys.readouterr().out


def test_duplicates_go_and_contradictions_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pairs = [("What  is\n2 + 2?", "4"), ("What is 2 + 2?", "4.0"), (DAPO_PROMPT, "4"), ("What is 2 + 2?", "5")]
    rows = prepare(tmp_path, "dapo_math_17k", [verl_schema(user(q), a) for q, a in pairs])
    assert ground_truths(rows) == ["4", "5"]
    said = capsys.readouterr().out
    assert "removed 2 duplicates" in said
    assert "with different answers to one question: raw.jsonl row 1, raw.jsonl row 4" in said


def test_the_limit_counts_usable_rows(tmp_path: Path) -> None:
    raw = [{"question": "?"}, *({"question": f"{i}?", "answer": str(i)} for i in range(5))]
    assert ground_truths(prepare(tmp_path, "math", raw, "--limit", 2)) == ["0", "1"]


# --- the files written


def test_a_sample_row_and_its_prompt_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prepare(tmp_path, "gsm8k", [{"question": "2 + 2?", "answer": "#### 4"}])
    said = capsys.readouterr().out
    assert '"ground_truth": "4"' in said
    assert "rendered prompt:\n[user]\n2 + 2? Let's think step by step" in said


def test_a_tokenizer_renders_the_sample_with_its_template(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Tokenizer:
        def apply_chat_template(self, chat: list[dict[str, str]], **options: bool) -> str:
            assert options == {"tokenize": False, "add_generation_prompt": True}
            return f"<|im_start|>{chat[0]['role']}"

    monkeypatch.setattr("verl_pods_cero.tools.datasets.command.load_tokenizer", lambda _: Tokenizer())
    prepare(tmp_path, "gsm8k", [{"question": "?", "answer": "#### 4"}], "--tokenizer", "some/model")
    assert "rendered prompt:\n<|im_start|>user" in capsys.readouterr().out


def test_a_template_that_refuses_the_prompts_is_told_before_any_file_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Tokenizer:
        name_or_path = "some/model"

        def apply_chat_template(self, *_: Any, **__: Any) -> str:
            raise ValueError("no chat template is set")

    monkeypatch.setattr("verl_pods_cero.tools.datasets.command.load_tokenizer", lambda _: Tokenizer())
    record = {"question": "?", "answer": "#### 4"}
    source = write_source(tmp_path / "raw.jsonl", [record] * 9)
    assert command("gsm8k", "--source", source, "--output", tmp_path / "out", "--tokenizer", "some/model") == 2
    assert "must have a chat template that takes a user message (no chat template is set)" in capsys.readouterr().err
    assert not list(tmp_path.rglob("*.parquet"))


def test_files_are_not_replaced_without_force(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    raw = [{"question": "?", "answer": "#### 4"}]
    prepare(tmp_path, "gsm8k", raw)
    source = tmp_path / "raw.jsonl"
    assert command("gsm8k", "--source", source, "--output", tmp_path / "out") == 2
    assert "add --force" in capsys.readouterr().err
    assert len(prepare(tmp_path, "gsm8k", raw * 2, "--force")) == 2


def test_a_failed_write_leaves_the_old_file_and_no_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = [{"question": "?", "answer": "#### 4"}]
    prepare(tmp_path, "gsm8k", raw)
    before = (tmp_path / "out" / "train.parquet").read_bytes()

    def fail(table: object, path: Path) -> None:
        path.write_bytes(b"half a file")
        raise OSError("disk full")

    monkeypatch.setattr(pq, "write_table", fail)
    assert command("gsm8k", "--source", tmp_path / "raw.jsonl", "--output", tmp_path / "out", "--force") == 1
    assert capsys.readouterr().err.endswith("error: disk full\n")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["train.parquet"]
    assert (tmp_path / "out" / "train.parquet").read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gms8k"], "did you mean 'gsm8k'"),
        (["gsm8k", "--source", "nowhere.jsonl"], "--source must name files that exist"),
        (["gsm8k", "--source", __file__], "--source must end in .jsonl, .json, .parquet"),
        (["gsm8k", "--output", "train.parquet"], "--output must be a directory"),
        (["gsm8k", "--limit", "0"], "--limit must be at least 1"),
        (["gsm8k", "--domain", "chemistry"], "belong to sciknoweval"),
        (["gsm8k", "--hub", "a/b", "--source", "c.jsonl"], "--hub excludes --source"),
        (["gsm8k", "--test-fraction", "1.5"], "--test-fraction must be at least 0 and below 1"),
        (["gsm8k", "--test-fraction", "0.1", "--split", "test"], "--split excludes --test-fraction"),
        (["sciknoweval", "--domain", "chemestry"], "did you mean 'chemistry'"),
        (["math500", "--split", "train"], "--split must be test for HuggingFaceH4/MATH-500"),
    ],
)
def test_a_wrong_option_is_refused_with_the_fix(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert command(*arguments) == 2
    said = capsys.readouterr().err
    assert message in said
    assert "Fix: " in said


def test_a_source_without_usable_rows_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write_source(tmp_path / "raw.jsonl", [{"text": "?"}])
    assert command("gsm8k", "--source", source, "--output", tmp_path / "out") == 2
    said = capsys.readouterr()
    assert "rejected 1: has no question" in said.out
    assert "must hold usable rows" in said.err
    assert not (tmp_path / "out").exists()


def test_a_damaged_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "raw.json").write_text("[{")
    assert command("gsm8k", "--source", tmp_path / "raw.json", "--output", tmp_path / "out") == 2
    assert "must name files that can be read" in capsys.readouterr().err


# --- the hub


class Hub:
    """Stands in for the library `datasets`."""

    def __init__(self, rows: list[dict[str, Any]] | Exception) -> None:
        self.rows = rows
        self.asked: list[object] = []

    def load_dataset(self, repository: str, configuration: str | None, *, split: str) -> list[dict[str, Any]]:
        self.asked = [repository, configuration, split]
        if isinstance(self.rows, Exception):
            raise self.rows
        return self.rows


def test_without_a_source_the_hub_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = Hub([{"question": "?", "answer": "#### 4"}])
    monkeypatch.setitem(sys.modules, "datasets", hub)
    assert command("gsm8k", "--output", tmp_path) == 0
    assert hub.asked == ["openai/gsm8k", "main", "train"]
    assert command("gsm8k", "--hub", "mine/gsm8k:small", "--split", "test", "--output", tmp_path) == 0
    assert hub.asked == ["mine/gsm8k", "small", "test"]


def test_an_unreachable_hub_is_told_with_the_fix(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "datasets", Hub(ConnectionError("Couldn't reach the Hub")))
    assert command("aime25") == 2
    said = capsys.readouterr().err
    assert "the hub did not give math-ai/aime25 (ConnectionError: Couldn't reach the Hub)" in said
    assert "pass --source FILE" in said


# --- the published files themselves


@pytest.mark.parametrize(
    ("name", "pattern", "kept"),
    [
        ("gsm8k", "gsm8k/train_first1000.jsonl", 1000),
        ("gsm8k", "gsm8k/test.jsonl", 1319),
        ("math", "math/train_first600.jsonl", 600),
        ("math", "math/test_first600.jsonl", 600),
        ("math500", "math500/test.jsonl", 500),
        ("sciknoweval", "sciknoweval/raw_*.jsonl", 500),
        ("sciknoweval", "sciknoweval/sdpo_*.jsonl", 400),
        ("dapo_math_17k", "dapo_math_17k/train_first1500.jsonl", 1489),
        ("aime24", "aime24/test.jsonl", 30),
        ("aime24", "aime24/dapo_aime2024_dedup.jsonl", 30),
    ],
)
def test_the_published_files_are_read_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, pattern: str, kept: int
) -> None:
    files = sorted(published_data.FOLDER.glob(pattern))
    if not files:
        pytest.skip(published_data.ABSENT)
    assert command(name, "--source", *files, "--output", tmp_path, "--test-fraction", 0) == 0
    assert f", kept {kept}\n" in capsys.readouterr().out
    [path] = tmp_path.glob("*.parquet")
    rows = pq.read_table(path).to_pylist()
    assert len({row["extra_info"]["index"] for row in rows}) == len(rows) == kept


def test_both_publications_of_aime24_ask_the_same(tmp_path: Path) -> None:
    files = [published_data.FOLDER / "aime24" / name for name in ("test.jsonl", "dapo_aime2024_dedup.jsonl")]
    if not all(file.is_file() for file in files):
        pytest.skip(published_data.ABSENT)
    answers = []
    for number, file in enumerate(files):
        assert command("aime24", "--source", file, "--output", tmp_path / str(number)) == 0
        rows = pq.read_table(tmp_path / str(number) / "test.parquet").to_pylist()
        answers.append(sorted(ground_truths(rows)))
    assert answers[0] == answers[1]
