"""A scorer that ends its process fails its rollout instead: verl would wait for that process for ever."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from verl_pods_cero.options.schema import ROOT

Scorer = Callable[..., Any]


def guarded(scorer: Scorer) -> Scorer:
    """Return the scorer with an error in the place of `sys.exit`, which Ray takes for the end of the worker.

    >>> import sys
    >>> guarded(lambda: sys.exit("no model"))()
    Traceback (most recent call last):
    RuntimeError: the scorer called sys.exit('no model'): the rollout counts as failed. Fix: raise an error in its place
    """

    @functools.wraps(scorer)
    def guard(*args: Any, **kwargs: Any) -> Any:
        try:
            return scorer(*args, **kwargs)
        except SystemExit as ended:
            raise _failure(ended) from ended

    @functools.wraps(scorer)
    async def guard_later(*args: Any, **kwargs: Any) -> Any:
        try:
            return await scorer(*args, **kwargs)
        except SystemExit as ended:
            raise _failure(ended) from ended

    return guard_later if inspect.iscoroutinefunction(scorer) else guard


def _failure(ended: SystemExit) -> RuntimeError:
    said = f"the scorer called sys.exit({ended.code!r}): the rollout counts as failed. Fix: raise an error in its place"
    return RuntimeError(said)


def with_guard(verls: Callable[[Any], Scorer | None]) -> Callable[[Any], Scorer | None]:
    """Return verl's loader of a user's scorer, which guards it in runs that have our options."""

    @functools.wraps(verls)
    def load(config: Any) -> Scorer | None:
        scorer = verls(config)
        return scorer if scorer is None or ROOT not in config else guarded(scorer)

    return load
