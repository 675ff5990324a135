"""Errors of the package, the one way to word them, and the logger for what is no error."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches

# Below verl's logger, which keeps its handler where another library takes over the root logger.
LOGGER = "verl.pods_cero"

_FIELD = re.compile(r"\{\{|\}\}|\{(\w+)\}")


class FieldError(ValueError):
    """An error whose message mentions fields, which other rooms call otherwise: they stand in braces, as in "{n}"."""

    def __init__(self, message: str) -> None:
        self.message = message
        super().__init__(_worded(message))

    def renamed(self, names: Mapping[str, str]) -> FieldError:
        """Return the same error with fields under other names; a name that is not given stays."""
        return type(self)(_named(self.message, names))


class OptionError(FieldError):
    """An option is wrong: the message names it, the rule, the value received and the fix.

    A room raises it under the names of its own fields; one that calls these fields otherwise words it anew by
    `option_names`. Other fields that the rule or the fix mentions stand in braces, as in "at least {n}".

    >>> raise OptionError("filter.keep", "must be at least 2", 1, "set it to 2 or more")
    Traceback (most recent call last):
        ...
    verl_pods_cero.errors.OptionError: filter.keep must be at least 2, got 1. Fix: set it to 2 or more.
    """

    def __init__(self, option: str, rule: str, received: object, fix: str) -> None:
        self.option, self.rule, self.received, self.fix = option, rule, received, fix
        ValueError.__init__(self, f"{option} {_worded(rule)}, got {received!r}. Fix: {_worded(fix).rstrip('.')}.")

    def renamed(self, names: Mapping[str, str]) -> OptionError:
        """Return the same error under other names."""
        option, rule, fix = names.get(self.option, self.option), _named(self.rule, names), _named(self.fix, names)
        return OptionError(option, rule, self.received, fix)


def verbatim(text: object) -> str:
    """Return a text for the message of a `FieldError` that keeps its own braces, such as a path or another error's.

    >>> str(FieldError(f"{verbatim('/tmp/{run}')} lacks {{n}}"))
    '/tmp/{run} lacks n'
    """
    return str(text).replace("{", "{{").replace("}", "}}")


def _named(text: str, names: Mapping[str, str]) -> str:
    return _FIELD.sub(lambda found: names.get(found[1], found[0]), text)


def _worded(text: str) -> str:
    return _FIELD.sub(lambda found: found[1] or found[0][0], text)


@contextmanager
def option_names(names: Mapping[str, str]) -> Iterator[None]:
    """Word errors of the block, or of the function that this decorates, under other names.

    >>> with option_names({"n_max": "--n-max", "n": "--n"}):
    ...     raise OptionError("n_max", "must be at least {n} (8)", 4, "raise it, or lower {n}")
    Traceback (most recent call last):
        ...
    verl_pods_cero.errors.OptionError: --n-max must be at least --n (8), got 4. Fix: raise it, or lower --n.
    """
    try:
        yield
    except FieldError as error:
        raise error.renamed(names) from error.__cause__


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
