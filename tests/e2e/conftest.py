"""Runs of stock verl, Ray and vLLM on the CPU, as a user starts them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

# What keeps a run short; a test sets what it is about.
SHORT = ("trainer.val_before_train=false", "trainer.test_freq=-1", "trainer.total_training_steps=1")


@dataclass(frozen=True)
class Run:
    """A finished run of `python -m verl.trainer.main_ppo`."""

    folder: Path
    status: int
    output: str

    @property
    def steps(self) -> list[dict[str, Any]]:
        """Metrics of each training step, from verl's file logger."""
        (log,) = sorted(self.folder.rglob("quickstart_cpu.jsonl"))
        records = [json.loads(line) for line in log.read_text().splitlines()]
        return [record["data"] for record in records if "training/global_step" in record["data"]]

    def check(self) -> Run:
        assert self.status == 0, self.output[-6000:]
        return self


@pytest.fixture
def train(tmp_path, clean_environment):
    """Return a function that trains with the quickstart recipe and the given overrides."""

    def run(*overrides: str, folder: str = "run", multirun: bool = False, timeout: float = 400.0) -> Run:
        where = tmp_path / folder
        kind = "sweep" if multirun else "run"
        command = [sys.executable, "-m", "verl.trainer.main_ppo", *(["-m"] if multirun else [])]
        command += ["--config-name=quickstart_cpu", f"hydra.{kind}.dir={where}", *SHORT, *overrides]
        process = subprocess.Popen(
            command,
            cwd=tmp_path,  # not the repository: the recipe is found from anywhere
            env=clean_environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=timeout)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        return Run(where, process.returncode, output)

    return run
