"""math-verify in processes of its own, for callers in any thread.

math-verify bounds its work with SIGALRM, and a signal handler can only be set in a process's main thread;
verl calls scorers from a thread pool. Without the limits one hostile answer (`9^{9^{9^{9}}}`) would hold a
reward worker for ever. So each comparison runs in the main thread of a child process, where the library's
limits work; a child that still does not answer in time (a long computation in C sees no signal) is ended and
replaced.
"""

from __future__ import annotations

import atexit
import importlib.util
import logging
import multiprocessing
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from multiprocessing.pool import Pool
from queue import SimpleQueue
from typing import Any

from verl_pods_cero.errors import PluginError
from verl_pods_cero.rewards.tolerance import equal_numbers

logger = logging.getLogger(__name__)

# Imports sympy, and under `spawn` the caller's main module: seconds, minutes on a loaded machine.
_START_SECONDS = 300

INSTALL = "pip install 'verl-pods-cero[math]'"


class Verifiers:
    """A fixed number of child processes, started when first needed, each used by one thread at a time.

    Args:
        processes: Comparisons that may run at once.
    """

    def __init__(self, processes: int) -> None:
        self._idle: SimpleQueue[Pool | None] = SimpleQueue()
        for _ in range(processes):
            self._idle.put(None)

    def equivalent(self, ground_truth: str, candidate: str, timeout: float) -> bool:
        """Compare two expressions; one that takes longer than `timeout` seconds counts as unequal."""
        pool = self._idle.get()
        try:
            pool = pool or _start()
            return bool(pool.apply_async(_compare, (ground_truth, candidate)).get(timeout))
        except multiprocessing.TimeoutError:
            logger.warning(
                "math-verify took longer than math_timeout=%s s on %.80r: scored as wrong", timeout, candidate
            )
            if pool is not None:
                pool.terminate()
            pool = None
            return False
        finally:
            self._idle.put(pool)

    def close(self) -> None:
        """End the idle processes; a later comparison starts new ones."""
        ended = 0
        while not self._idle.empty():
            pool = self._idle.get()
            if pool is not None:
                pool.terminate()
                pool.join()
            ended += 1
        for _ in range(ended):
            self._idle.put(None)


_verifiers: Verifiers | None = None
_lock = threading.Lock()


def equivalent(ground_truth: str, candidate: str, *, timeout: float, processes: int) -> bool:
    """Tell whether two expressions are equal, by math-verify, from any thread.

    Args:
        ground_truth: The reference answer, LaTeX without its delimiters.
        candidate: The response's answer, likewise.
        timeout: Seconds after which the answer counts as wrong.
        processes: Child processes to share; the first call decides.

    Raises:
        PluginError: math-verify is not installed.
    """
    global _verifiers
    with _lock:
        if _verifiers is None:
            require_math_verify()
            _verifiers = Verifiers(processes)
            atexit.register(_verifiers.close)
    return _verifiers.equivalent(ground_truth, candidate, timeout)


def has_math_verify() -> bool:
    """Tell whether math-verify is installed, without importing it."""
    return importlib.util.find_spec("math_verify") is not None


def require_math_verify() -> None:
    """Check that math-verify is installed.

    Raises:
        PluginError: it is not, with the command that installs it.
    """
    if not has_math_verify():
        raise PluginError(
            "Rows of MATH, DAPO-Math-17K, AIME and AMC are scored by math-verify, which is not installed. "
            f"Fix: {INSTALL}."
        )


def _start() -> Pool:
    pool = multiprocessing.get_context("spawn").Pool(1)
    try:
        pool.apply_async(_compare, ("1", "1")).get(_START_SECONDS)
    except multiprocessing.TimeoutError as error:
        pool.terminate()
        raise PluginError(
            f"A process for math-verify did not start within {_START_SECONDS} s. Fix: start fewer of them "
            "(reward.num_workers, reward_kwargs.math_processes)."
        ) from error
    return pool


@lru_cache(maxsize=4096)
def _compare(ground_truth: str, candidate: str) -> bool:
    """Compare two normal forms in the child process, in its main thread, once for all rollouts that say the same."""
    expected, given = _parsed(ground_truth), _parsed(candidate)
    return expected is not None and given is not None and bool(_verify()(expected, given))


@lru_cache(maxsize=1)
def _verify() -> Callable[[Any, Any], bool]:
    """Return math-verify's `verify`, with its comparison of numbers replaced by ours in this process.

    Its own chops what is smaller than 1e-15 and rounds to six decimals, however small the answer.
    """
    from math_verify import grader

    algebra = grader.sympy_symbolic_eq

    def unless_numbers(first: Any, second: Any) -> bool:
        numbers = getattr(first, "is_number", False) and getattr(second, "is_number", False)
        return not numbers and bool(algebra(first, second))

    grader.sympy_numeric_eq, grader.sympy_symbolic_eq = equal_numbers, unless_numbers
    verify: Callable[[Any, Any], bool] = grader.verify
    return verify


@lru_cache(maxsize=1024)
def _parsed(form: str) -> Any:
    """Parse a normal form: one expression, or None."""
    from math_verify import LatexExtractionConfig, parse

    config = LatexExtractionConfig()
    # the normal form has no units: what is left of letters is mathematics
    config = replace(config, normalization_config=replace(config.normalization_config, units=False))
    return next(iter(parse(rf"\boxed{{{form}}}", [config], fallback_mode="no_fallback")), None)
