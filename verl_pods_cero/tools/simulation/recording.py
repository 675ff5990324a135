"""Recorded pass rates: what a training run measured of each prompt, visit after visit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from verl_pods_cero.core.arrays import Floats
from verl_pods_cero.errors import OptionError

_OPTION = "--recorded"
_FORM = 'write {"prompt name": [pass rate of its first visit, of its second, ...], ...}'


@dataclass(frozen=True)
class Recording:
    """Pass rates by prompt.

    Shapes and units:
        names: M names of prompts. visits: M arrays, (V_i,) float64 in [0, 1] each, in the order of training.
    """

    names: list[str]
    visits: list[Floats]

    @property
    def mixed_share(self) -> float:
        """Share of visits with a success and a failure."""
        rates = np.concatenate(self.visits)
        return float(((rates > 0) & (rates < 1)).mean())


def read_recording(path: Path) -> Recording:
    """Read a JSON object of lists; prompts with whole numbers for names come in their order.

    Raises:
        OptionError: no such file, or not of this form; the message names the entry and what is wrong with it.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        rule = f"cannot be read ({error.strerror})"
        raise OptionError(_OPTION, rule, str(path), "give a file that is there") from error
    except UnicodeDecodeError as error:
        raise OptionError(_OPTION, "must be a text file", str(path), _FORM) from error
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}: {error.msg}"
        raise OptionError(_OPTION, f"must hold JSON ({where})", str(path), _FORM) from error
    return parse_recording(found)


def parse_recording(found: object) -> Recording:
    """Check what a file held.

    Raises:
        OptionError: not of the form of a recording.

    >>> parse_recording({"10": [0.5], "9": [0.0, 1.0]}).names
    ['9', '10']
    >>> parse_recording({"9": [0.0, 1.5]})
    Traceback (most recent call last):
        ...
    verl_pods_cero.errors.OptionError: --recorded must hold pass rates from 0 to 1: visit 2 of prompt '9' is none, \
got 1.5. Fix: divide the successes of a visit by its rollouts.
    """
    if not isinstance(found, dict):
        raise OptionError(_OPTION, "must hold one JSON object", type(found).__name__, _FORM)
    if not found:
        raise OptionError(_OPTION, "must hold a prompt", found, _FORM)
    names = sorted(found, key=int) if all(name.isdecimal() for name in found) else list(found)
    return Recording(names, [_visits(name, found) for name in names])


def _visits(name: str, found: Mapping[str, Any]) -> Floats:
    values = found[name]
    if not isinstance(values, list) or not values:
        short = repr(values) if len(repr(values)) < 60 else type(values).__name__
        raise OptionError(_OPTION, f"must hold a list of visits, one at least, for prompt {name!r}", short, _FORM)
    for number, value in enumerate(values, start=1):
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value <= 1.0:
            rule = f"must hold pass rates from 0 to 1: visit {number} of prompt {name!r} is none"
            raise OptionError(_OPTION, rule, value, "divide the successes of a visit by its rollouts")
    return np.array(values, dtype=np.float64)
