"""The options of the reward function, as verl hands them over from `reward_kwargs`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields

from verl_pods_cero.errors import OptionError, nearest

PREFIX = "reward.custom_reward_function.reward_kwargs"
GSM8K_METHODS = ("strict", "flexible")

# verl adds these itself where a reward model serves the run.
_FROM_VERL = frozenset({"reward_router_address", "reward_model_tokenizer"})


@dataclass(frozen=True)
class RewardOptions:
    """How responses are scored: score = acc + format_weight * format + tag_weight * tags.

    >>> RewardOptions.parse({"format_weight": 0.1}).format_weight
    0.1
    """

    # Weight of the format term, 0..1 (see `shape.format_term`). PODS on one GPU: 0.1.
    format_weight: float = 0.0

    # Weight of the tag term, 0..1 (see `shape.tags_term`). PODS on one GPU: 0.1.
    tag_weight: float = 0.0

    # GSM8K: "strict" wants `#### n`, "flexible" takes the last number.
    gsm8k_method: str = "strict"

    # Seconds after which a comparison by math-verify counts as wrong.
    math_timeout: float = 20.0

    # Child processes for math-verify in each reward worker (verl starts reward.num_workers of these).
    math_processes: int = 1

    @classmethod
    def parse(cls, kwargs: Mapping[str, object]) -> RewardOptions:
        """Check what verl passes on.

        Raises:
            OptionError: an unknown option (with its nearest match), or a value that breaks its rule.
        """
        known = {field.name: field.default for field in fields(cls)}
        given = {name: value for name, value in kwargs.items() if name not in _FROM_VERL}
        for name, value in given.items():
            if name not in known:
                raise OptionError(f"{PREFIX}.{name}", "is no option of the reward", value, nearest(name, known))
            _check(name, value, known[name])
        return cls(**given)  # type: ignore[arg-type]


def _check(name: str, value: object, default: object) -> None:
    option = f"{PREFIX}.{name}"
    if name == "gsm8k_method":
        if value not in GSM8K_METHODS:
            raise OptionError(option, "names no method", value, nearest(str(value), GSM8K_METHODS))
        return
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    least = 0 if name.endswith("_weight") else 1
    whole = isinstance(default, int)
    if not number or value < least or (whole and not isinstance(value, int)):  # type: ignore[operator]
        kind = "whole number" if whole else "number"
        raise OptionError(option, f"must be a {kind} of at least {least}", value, f"leave it at {default}")
