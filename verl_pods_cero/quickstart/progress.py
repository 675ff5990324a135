"""A line in the terminal for each step of a run, out of verl's file logger as it is written."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from pathlib import Path

from verl_pods_cero.tools.reports.accuracy import Measure
from verl_pods_cero.tools.reports.log_files import Log, Record, records
from verl_pods_cero.tools.reports.quantities import GENERATED, KEPT, STEP_SECONDS

HEADING = "step   accuracy   reward   generated   kept   seconds"
REWARD = "critic/score/mean"


def step_lines(logged: Iterable[Record]) -> list[str]:
    r"""Write a line per step; what was not logged of it is a dash.

    Columns: validation accuracy; mean reward of what was generated; rollouts generated, and those that the policy was
    updated on; seconds of the step.

    >>> validation = {"val-core/sums/acc/mean@1": 0.5}
    >>> step = {"critic/score/mean": 0.25, "pods/rollouts_generated": 128, "pods/rollouts_kept": 32, "timing_s/step": 2}
    >>> print("\n".join(step_lines([(0, validation), (1, step)])))
       0      0.500        -           -      -         -
       1          -    0.250         128     32       2.0
    """
    log = Log.of(Path(), logged)
    columns = (Measure().values(log), *(log.column(name) for name in (REWARD, GENERATED, KEPT, STEP_SECONDS)))
    forms = ("10.3f", "8.3f", "11.0f", "6.0f", "9.1f")
    return [
        f"{step:4d} " + " ".join(_cell(number, form) for number, form in zip(row, forms, strict=True))
        for step, *row in zip(log.steps.tolist(), *(column.tolist() for column in columns), strict=True)
    ]


def _cell(number: float, form: str) -> str:
    return f"{number:{form}}" if math.isfinite(number) else "-".rjust(int(form.partition(".")[0]))


class StepLines:
    """Prints the steps that a run has logged since the last call.

    Args:
        folder: of the run; the log is a file `<project>/<experiment>.jsonl` in it, written after now.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._since = time.time()
        self._log: Path | None = None
        self._read = 0  # bytes of the log that were printed

    def __call__(self) -> None:
        """Print what is new."""
        if self._log is None:
            written = [path for path in self._folder.glob("*/*.jsonl") if path.stat().st_mtime >= self._since]
            if not written:
                return
            self._log = written[0]
            print(HEADING)
        with self._log.open("rb") as file:
            file.seek(self._read)
            whole, newline, _ = file.read().rpartition(b"\n")
        self._read += len(whole) + len(newline)
        lines = step_lines(records((whole + newline).decode(errors="replace").splitlines(keepends=True)))
        if lines:
            print("\n".join(lines), flush=True)
