"""Rules and allocators of one's own, by the name that they are imported under."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterable
from typing import Any

from verl_pods_cero.errors import OptionError, nearest, verbatim


def imported(option: str, name: str, known: Iterable[str], kind: str) -> Callable[..., Any]:
    """Return what `package.module:name` names.

    Args:
        option: the field that holds the name, for errors.
        name: to import.
        known: names that stand for themselves, for errors.
        kind: function or Class.

    Raises:
        OptionError: no such module or name, or nothing that can be called.

    >>> imported("rule", "math:sqrt", ["random"], "function")(9)
    3.0
    """
    _, colon, attribute = name.partition(":")
    if not colon:
        raise OptionError(option, f"must be a known name or package.module:{kind}", name, nearest(name, known))
    try:
        if not attribute:
            raise ValueError("no name after the colon")
        found: Any = pkgutil.resolve_name(name)
    except Exception as error:  # the module is somebody else's: importing it may fail in any way
        fix = (
            f"put it on PYTHONPATH; it cannot be imported ({verbatim(error)}). Known names: {', '.join(sorted(known))}"
        )
        raise OptionError(option, f"must name a {kind.lower()} that can be imported", name, fix) from error
    if not callable(found):
        raise OptionError(option, f"must be a {kind.lower()}", name, f"{attribute} is of type {type(found).__name__}")
    function: Callable[..., Any] = found
    return function
