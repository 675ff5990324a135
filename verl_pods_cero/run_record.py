"""What a run says of itself in its folder: which process it is, and how it ended."""

from __future__ import annotations

import json
import socket
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import psutil

from verl_pods_cero.files import written_whole

FILE = Path(".hydra") / "pods_cero_run.json"
"""Its place in a run folder."""

# A process that took over the number of another began later than this, in seconds.
_SAME_START_S = 2.0


@dataclass(frozen=True)
class RunRecord:
    """A run, from its start on.

    pid, born: number and start of its process, the latter in seconds since 1970. host: where it runs. ended: seconds
    since 1970, None before. error: what it failed with, empty where it did not.
    """

    pid: int
    born: float
    host: str
    ended: float | None = None
    error: str = ""

    @classmethod
    def of_this_process(cls) -> RunRecord:
        """Return the record of a run that begins here."""
        process = psutil.Process()
        return cls(process.pid, process.create_time(), socket.gethostname())

    @property
    def alive(self) -> bool | None:
        """Whether its process still runs; None for one on another machine."""
        if self.host != socket.gethostname():
            return None
        with suppress(psutil.NoSuchProcess):
            return bool(abs(psutil.Process(self.pid).create_time() - self.born) < _SAME_START_S)
        return False

    def with_end(self, error: BaseException | None) -> RunRecord:
        """Return the record of the run that has ended."""
        return replace(self, ended=time.time(), error="" if error is None else cause(error))

    def write(self, folder: Path) -> None:
        """Leave it in a run folder."""
        path = folder / FILE
        path.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(path) as temporary:
            temporary.write_text(json.dumps(asdict(self)))


def read(folder: Path) -> RunRecord | None:
    """Return the record of a run folder, or None where there is none that can be read."""
    with suppress(OSError, ValueError, TypeError):
        found = RunRecord(**json.loads((folder / FILE).read_text()))
        if isinstance(found.pid, int) and isinstance(found.born, float) and isinstance(found.error, str):
            return found
    return None


def cause(error: BaseException) -> str:
    r"""Word an error in one line: its kind and the last line of what it says, in which Ray names the cause.

    >>> cause(RuntimeError("ray::TaskRunner.run() (pid=1)\nOptionError: keep must be at most 16"))
    'OptionError: keep must be at most 16'
    >>> cause(ValueError("no"))
    'ValueError: no'
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if len(lines) > 1:
        return lines[-1]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
