"""Rewards: which answer is read, how it is compared, and what verl gets back."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from dataclasses import fields
from pathlib import Path

import pytest

from tests import published_data
from verl_pods_cero.errors import OptionError, PluginError
from verl_pods_cero.rewards import RESULT_KEYS, RewardOptions, check_setup, compute_score, math_process
from verl_pods_cero.tools.datasets.catalog import CATALOG

SOLUTIONS = published_data.FOLDER / "gsm8k" / "example_model_solutions_first400.jsonl"
MODELS = ("6b_finetuning", "6b_verification", "175b_finetuning", "175b_verification")


def accuracy(data_source: str, response: str, ground_truth: str, **options: object) -> float:
    return float(compute_score(data_source, response, ground_truth, **options)["acc"])


def test_the_package_imports_no_scoring_library() -> None:
    code = (
        "import sys, verl_pods_cero.rewards\n"
        "heavy = ('torch', 'verl', 'numpy', 'pyarrow', 'sympy', 'math_verify')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


# --- what verl gets back


@pytest.mark.parametrize("source", sorted({entry.data_source for entry in CATALOG.values()}))
def test_every_data_set_gives_the_same_keys_right_or_wrong(source: str) -> None:
    for response in ("#### 4", "Answer: B", ""):
        result = compute_score(source, response, "B" if source == "sciknoweval" else "4")
        assert tuple(result) == RESULT_KEYS
        assert isinstance(result["pred"], str)
        assert all(isinstance(result[key], float) for key in ("score", "acc", "format", "tags"))


def test_the_score_is_the_accuracy_unless_format_terms_are_asked_for() -> None:
    response = "<think>2 + 2</think><answer>4</answer>"
    assert compute_score("openai/gsm8k", response, "4")["score"] == 1.0
    shaped = compute_score("openai/gsm8k", response, "4", format_weight=0.1, tag_weight=0.1)
    assert shaped["score"] == pytest.approx(1.2)
    assert shaped["acc"] == 1.0


def test_a_wrong_answer_keeps_its_format_terms_and_no_accuracy() -> None:
    response = "<think>2 + 2</think><answer>5</answer> ok"
    shaped = compute_score("openai/gsm8k", response, "4", format_weight=1.0, tag_weight=0.1)
    assert shaped["acc"] == 0.0
    assert shaped["score"] == pytest.approx(0.97 + 0.1)


def test_what_verl_adds_for_a_reward_model_is_let_through() -> None:
    assert accuracy("sciknoweval", "Answer: B", "B", reward_router_address="host:1") == 1.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format_wieght": 0.1}, "did you mean 'format_weight'"),
        ({"format_weight": "0.1"}, "format_weight must be a number of at least 0, got '0.1'"),
        ({"tag_weight": True}, "tag_weight must be a number"),
        ({"gsm8k_method": "strickt"}, "did you mean 'strict'"),
        ({"math_timeout": 0}, "math_timeout must be a number of at least 1"),
        ({"math_processes": 1.5}, "math_processes must be a whole number"),
    ],
)
def test_a_wrong_option_is_refused_with_the_fix(options: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        compute_score("openai/gsm8k", "#### 4", "4", **options)


def test_an_unknown_data_source_is_refused_with_the_nearest_match() -> None:
    with pytest.raises(OptionError, match="did you mean 'openai/gsm8k'"):
        compute_score("openai/gsm8", "#### 4", "4")


def test_the_documented_options_are_the_ones_there_are(repository: Path) -> None:
    text = (repository / "docs" / "data_and_rewards.md").read_text().partition("## Rewards")[2]
    table = dict(re.findall(r"^\| `(\w+)` \| ([\w.]+) \| ", text, flags=re.MULTILINE))
    assert table == {field.name: str(field.default) for field in fields(RewardOptions)}


# --- hostile responses


@pytest.mark.parametrize("data_source", ["openai/gsm8k", "sciknoweval", "math_dapo"])
@pytest.mark.parametrize(
    "pattern",
    [
        *(
            "\n",
            "*",
            "{",
            r"\boxed{",
            "<answer>",
            "</answer>",
            "<think></think><answer>",
            "Answer:",
            "answer is ",
            "1,",
        ),
        *("#### ", "####*", "#### (", "#### 1 000 ", "$", "$a$ ", " or ", "3 or ", "(", ", ", r"\boxed{1} or "),
        *("answer is A or ", r"\text{", "1{,}", "A "),
    ],
)
def test_a_response_that_repeats_itself_is_scored_at_once(data_source: str, pattern: str) -> None:
    response = "</answer>" + pattern * (60_000 // len(pattern))
    start = time.process_time()
    assert accuracy(data_source, response, "4") == 0.0
    assert time.process_time() - start < 1


# --- the check before training


def write(path: Path, *sources: str) -> str:
    path.write_text("".join(json.dumps({"data_source": source}) + "\n" for source in sources))
    return str(path)


def test_missing_math_verify_is_told_before_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(math_process, "has_math_verify", lambda: False)
    check_setup([write(tmp_path / "gsm8k.jsonl", "openai/gsm8k")])
    with pytest.raises(PluginError, match=r"pip install 'verl-pods-cero\[math\]'"):
        check_setup([write(tmp_path / "both.jsonl", "openai/gsm8k", "math_dapo")])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("lines.json", '\ufeff{"data_source": "gsm8k"}\nno JSON\n'),
        ("array.json", '[\n{"data_source": "openai/gsm8k"}, {"data_source": "gsm8k"}]'),
        ("lines.jsonl", '{"data_source": "openai/gsm8k"}\n\n{"data_source": "gsm8k"}\n'),
    ],
)
def test_json_files_are_checked_before_training(tmp_path: Path, name: str, text: str) -> None:
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    with pytest.raises(OptionError, match="data_source has no scorer, got 'gsm8k'"):
        check_setup([str(file)])


@pytest.mark.parametrize(("name", "text"), [("damaged.parquet", "no parquet"), ("damaged.json", '[{"data_source":')])
def test_a_file_that_cannot_be_read_is_named_before_training(tmp_path: Path, name: str, text: str) -> None:
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    with pytest.raises(OptionError, match=f"can be read .*{name}"):
        check_setup([str(file)])


def test_the_check_before_training_imports_no_command(tmp_path: Path) -> None:
    code = (
        "import sys; from verl_pods_cero.rewards import check_setup\n"
        f"check_setup([{write(tmp_path / 'rows.jsonl', 'openai/gsm8k')!r}])\n"
        "print([name for name in sys.modules if name.startswith('verl_pods_cero.tools')])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_parquet_files_and_options_are_checked_before_training(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = tmp_path / "train.parquet"
    pq.write_table(pa.table({"data_source": ["openai/gsm8k", "gsm8k"]}), file)
    with pytest.raises(OptionError, match="data_source has no scorer, got 'gsm8k'"):
        check_setup([str(file), "hdfs://elsewhere/train.parquet"])
    with pytest.raises(OptionError, match="format_weight"):
        check_setup([], format_weight=-1)


def test_verl_loads_the_function_by_its_package_path() -> None:
    from omegaconf import OmegaConf
    from verl.trainer.ppo.reward import get_custom_reward_fn

    node = {
        "path": "pkg://verl_pods_cero.rewards",
        "name": "compute_score",
        "reward_kwargs": {"format_weight": 0.5},
    }
    function = get_custom_reward_fn(OmegaConf.create({"reward": {"custom_reward_function": node}}))
    assert function is not None
    response = "<think>x</think><answer>B</answer>"
    result = function(data_source="sciknoweval", solution_str=response, ground_truth="B", extra_info={})
    assert result["score"] == 1.5


# --- real responses


@pytest.mark.skipif(not SOLUTIONS.is_file(), reason=published_data.ABSENT)
@pytest.mark.parametrize("layout", ["hashes", "tags", "line"])
def test_gsm8k_scores_agree_with_the_published_labels(layout: str) -> None:
    rows = [json.loads(line) for line in SOLUTIONS.read_text().splitlines()]
    misses = false_accepts = 0
    for row in rows:
        ground_truth = row["ground_truth"].rpartition("A:")[2].strip()
        for model in MODELS:
            steps, found, answer = row[model]["solution"].rpartition("A:")
            laid_out = {
                "hashes": f"{steps}####{answer}",
                "tags": f"<think>{steps}</think><answer>{answer}</answer>",
                "line": f"{steps}Answer:{answer}",
            }
            source = "math_dapo" if layout == "line" else "openai/gsm8k"
            right = accuracy(source, laid_out[layout] if found else answer, ground_truth)
            misses += row[model]["is_correct"] and not right
            false_accepts += right and not row[model]["is_correct"]
    assert (len(rows), misses, false_accepts) == (400, 0, 0)


@pytest.mark.skipif(not (published_data.FOLDER / "math").is_dir(), reason=published_data.ABSENT)
def test_math_solutions_are_right_for_their_own_answer_and_no_other() -> None:
    pytest.importorskip("math_verify")
    rows = [json.loads(line) for line in (published_data.FOLDER / "math/test_first600.jsonl").read_text().splitlines()]
    answers = [re.sub(r"\s|\\!|\\left|\\right", "", row["answer"]).replace("dfrac", "frac") for row in rows]
    assert [row["answer"] for row in rows if not accuracy("math", row["solution"], row["answer"])] == []
    crossed = [(rows[i]["solution"], rows[i - 7]["answer"]) for i in range(len(rows)) if answers[i] != answers[i - 7]]
    assert [pair for pair in crossed if accuracy("math", *pair)] == []


@pytest.mark.skipif(not (published_data.FOLDER / "sciknoweval").is_dir(), reason=published_data.ABSENT)
@pytest.mark.parametrize(
    "form", ["The answer is option {}.", "Answer: [{}]", "<answer>\n{}\n</answer>", r"\boxed{{\text{{{}}}}}"]
)
def test_multiple_choice_is_right_for_its_letter_alone(form: str) -> None:
    file = published_data.FOLDER / "sciknoweval" / "sdpo_chemistry_train_first400.jsonl"
    for row in map(json.loads, file.read_text().splitlines()):
        right = [letter for letter in "ABCD" if accuracy("sciknoweval", form.format(letter), row["answer"])]
        assert right == [row["answer"]]
