"""Runs of stock verl, Ray and vLLM on the CPU, as a user starts them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

# What keeps a run short; a test sets what it is about.
SHORT = (
    "data.train_batch_size=8",
    "actor_rollout_ref.rollout.n=8",
    "actor_rollout_ref.actor.ppo_mini_batch_size=2",
    "trainer.val_before_train=false",
    "trainer.test_freq=-1",
    "trainer.total_training_steps=1",
)


def read_json_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def read_steps(folder: Path) -> list[dict[str, Any]]:
    """Metrics of each training step below a run folder, from verl's file logger."""
    records = [record for log in folder.rglob("quickstart_cpu.jsonl") for record in read_json_lines(log)]
    return [record["data"] for record in records if "training/global_step" in record["data"]]


@dataclass(frozen=True)
class Run:
    """A finished run of `python -m verl.trainer.main_ppo`."""

    folder: Path
    status: int
    output: str

    @property
    def steps(self) -> list[dict[str, Any]]:
        return read_steps(self.folder)

    def check(self) -> Run:
        assert self.status == 0, self.output[-6000:]
        return self


@pytest.fixture
def train(tmp_path, clean_environment):
    """Return a function that trains with the quickstart recipe and the given overrides."""

    def run(
        *overrides: str,
        folder: str = "run",
        multirun: bool = False,
        kill_when: Callable[[], bool] | None = None,
        timeout: float = 900.0,
    ) -> Run:
        where = tmp_path / folder
        kind = "sweep" if multirun else "run"
        command = [sys.executable, "-m", "verl.trainer.main_ppo", *(["-m"] if multirun else [])]
        command += ["--config-name=quickstart_cpu", f"hydra.{kind}.dir={where}", *SHORT, *overrides]
        with (tmp_path / f"{folder}.log").open("w+") as log:
            process = subprocess.Popen(
                command,
                cwd=tmp_path,  # not the repository: the recipe is found from anywhere
                env=clean_environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            family = psutil.Process(process.pid)
            try:
                deadline = time.monotonic() + timeout
                while process.poll() is None:
                    descendants = family.children(recursive=True)
                    if kill_when is not None and kill_when():
                        for doomed in (family, *descendants):
                            doomed.kill()
                        break
                    if time.monotonic() > deadline:
                        raise TimeoutError(f"no end after {timeout} s: {log.name}")
                    time.sleep(0.2)
                status = process.wait()
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
            log.seek(0)
            return Run(where, status, log.read())

    return run
