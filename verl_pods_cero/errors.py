"""Errors of the package, the one way to word them, and the logger for what is no error."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

# Below verl's logger, which keeps its handler where another library takes over the root logger.
LOGGER = "verl.pods_cero"


class OptionError(ValueError):
    """An option is wrong: the message names it, the rule, the value received and the fix.

    >>> raise OptionError("filter.keep", "must be at least 2", 1, "set it to 2 or more")
    Traceback (most recent call last):
        ...
    verl_pods_cero.errors.OptionError: filter.keep must be at least 2, got 1. Fix: set it to 2 or more.
    """

    def __init__(self, option: str, rule: str, received: object, fix: str) -> None:
        super().__init__(f"{option} {rule}, got {received!r}. Fix: {fix.rstrip('.')}.")
        self.option = option


class PluginError(RuntimeError):
    """The plugin cannot work with what is installed."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Word the fix for an unknown name: its nearest match, and every name there is.

    >>> nearest("max_varience", ["max_variance", "random"])
    "did you mean 'max_variance'? Known: max_variance, random"
    >>> nearest("zzz", ["random"])
    'use one of: random'
    """
    names = sorted(known)
    matches = get_close_matches(name, names, n=1, cutoff=0.5)
    listed = ", ".join(names)
    return f"did you mean {matches[0]!r}? Known: {listed}" if matches else f"use one of: {listed}"
