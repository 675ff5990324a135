r"""Instructions that prompts bring along: known ones go, at either end; what still reads like one is shown."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.dataset_rows import prepare, sciknoweval, user, verl_schema
from verl_pods_cero.tools.datasets.catalog import CATALOG
from verl_pods_cero.tools.datasets.instructions import suspicious_part, take_off

QUESTION = r"Find $x$ such that $\sqrt{x} = 3$"
BOXED = r"Return the final answer in \boxed{} tags, for example \boxed{1}."
PUBLISHED = [
    *sorted({entry.instruction.format(question="%s") for entry in CATALOG.values()}),
    f"Please solve the following math problem: %s {BOXED} Let's solve this step by step.",
    "Please solve the following math problem: %s The assistant first thinks about the reasoning process step by step "
    f"and then provides the user with the answer. {BOXED} Let's solve this step by step.",
    "%s\n\nPlease reason step by step, and put your final answer within \\boxed{}.",
    "%s\nPlease reason step by step, and put your final answer within $\\boxed{}$",
    "Please reason step by step, and put your final answer within \\boxed{}.\n%s",
    "Please reason step by step, and put your final answer within \\boxed{}. Question: %s",
    "%s Let’s think step-by-step and output the final answer in \\boxed{}.",
    "%s Please put your final answer inside \\boxed{}.",
    "%s Remember to give your final answer inside <answer> </answer> tags.",
    "%s Show your work in <think> </think> tags. And return the final answer in <answer> </answer> tags, for example "
    "<answer> (1 + 2) / 3 </answer>.",
    "%s First output the thinking process in <think> </think> tags and then output the final answer in <answer> "
    "</answer> tags.",
    "Solve the following math problem step by step. The last line of your response should be of the form Answer: "
    "\\boxed{$Answer} where $Answer is the answer to the problem.\n\n%s",
    "%s\nPlease reason step by step.",
]


@pytest.mark.parametrize("template", PUBLISHED)
def test_published_instructions_are_taken_off(template: str) -> None:
    question, instruction = take_off(template.replace("%s", QUESTION))
    assert question == QUESTION
    around = " ".join(template.replace("%s", " [...] ").split())
    assert " ".join(instruction.split()) == around.removeprefix("[...] ").removesuffix(" [...]")


@given(st.sampled_from(PUBLISHED), st.text(alphabet="abcXY 123+=?.$\\{}()\n", min_size=1))
def test_a_question_comes_out_as_it_went_in(template: str, question: str) -> None:
    if question.strip():
        assert take_off(template.replace("%s", question))[0] == question.strip()
    assert take_off(question) == (question.strip(), "")


@pytest.mark.parametrize(
    "question",
    [
        "Why does it help to think step by step?",
        "Enter your answer in the form $(r,\\theta)$.",
        "Express your answer as a common fraction.",
        "Explain how a student may think step by step.",
        "Solve the equation. Give the answer in degrees.",
        "A box holds 3 balls. Put your answer in lowest terms.",
    ],
)
def test_what_belongs_to_a_question_stays(question: str) -> None:
    assert take_off(question) == (question, "")


@pytest.mark.parametrize("part", ["Please ", "x. Let's think step by step. ", "\n\n", "put your answer in \\boxed{"])
def test_a_hostile_prompt_costs_no_time(part: str) -> None:
    start = time.process_time()
    hostile = "x" + part * (100_000 // len(part))
    take_off(hostile)
    suspicious_part(hostile.replace("\\boxed", ""))
    assert time.process_time() - start < 1


def test_a_boxed_prompt_is_asked_once_and_the_instruction_is_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    raw = [verl_schema(user(f"Please solve the following math problem: {i} + 2? {BOXED}"), str(i)) for i in range(3)]
    rows = prepare(tmp_path, "dapo_math_17k", raw)
    assert [row["prompt"] for row in rows] == [
        user(CATALOG["dapo_math_17k"].instruction.format(question=f"{i} + 2?")) for i in range(3)
    ]
    said = capsys.readouterr().out
    assert "took 3 rows without the instruction of their prompt: 'Please solve the following math problem:" in said
    assert "warning: " not in said


@pytest.mark.parametrize(
    "part",
    [
        "Give it in \\boxed{}",
        "End with <answer>",
        "Answer: [your answer]",
        "Your final answer is a number",
        "Work step by step",
        "End with #### 4",
    ],
)
def test_what_still_reads_like_an_instruction_is_counted_and_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], part: str
) -> None:
    asked = f"What is 2 + 2? ({part}, or else)"
    rows = prepare(tmp_path, "math", [{"question": "1 + 1?", "answer": "2"}, {"question": asked, "answer": "4"}])
    assert rows[1]["extra_info"]["question"] == asked
    said = capsys.readouterr().out
    assert "warning: 1 rows have a question that reads like an instruction" in said
    assert f"raw.jsonl row 2\n  such as: {suspicious_part(asked)!r}\n" in said


def test_an_instruction_around_a_question_with_choices_goes_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    [row] = prepare(tmp_path, "sciknoweval", [sciknoweval(f"Which? {BOXED}")], "--split", "train")
    assert row["extra_info"]["question"].startswith("Which?\n\nA: one\n")
    assert f"took 1 rows without the instruction of their prompt: {BOXED!r}" in capsys.readouterr().out


def test_messages_that_are_left_out_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chat = [{"role": "system", "content": "Be brief."}, *user("1 + 1?"), {"role": "assistant", "content": "2"}]
    [row] = prepare(tmp_path, "math", [verl_schema([*chat, *user("2 + 2?")], "4")])
    assert row["extra_info"]["question"] == "2 + 2?"
    said = capsys.readouterr().out
    assert "took 1 rows with the last user message of their prompt alone (left out: system, user, assistant)" in said


def test_a_prompt_that_is_nothing_but_an_instruction_has_no_question(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    raw = [{"prompt": BOXED, "answer": "4"}, {"prompt": "2 + 2?", "answer": "4"}]
    assert len(prepare(tmp_path, "math", raw)) == 1
    assert "rejected 1: has no question" in capsys.readouterr().out
