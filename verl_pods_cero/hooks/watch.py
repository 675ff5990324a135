"""A look at a run's actors while it trains: one that died ends the run, and a step that takes long says so."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import ray
from ray.exceptions import RayActorError

from verl_pods_cero.errors import LOGGER, PluginError
from verl_pods_cero.run_record import cause

logger = logging.getLogger(LOGGER)

LOOK_S = 5.0
"""Seconds between two looks at the actors."""

LAST_LOOK_S = 2.0
"""Seconds that a run which failed waits for its actors' signs, to name one that died."""

GRACE_S = 30.0
"""Seconds that verl is given to end a run by itself, when one of its actors has died."""

SAY_S = 60.0
"""Seconds between two words on a step that takes long."""

# Such a step has taken so many times the longest before it, and this many seconds.
_TIMES, _LEAST_S = 5.0, 120.0


class Watch:
    """Asks every actor for a sign of life, and ends those that wait for a dead one.

    verl waits for its ranks without an end, and they for the inference server: where that one is killed in the middle
    of an update, all of them wait for ever. A busy actor answers late, which is no sign; a dead one's answer is an
    error at once.

    Args:
        actors: handles by what they are to the run.
        waiting: those whose end ends the wait, such as the ranks that train.
        doing: says what the step in progress waits for.
    """

    def __init__(self, actors: Mapping[str, Sequence[Any]], waiting: Sequence[Any], doing: Callable[[], str]) -> None:
        self._signs = {
            handle.__ray_ready__.remote(): (name, handle) for name, all_ in actors.items() for handle in all_
        }
        self._waiting, self._doing = waiting, doing
        self._stop = threading.Event()
        self._longest, self._begun, self._said = 0.0, math.inf, 0.0
        self.died = ""

    def step_begins(self) -> None:
        """Start the clock of a step."""
        now = time.monotonic()  # the step before lasted until now, with its validation
        self._longest, self._begun, self._said = max(self._longest, now - self._begun), now, now

    def look(self, patience_s: float = 0.0) -> str:
        """Return which actor has died and of what, or an empty text; wait so long for those that are busy."""
        ready: Sequence[Any] = ()
        if self._signs:
            ready, _ = ray.wait(list(self._signs), num_returns=len(self._signs), timeout=patience_s)
        for sign in ready:
            name, handle = self._signs.pop(sign)
            try:
                ray.get(sign)
            except RayActorError as error:
                return f"{name} died ({cause(error)})"
            self._signs[handle.__ray_ready__.remote()] = name, handle
        return ""

    def speak(self, now: float) -> None:
        """Say what a step waits for that takes much longer than the others did."""
        lasted = now - self._begun
        if self._longest and lasted > max(_LEAST_S, _TIMES * self._longest) and now - self._said >= SAY_S:
            self._said = now
            text = "this step has taken %.0f s, the longest before it %.0f s; it waits for %s"
            logger.warning(text, lasted, self._longest, self._doing())

    def run(self) -> None:
        """Look until `stop`."""
        while not self._stop.wait(LOOK_S):
            self.speak(time.monotonic())
            self.died = self.look()
            if not self.died:
                continue
            logger.error("%s; the run ends", self.died)
            if not self._stop.wait(GRACE_S):
                for handle in self._waiting:
                    ray.kill(handle)
            return

    @contextmanager
    def running(self) -> Iterator[Watch]:
        """Look in a thread of its own.

        Raises:
            PluginError: an actor died, and the run had to be ended for it.
        """
        thread = threading.Thread(target=self.run, name="pods_cero_watch", daemon=True)
        thread.start()
        try:
            yield self
        except Exception as error:
            self._end(thread)
            # verl's error tells of a process that died, and not which one it was.
            # An answer that is there already was given before: it takes a second question.
            if died := self.died or self.look() or self.look(LAST_LOOK_S):
                raise PluginError(f"{died}. Fix: resume from the last checkpoint") from error
            raise
        finally:
            self._end(thread)

    def _end(self, thread: threading.Thread) -> None:
        self._stop.set()
        thread.join()
