"""From records to problems: selection, reading, duplicates, and the division into splits."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from verl_pods_cero.tools.datasets.catalog import CATALOG, Catalogued
from verl_pods_cero.tools.datasets.choices import Selection, read_choice_problem
from verl_pods_cero.tools.datasets.instructions import suspicious_part
from verl_pods_cero.tools.datasets.problems import Problem, UnusableError, read_problem
from verl_pods_cero.tools.datasets.records import Record
from verl_pods_cero.tools.datasets.tally import Tally


@dataclass(frozen=True)
class Found:
    """A problem and the record that it was read from."""

    problem: Problem
    record: Record


def prepare(
    records: Iterable[Record], entry: Catalogued, selection: Selection, limit: int | None, tally: Tally
) -> list[Found]:
    """Read the usable problems, in order, `limit` of them at most; `tally` accounts for all rows read."""
    found: list[Found] = []
    answers: dict[str, dict[str, Record]] = {}
    for one in _usable(records, entry, selection, tally):
        seen = answers.setdefault(_key(one.problem.question), {})
        if one.problem.answer in seen:
            if entry.deduplicate:
                tally.duplicates += 1
                continue
            tally.warn(one.record, "repeat an earlier question and its answer (--deduplicate removes them)")
        elif seen:
            tally.conflicts.append((next(iter(seen.values())), one.record))
        seen.setdefault(one.problem.answer, one.record)
        found.append(one)
        if limit is not None and len(found) == limit:
            break
    tally.kept = len(found)
    return found


def divide(found: list[Found], fraction: float, seed: int) -> tuple[list[Found], list[Found]]:
    """Divide into train and test, at random but the same for a seed; both keep the order.

    A question goes to one side with all its rows: what is tested is never trained on.
    """
    questions = list(dict.fromkeys(_stem(one) for one in found))
    random.Random(seed).shuffle(questions)
    held_out = set(questions[: round(fraction * len(questions))])
    test = [one for one in found if _stem(one) in held_out]
    return [one for one in found if _stem(one) not in held_out], test


def fitting(records: Iterable[Record]) -> str:
    """Return the data set whose rows these are, going by how they are read; "" where none reads them all."""
    every = [record.fields or {} for record in records]
    for entry in CATALOG.values():
        with suppress(UnusableError):
            for fields in every:
                _read(fields, entry)
            return entry.name
    return ""


def _usable(records: Iterable[Record], entry: Catalogued, selection: Selection, tally: Tally) -> Iterator[Found]:
    for record in records:
        tally.read += 1
        if record.fields is None:
            tally.reject(record, record.fault)
            continue
        if entry.answers == "letter" and (refusal := selection.refusal(record.fields)):
            tally.not_wanted[refusal] += 1
            continue
        try:
            problem = _read(record.fields, entry)
        except UnusableError as error:
            tally.reject(record, str(error))
            continue
        _account(problem, record, entry, tally)
        yield Found(problem, record)


def _read(fields: Mapping[str, Any], entry: Catalogued) -> Problem:
    problem = read_choice_problem(fields) if entry.answers == "letter" else read_problem(fields, entry.answers)
    try:
        "".join(str(value) for value in vars(problem).values()).encode()
    except UnicodeEncodeError:
        raise UnusableError("has text that cannot be written (a lone surrogate, half a character)") from None
    return problem


def _account(problem: Problem, record: Record, entry: Catalogued, tally: Tally) -> None:
    """Note what was changed in a row that is taken, and what a user should look at."""
    source = (record.fields or {}).get("data_source")
    for applies, what in (
        (problem.instruction, f"without the instruction of their prompt: {problem.instruction!r}"),
        (problem.left_out, f"with the last user message of their prompt alone (left out: {problem.left_out})"),
        (entry.answers == "letter" and not problem.level, "that do not say their domain and level"),
        (source and source != entry.data_source, f"whose data_source was {source!r} (now {entry.data_source!r})"),
    ):
        tally.taken.update([what] if applies else [])
    part, number = suspicious_part(problem.question), re.fullmatch(r"-?\d+", problem.answer)
    for applies, what, sample in (
        (part, "have a question that reads like an instruction, which the prompt may contradict", part),
        (entry.answers != "number" and "####" in problem.solution, "have their answer after ####, as gsm8k's do", ""),
        (
            entry.answers == "integer" and not number,
            f"have an answer that is no integer, as {entry.name}'s are",
            problem.answer,
        ),
    ):
        if applies:
            tally.warn(record, what, sample)


def _key(question: str) -> str:
    return " ".join(question.split())


def _stem(one: Found) -> str:
    """The question without its choices: the same one is asked with several sets of them."""
    return _key(one.problem.question.rpartition("\n\nA: ")[0] or one.problem.question)
