"""The reward function that a run names."""

from __future__ import annotations

from functools import cache
from typing import Any

from verl.utils.import_utils import load_extern_object

from verl_pods_cero.errors import OptionError


@cache  # a process checks its options more than once, and loading runs the user's file
def check_scorer(path: str, name: str) -> None:
    """Load a reward function as verl's workers will, which find out when the engines are up.

    Raises:
        OptionError: there is no such file, package or function.
    """
    option = "reward.custom_reward_function"
    try:
        found: Any = load_extern_object(path, name)
    except Exception as error:  # whatever the user's own module raises as it is imported
        why = f"must lead to a function ({type(error).__name__}: {error})"
        fix = f"correct {option}.path (a file, or pkg://package.module) or {option}.name"
        raise OptionError(option, why, f"{path}: {name}", fix) from error
    if not callable(found):
        raise OptionError(f"{option}.name", "must name a function", name, f"it is of type {type(found).__name__}")
