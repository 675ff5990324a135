"""The newcomer's first run: the stock command, and what came of it."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

RECIPE = "quickstart_cpu"


def stock_command(folder: Path, overrides: Sequence[str]) -> list[str]:
    """Return the command that a user would type, with the run folder named.

    >>> stock_command(Path("runs/first"), ["pods_cero.filter.keep=8"])[1:]
    ['-m', 'verl.trainer.main_ppo', '--config-name=quickstart_cpu', 'hydra.run.dir=runs/first', 'pods_cero.filter.keep=8']
    """
    command = [sys.executable, "-m", "verl.trainer.main_ppo", f"--config-name={RECIPE}"]
    return [*command, f"hydra.run.dir={folder}", *overrides]


def run(overrides: Sequence[str]) -> int:
    """Train with the quickstart recipe, then print a table and draw a figure.

    Ctrl-C reaches every process of the run, and none of them outlives this one.

    Args:
        overrides: Hydra overrides for the recipe.

    Returns:
        The exit status of the training command.
    """
    from verl_pods_cero.quickstart import summary

    folder = Path("outputs") / RECIPE / time.strftime("%Y-%m-%d_%H-%M-%S")
    command = stock_command(folder, overrides)
    print("$ " + shlex.join(["python", *command[1:]]), flush=True)
    status = run_and_leave_nothing(command)
    if status:
        print(f"The training command ended with status {status}; its output is above.", file=sys.stderr)
        return status
    summary.show(folder / "verl_pods_cero" / f"{RECIPE}.jsonl", folder / "quickstart.png")
    return 0


def run_and_leave_nothing(command: Sequence[str]) -> int:
    """Run a command in a session of its own and end all of that session with it.

    Ray's processes start sessions of their own, which a terminal's Ctrl-C does not reach: they are
    found by their descent, before their parents are gone.
    """
    import psutil

    process = subprocess.Popen(command, start_new_session=True)
    family = psutil.Process(process.pid)
    descendants: dict[int, psutil.Process] = {}
    try:
        while process.poll() is None:
            try:
                descendants.update({child.pid: child for child in family.children(recursive=True)})
            except psutil.NoSuchProcess:
                break
            time.sleep(1.0)
        return process.wait()
    except KeyboardInterrupt:
        print("Stopping the run and every process it started.", file=sys.stderr)
        return 128 + signal.SIGINT
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)
        _end(process, list(descendants.values()))


def _end(process: subprocess.Popen[bytes], descendants: Sequence[object]) -> None:
    import psutil

    alive = [child for child in descendants if isinstance(child, psutil.Process) and child.is_running()]
    _, alive = psutil.wait_procs(alive, timeout=10)
    for child in alive:
        child.kill()
    psutil.wait_procs(alive, timeout=5)
    if process.poll() is None:
        process.kill()
        process.wait()
