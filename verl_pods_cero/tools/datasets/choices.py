"""SciKnowEval: multiple-choice questions, as published and as re-published with a prompt made up."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from verl_pods_cero.errors import OptionError, nearest
from verl_pods_cero.tools.datasets.instructions import take_off
from verl_pods_cero.tools.datasets.problems import Problem, UnusableError

DOMAINS = ("biology", "chemistry", "material", "physics")
LEVELS = ("L1", "L2", "L3", "L4", "L5")
QUESTION_TYPE = "mcq-4-choices"

_LETTERS = "ABCD"


@dataclass(frozen=True)
class Selection:
    """Which questions are wanted.

    Args:
        domains: Fields of science.
        levels: Levels, "L3" being reasoning.
    """

    domains: tuple[str, ...] = ("chemistry",)
    levels: tuple[str, ...] = ("L3",)

    def __post_init__(self) -> None:
        for option, values, known in (("--domain", self.domains, DOMAINS), ("--level", self.levels, LEVELS)):
            for value in values:
                if value not in known:
                    raise OptionError(option, "names none of SciKnowEval's", value, nearest(value, known))

    def refusal(self, fields: Mapping[str, Any]) -> str:
        """Say why a row is not wanted; "" where it is, also where it does not say what it is.

        >>> Selection().refusal({"domain": "Physics"})
        'domain Physics'
        """
        domain, level, kind = fields.get("domain"), _details(fields).get("level"), fields.get("type")
        if domain and str(domain).lower() not in self.domains:
            return f"domain {domain}"
        if level and level not in self.levels:
            return f"level {level}"
        if kind and kind != QUESTION_TYPE:
            return f"type {kind}"
        return ""


def read_choice_problem(fields: Mapping[str, Any]) -> Problem:
    r"""Read a four-choice question; the choices become part of the question, a letter before each.

    Raises:
        UnusableError: not four choices labelled A to D, no right letter, or two choices that are both right.

    >>> choices = {"text": ["1", "2", "3", "4"], "label": ["A", "B", "C", "D"]}
    >>> read_choice_problem({"question": "Which?", "choices": choices, "answerKey": "B"}).question
    'Which?\n\nA: 1\nB: 2\nC: 3\nD: 4'
    """
    question, texts, instruction = _published(fields) if "choices" in fields else _republished(fields)
    letter = str(fields.get("answerKey") or fields.get("answer") or "").strip()
    if letter not in _LETTERS or len(letter) != 1:
        raise UnusableError("names no right letter among A, B, C, D")
    if texts.count(texts[_LETTERS.index(letter)]) > 1:
        raise UnusableError("has two choices that read like the right one")
    details = _details(fields)
    lines = [f"{label}: {text}" for label, text in zip(_LETTERS, texts, strict=True)]
    return Problem(
        question="\n".join([question, "", *lines]),
        answer=letter,
        subject=str(details.get("task") or ""),
        level=str(details.get("level") or ""),
        instruction=instruction,
    )


def _published(fields: Mapping[str, Any]) -> tuple[str, list[str], str]:
    question, instruction = take_off(str(fields.get("question") or ""))
    choices = fields["choices"] if isinstance(fields["choices"], Mapping) else {}
    texts, labels = _listed(choices.get("text")), _listed(choices.get("label"))
    if not question:
        raise UnusableError("has no question")
    if labels != list(_LETTERS) or len(texts) != len(labels):
        raise UnusableError(f"has {len(texts)} choices labelled {', '.join(labels) or 'nothing'}, not A, B, C, D")
    return question, texts, instruction


def _listed(values: object) -> list[str]:
    return [str(value).strip() for value in values] if isinstance(values, list | tuple) else []


def _republished(fields: Mapping[str, Any]) -> tuple[str, list[str], str]:
    rest, instruction = take_off(str(fields.get("prompt") or ""))
    parts = []
    for letter in _LETTERS:
        # the first label of each kind: one pass, however many there are
        part, *after = re.split(rf"\n{letter}[.:)](?=\s|$)", rest, maxsplit=1)
        if not after:
            raise UnusableError("has neither choices nor a prompt that lists them as A: to D:")
        parts.append(part.strip())
        [rest] = after
    question, *texts = [*parts, rest.strip()]
    return question, texts, instruction


def _details(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    details = fields.get("details")
    return details if isinstance(details, Mapping) else {}
