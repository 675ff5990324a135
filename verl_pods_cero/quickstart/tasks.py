"""The quickstart's task: sums of two small numbers, from easy to hard."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

DATA_SOURCE = "verl_pods_cero/sums"
"""verl's `data_source` of every row."""

LIMIT = 20
"""Both numbers are below this."""


@dataclass(frozen=True, order=True)
class Sum:
    """A sum of two numbers.

    >>> Sum(7, 15).prompt, Sum(7, 15).answer
    ('7+15', '22')
    """

    left: int
    right: int

    @property
    def prompt(self) -> str:
        """The user's message."""
        return f"{self.left}+{self.right}"

    @property
    def answer(self) -> str:
        """The only right answer."""
        return str(self.left + self.right)

    @property
    def difficulty(self) -> int:
        """0 to 3: one for a number of two digits, one more for the second, one for a carry.

        >>> [Sum(2, 3).difficulty, Sum(7, 8).difficulty, Sum(12, 3).difficulty, Sum(17, 18).difficulty]
        [0, 1, 1, 3]
        """
        carry = self.left % 10 + self.right % 10 >= 10
        return (self.left >= 10) + (self.right >= 10) + carry


def all_sums(limit: int = LIMIT) -> list[Sum]:
    """Every sum of two numbers below `limit`, in order."""
    return [Sum(a, b) for a in range(limit) for b in range(limit)]


def split(train: int, validation: int, *, seed: int) -> tuple[list[Sum], list[Sum]]:
    """Draw sums for training and others, held out, for validation.

    Args:
        train: The number of training sums.
        validation: The number of validation sums.
        seed: The seed of the draw.

    Returns:
        The two lists, without a sum in common.

    Raises:
        ValueError: there are fewer sums than asked for.

    >>> first, second = split(64, 64, seed=0)
    >>> len(set(first) | set(second))
    128
    """
    sums = all_sums()
    if train + validation > len(sums):
        raise ValueError(f"train + validation must be at most {len(sums)}, got {train} + {validation}")
    random.Random(seed).shuffle(sums)
    return sums[:train], sums[train : train + validation]


def rows(sums: Sequence[Sum], name: str, *, first_index: int = 0) -> list[dict[str, Any]]:
    """Write sums as rows of verl's schema.

    Args:
        sums: The sums, one a row.
        name: The name of the split, kept in `extra_info`.
        first_index: `extra_info.index` of the first row; the others count on from it.
    """
    return [
        {
            "data_source": DATA_SOURCE,
            "prompt": [{"role": "user", "content": each.prompt}],
            "ability": "math",
            "reward_model": {"style": "rule", "ground_truth": each.answer},
            "extra_info": {"index": index, "split": name, "difficulty": each.difficulty},
        }
        for index, each in enumerate(sums, start=first_index)
    ]


RESULT_KEYS = ("score", "acc")


def compute_score(
    data_source: str,  # noqa: ARG001
    solution_str: str,
    ground_truth: str,
    extra_info: dict[str, Any] | None = None,  # noqa: ARG001
    **_: object,
) -> dict[str, float]:
    """Score an answer for verl: 1 for the right number and nothing else, 0 otherwise.

    >>> compute_score(DATA_SOURCE, "22", "22")
    {'score': 1.0, 'acc': 1.0}
    >>> compute_score(DATA_SOURCE, "22+1", "22")["score"]
    0.0
    """
    right = float(solution_str.strip() == ground_truth)
    return {"score": right, "acc": right}
