"""Rewards: which answer is read, how it is compared, and what verl gets back."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from pathlib import Path

import pytest

from tests import published_data
from verl_pods_cero.errors import OptionError, PluginError
from verl_pods_cero.rewards import RESULT_KEYS, RewardOptions, check_setup, compute_score, math_process
from verl_pods_cero.rewards.letters import final_letter
from verl_pods_cero.rewards.mathematics import final_expression
from verl_pods_cero.tools.datasets.catalog import CATALOG

SOLUTIONS = published_data.FOLDER / "gsm8k" / "example_model_solutions_first400.jsonl"
MODELS = ("6b_finetuning", "6b_verification", "175b_finetuning", "175b_verification")

needs_math_verify = pytest.mark.skipif(
    importlib.util.find_spec("math_verify") is None, reason="math-verify is not installed (extra: math)"
)


@pytest.fixture(scope="module", autouse=True)
def verl_scorers() -> Iterator[None]:
    """Import verl once with its import-time warnings let through; end the child processes afterwards."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import verl.utils.reward_score.gsm8k
        import verl.utils.reward_score.math_reward  # noqa: F401
    yield
    if math_process._verifiers is not None:
        math_process._verifiers.close()


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


# --- GSM8K


@pytest.mark.parametrize("response", ["#### 4", "#### 4.0", "#### 4.", "<think>5</think> #### 4"])
def test_gsm8k_reads_the_number_after_the_hashes(response: str) -> None:
    assert accuracy("openai/gsm8k", response, "4") == 1.0


@pytest.mark.parametrize("response", ["4", "#### 40", "#### 4\n#### 5", "<think>#### 4", ""])
def test_gsm8k_takes_no_other_number(response: str) -> None:
    assert accuracy("openai/gsm8k", response, "4") == 0.0


def test_gsm8k_ignores_thousands_separators_on_both_sides() -> None:
    assert accuracy("openai/gsm8k", "#### 2,125", "2125") == accuracy("openai/gsm8k", "#### 2125", "2,125") == 1.0


def test_gsm8k_needs_no_hashes_in_an_answer_block_or_when_flexible() -> None:
    assert accuracy("openai/gsm8k", "<think>x</think>\n<answer>\n$18\n</answer>", "18") == 1.0
    assert accuracy("openai/gsm8k", "so she makes 18 a day", "18") == 0.0
    assert accuracy("openai/gsm8k", "so she makes 18 a day", "18", gsm8k_method="flexible") == 1.0


@pytest.mark.parametrize("end", ["$18.00.", "18, in dollars", "$18, and that is all.", "18 eggs, sold daily."])
def test_gsm8k_takes_punctuation_after_a_number_for_what_it_is(end: str) -> None:
    assert accuracy("openai/gsm8k", f"<answer>{end}</answer>", "18") == 1.0
    assert accuracy("openai/gsm8k", f"So it is {end}", "18", gsm8k_method="flexible") == 1.0
    assert accuracy("openai/gsm8k", f"<answer>{end}</answer>", "19") == 0.0


def test_gsm8k_reads_a_decimal_before_a_full_stop_after_the_hashes() -> None:
    assert accuracy("openai/gsm8k", "#### 12.50.", "12.5") == 1.0


# --- SciKnowEval


@pytest.mark.parametrize(
    "response",
    [
        "Answer: C",
        "A looks likely, B does not.\n**Answer:** C",
        "Final answer: (C).",
        "Answer:\nC",
        "A and B are wrong.\n\nC",
        "It has no ring, so the correct answer is **C**.",
        r"Thus \boxed{C}.",
        r"Thus $\boxed{\text{C}}$",
        "<think>Answer: A</think>\n<answer>\nC\n</answer>",
        "<reasoning>A? B?</reasoning><answer>C</answer>",
        "Answer: A\nNo, I misread it.\nAnswer: C",
    ],
)
def test_the_final_letter_is_read(response: str) -> None:
    assert final_letter(response) == "C"


