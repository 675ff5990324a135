"""The quickstart's run: nothing outlives it, and its log becomes a table and a figure."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time

import psutil
import pytest

from verl_pods_cero.quickstart import summary
from verl_pods_cero.quickstart.run import stock_command

# A driver as Ray's is: its helper has a session of its own, and is deaf to Ctrl-C.
HELPER = (
    "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); print('ready', flush=True); time.sleep(600)"
)
DRIVER = f"""
import subprocess, sys, time
helper = subprocess.Popen([sys.executable, "-c", {HELPER!r}], start_new_session=True, stdout=subprocess.PIPE)
helper.stdout.readline()
print(helper.pid, flush=True)
if "stay" in sys.argv:
    time.sleep(600)
sys.exit(3)
"""
RUN = """
import sys
from verl_pods_cero.quickstart import run
run.PATIENCE_S = 1.0
sys.exit(run.run_and_leave_nothing([sys.executable, *sys.argv[1:]]))
"""


def start(*arguments: str) -> tuple[subprocess.Popen[str], int]:
    """Start a run and return it with the process id of its helper."""
    command = [sys.executable, "-c", RUN, "-c", DRIVER, *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, int(process.stdout.readline())


def gone(pid: int) -> bool:
    deadline = time.monotonic() + 10
    while psutil.pid_exists(pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    return not psutil.pid_exists(pid)


def test_a_run_that_ends_leaves_no_process_and_its_status():
    process, helper = start()
    _, error = process.communicate(timeout=60)
    assert process.returncode == 3, error
    assert gone(helper)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_no_process(number):
    process, helper = start("stay")
    process.send_signal(number)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130, error
    assert "Stopping the run" in error
    assert gone(helper)


def test_the_command_is_the_stock_one(tmp_path):
    assert stock_command(tmp_path, ["trainer.n_gpus_per_node=2"])[1:] == [
        "-m",
        "verl.trainer.main_ppo",
        "--config-name=quickstart_cpu",
        f"hydra.run.dir={tmp_path}",
        "trainer.n_gpus_per_node=2",
    ]


@pytest.fixture
def log(tmp_path):
    accuracy = "val-core/verl_pods_cero/sums/acc/mean@1"
    step = {
        "timing_s/step": 4.0,
        "timing_s/gen": 3.0,
        "timing_s/update_actor": 0.5,
        "timing_s/testing": 9.0,
        "pods/rollouts_generated": 128,
    }
    records = [{"step": 0, "data": {accuracy: 0.45}}]
    records += [{"step": n, "data": dict(step)} for n in (1, 2)]
    records[-1]["data"][accuracy] = 0.75
    path = tmp_path / "run.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def test_a_log_becomes_accuracy_over_time_and_rollouts_and_the_share_of_each_part(log):
    progress, shares = summary.read(log)
    assert (progress.steps.tolist(), progress.mean.tolist()) == ([0, 2], [0.45, 0.75])
    assert progress.spent["training_s"].tolist() == [[0.0, 8.0]]
    assert progress.spent["rollouts"].tolist() == [[0.0, 256.0]]
    assert shares == pytest.approx({"generation": 6.0, "update": 1.0, "other": 1.0})


def test_a_run_is_shown_as_table_and_figure(log, tmp_path, capsys):
    summary.show(log, tmp_path / "figure.png")
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["0", "0.450", "0", "0"] in lines
    assert ["2", "0.750", "8", "256"] in lines
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")


def test_a_log_without_validation_is_refused_with_the_fix(tmp_path):
    path = tmp_path / "run.jsonl"
    path.write_text('{"step": 1, "data": {"timing_s/step": 4.0}}\n')
    with pytest.raises(ValueError, match=r"no validation\. Fix: leave trainer\.test_freq above 0"):
        summary.read(path)
