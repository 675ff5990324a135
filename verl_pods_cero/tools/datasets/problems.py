r"""Questions and answers, read out of the schemas that these data sets are found in.

Known shapes of a row: a question and its answer under one of several names; the answer inside a solution
(after `####`, or in `\boxed{}`); verl's own schema, where the ground truth may be a string, a list of one, or
a dict that holds question, solution and target.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from verl_pods_cero.rewards.answers import boxed, canonical_number
from verl_pods_cero.tools.datasets.instructions import take_off

_QUESTION = ("raw_problem", "problem", "question", "Problem", "Question", "prompt")
_ANSWER = ("answer", "gt_answer", "final_answer", "target", "ground_truth", "expected_answer", "Answer")
_SOLUTION = ("solution", "Solution", "rationale")
_SUBJECT = ("subject", "type", "subset")
_LEVEL = ("level",)


class UnusableError(ValueError):
    """A row that cannot be used; the message says why."""


@dataclass(frozen=True)
class Problem:
    """A question with its reference answer.

    Args:
        question: The text, without instructions.
        answer: What the scorer compares with.
        solution: The reference solution, where there is one.
        subject: Its field or task.
        level: Its difficulty.
        instruction: What its prompt asked for besides, and is left out.
        left_out: Whose messages of its prompt are left out, such as "system, assistant".
    """

    question: str
    answer: str
    solution: str = ""
    subject: str = ""
    level: str = ""
    instruction: str = ""
    left_out: str = ""


def read_problem(fields: Mapping[str, Any], answers: str) -> Problem:
    r"""Read a row of mathematics.

    Args:
        fields: The row.
        answers: How this data set writes its answers, see `Catalogued`.

    Raises:
        UnusableError: no question, no answer, an answer of another kind, or a prompt that is no conversation.

    >>> read_problem({"question": "2 + 2?", "answer": "2 + 2 = <<2+2=4>>4\n#### 4.0"}, "number").answer
    '4'
    >>> read_problem({"problem": "Half?", "solution": r"It is $\boxed{\frac{1}{2}}$."}, "latex").answer
    '\\frac{1}{2}'
    """
    row = _unpacked(fields)
    left_out = _take_last_message(row)
    question, instruction = take_off(_text(row, _QUESTION))
    if not question:
        raise UnusableError(f"has no question (looked for {', '.join(_QUESTION)})")
    solution = _text(row, _SOLUTION)
    answer = _text(row, _ANSWER)
    if "####" in answer:
        solution, answer = answer, answer.rpartition("####")[2].strip()
    elif not answer and (found := boxed(solution)) is not None:
        answer = found
    if not answer:
        # DAPO-Math-17K-Processed and its kin call the answer itself the solution
        answer = canonical_number(solution) or ""
    if not answer:
        raise UnusableError("has no answer (no answer field, no #### and no \\boxed{} in a solution)")
    subject, level = _text(row, _SUBJECT), _text(row, _LEVEL)
    return Problem(question, _written(answer, answers), solution, subject, level, instruction, left_out)


def flatten(ground_truth: object) -> dict[str, Any]:
    """Return a ground truth as fields: a dict as it is, anything else as the one answer.

    Raises:
        UnusableError: a list of several answers.

    >>> flatten(["34"])
    {'answer': '34'}
    >>> flatten({"question": "2 + 2?", "target": "4"})
    {'question': '2 + 2?', 'target': '4'}
    """
    if isinstance(ground_truth, Mapping):
        return {str(name): value for name, value in ground_truth.items() if value is not None}
    if isinstance(ground_truth, list | tuple):
        if len(ground_truth) != 1:
            raise UnusableError(f"has {len(ground_truth)} ground truths")
        ground_truth = ground_truth[0]
    return {"answer": ground_truth}


def _unpacked(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row as flat fields; of one in verl's schema, what its nested columns hold."""
    reward_model = fields.get("reward_model")
    if not isinstance(reward_model, Mapping):
        return dict(fields)
    extra = fields.get("extra_info")
    extra = extra if isinstance(extra, Mapping) else {}
    # a question in extra_info is bare; the one in the prompt has its instruction on it
    names = ("raw_problem", "question", *_SUBJECT, *_LEVEL)
    return {
        "prompt": fields.get("prompt"),
        **{name: _text(extra, (name,)) or fields.get(name) for name in names},
        "solution": extra.get("answer"),
        **flatten(reward_model.get("ground_truth")),
    }


def _take_last_message(row: dict[str, Any]) -> str:
    """Put what the user says last in place of a conversation; return who else says something."""
    prompt = row.get("prompt")
    if not isinstance(prompt, list):
        return ""
    if not all(isinstance(message, Mapping) for message in prompt):
        raise UnusableError("has a prompt that is no list of messages")
    users = [number for number, message in enumerate(prompt) if message.get("role") == "user"]
    row["prompt"] = prompt[users[-1]].get("content") if users else ""
    others = [str(message.get("role")) for number, message in enumerate(prompt) if number not in users[-1:]]
    return ", ".join(dict.fromkeys(others))


def _text(row: Mapping[str, Any], names: Iterable[str]) -> str:
    """Return the first of these fields that says something."""
    for name in names:
        value = row.get(name)
        if isinstance(value, bool) or (isinstance(value, float) and not math.isfinite(value)):
            continue
        if isinstance(value, str | int | float) and str(value).strip():
            return str(value).strip()
    return ""


def _written(answer: str, answers: str) -> str:
    """Write an answer the way its scorer compares it."""
    number = canonical_number(answer)
    if answers == "number" and number is None:
        raise UnusableError("has an answer that is no number")
    if answers == "latex":
        # "251.60" and "1,234" may be meant as written; "27.0" never is
        return number if number is not None and re.fullmatch(r"[+-]?\d+\.0+", answer) else answer
    return answer if number is None else number