@pytest.mark.parametrize(
    "response",
    [
        "",
        "The compound C has four rings",
        "C is wrong, and so is the rest",
        "Answer: C or D",
        "Answer: C: 12.5",
        "Answer: c",
        "Answer: the third option, C",
        "<think>Answer: C",
        "<answer>A and C</answer>",
        "The answer is a Carbon",
    ],
)
def test_a_letter_in_passing_is_no_answer(response: str) -> None:
    assert final_letter(response) is None


def test_another_letter_is_wrong_whatever_else_the_response_says() -> None:
    result = compute_score("sciknoweval", "C is right, C, C.\nAnswer: D", "C")
    assert (result["acc"], result["pred"]) == (0.0, "D")


# --- mathematics


@pytest.mark.parametrize(
    ("response", "expression"),
    [
        (r"so \boxed{\frac{1}{2}}.", r"\frac{1}{2}"),
        (r"\boxed{1} no: \boxed{2}", "2"),
        ("Answer: $34$.", "34"),
        ("**Answer:** 34", "34"),
        (r"\boxed{3}. I was wrong." + "\nAnswer: 4", "4"),
        (r"Answer: \boxed{4}", "4"),
        (r"\boxed{5}. Let me check our answer: 2 + 3, fine", "5"),
        ("<think>\\boxed{1}</think><answer> x + 1 </answer>", "x + 1"),
        (r"<answer>It is \boxed{7}</answer>", "7"),
        ("It is 4", None),
        (r"<think>\boxed{4}", None),
        (r"\boxed{4", None),
        (r"\boxed{1} or \boxed{2", "1"),
        (r"\boxed{\left\{ x \right.}", r"\left\{ x \right."),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"so $\boxed 5$", "5"),
        ("<answer>1</answer> no, <answer>2</answer>", "2"),
        ("<answer>1", None),
    ],
)
def test_the_final_expression_is_read(response: str, expression: str | None) -> None:
    assert final_expression(response) == expression


@needs_math_verify
@pytest.mark.parametrize(
    ("candidate", "ground_truth", "right"),
    [
        ("0.5", r"\frac{1}{2}", True),
        (r"\frac{2}{4}", r"\frac12", True),
        ("x + 1", "1+x", True),
        (r"(3, \pi/2)", r"\left( 3, \frac{\pi}{2} \right)", True),
        (r"\$32", "32", True),
        (r"44\%", "44", True),
        ("073", "73", True),
        ("35", "34", False),
        (r"\frac{2}{3}", r"\frac12", False),
        ("x", "x^2", False),
        (r"5\text{ or }6", "5", False),
        ("1", r"1 \text{ and } 2", False),
        (r"5\text{ cm}", "5", True),
        ("1" * 2000, r"\frac12", False),
    ],
)
def test_expressions_are_compared_by_their_value(candidate: str, ground_truth: str, right: bool) -> None:
    assert accuracy("math_dapo", rf"\boxed{{{candidate}}}", ground_truth) == right


@needs_math_verify
def test_mathematics_is_scored_in_many_threads_at_once() -> None:
    pairs = [(rf"\boxed{{\frac{{{i}}}{{8}}}}", "0.5") for i in range(1, 9)] * 4
    with ThreadPoolExecutor(8) as threads:
        results = list(threads.map(lambda pair: accuracy("math", *pair), pairs))
    assert results == [0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0] * 4


@needs_math_verify
def test_an_answer_that_takes_for_ever_is_wrong_and_blocks_nothing(caplog: pytest.LogCaptureFixture) -> None:
    verifiers = math_process.Verifiers(1)
    assert verifiers.equivalent("1", "2/2", timeout=60)
    assert not verifiers.equivalent("3", "9^{9^{9^{9}}}", timeout=0.5)
    assert "scored as wrong" in caplog.text
    assert verifiers.equivalent("1", "2/2", timeout=60)
    verifiers.close()


@pytest.mark.parametrize("data_source", ["openai/gsm8k", "sciknoweval", "math_dapo"])
@pytest.mark.parametrize(
    "pattern",
    ["\n", "*", "{", r"\boxed{", "<answer>", "</answer>", "<think></think><answer>", "Answer:", "answer is ", "1,"],
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
