"""From records to problems: selection, reading, duplicates, and the division into splits."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from verl_pods_cero.tools.datasets.catalog import Catalogued
from verl_pods_cero.tools.datasets.choices import Selection, read_choice_problem
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
        if entry.deduplicate:
            seen = answers.setdefault(_key(one.problem.question), {})
            if one.problem.answer in seen:
                tally.duplicates += 1
                continue
            if seen:
                tally.conflicts.append((next(iter(seen.values())), one.record))
            seen[one.problem.answer] = one.record
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


def _usable(records: Iterable[Record], entry: Catalogued, selection: Selection, tally: Tally) -> Iterator[Found]:
    multiple_choice = entry.answers == "letter"
    for record in records:
        tally.read += 1
        if record.fields is None:
            tally.reject(record, record.fault)
            continue
        if multiple_choice and (refusal := selection.refusal(record.fields)):
            tally.not_wanted[refusal] += 1
            continue
        try:
            fields = record.fields
            problem = read_choice_problem(fields) if multiple_choice else read_problem(fields, entry.answers)
        except UnusableError as error:
            tally.reject(record, str(error))
            continue
        tally.unlabelled += multiple_choice and not problem.level
        yield Found(problem, record)


def _key(question: str) -> str:
    return " ".join(question.split())


def _stem(one: Found) -> str:
    """The question without its choices: the same one is asked with several sets of them."""
    return _key(one.problem.question.rpartition("\n\nA: ")[0] or one.problem.question)
