"""The quickstart's run: nothing outlives it, and its log becomes a table and a figure."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import subprocess
import sys
import tempfile
import termios
import time

import psutil
import pytest

from tests.unit.report_runs import steps, write_run
from verl_pods_cero.quickstart import run, summary
from verl_pods_cero.quickstart.progress import StepLines
from verl_pods_cero.quickstart.run import stock_command
from verl_pods_cero.tools.reports.time_shares import time_shares

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


@pytest.mark.parametrize("number", run.ENDING)
def test_an_interrupted_run_leaves_no_process(number):
    process, helper = start("stay")
    process.send_signal(number)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130, error
    assert "Stopping the run" in error
    assert gone(helper)


def test_a_closed_terminal_ends_the_run_and_all_of_its_processes():
    terminal, other_end = pty.openpty()
    command = [sys.executable, "-c", RUN, "-c", DRIVER, "stay"]
    process = subprocess.Popen(
        command, stdin=other_end, stdout=subprocess.PIPE, stderr=other_end, preexec_fn=make_terminal_ours
    )
    os.close(other_end)
    assert process.stdout is not None
    helper = int(process.stdout.readline())
    os.close(terminal)
    with process.stdout:
        assert process.wait(60) == 130
    assert gone(helper)


def make_terminal_ours() -> None:
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def test_steps_are_printed_as_they_are_logged_and_the_rest_goes_to_a_file(tmp_path, capsys):
    log = tmp_path / "project" / "experiment.jsonl"
    driver = f"""
import json, pathlib, time
log = pathlib.Path({str(log)!r})
log.parent.mkdir()
print("verl says much")
with log.open("w") as file:
    for step in (1, 2):
        line = json.dumps({{"step": step, "data": {{"critic/score/mean": step / 4, "timing_s/step": 2.0}}}})
        file.write(line[:9]), file.flush(), time.sleep(0.6)
        file.write(line[9:] + "\\n"), file.flush()
"""
    with (tmp_path / "output.log").open("w") as output:
        watch = StepLines(tmp_path)
        assert run.run_and_leave_nothing([sys.executable, "-c", driver], output, watch) == 0
    watch()
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[1:] == [["1", "-", "0.250", "-", "-", "2.0"], ["2", "-", "0.500", "-", "-", "2.0"]]
    assert len(lines[0]) == len(lines[1])
    assert (tmp_path / "output.log").read_text() == "verl says much\n"


def test_a_run_leaves_nothing_in_the_temporary_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    driver = "import tempfile; print(tempfile.mkstemp(), tempfile.gettempdir(), flush=True)"
    with (tmp_path / "output.log").open("w") as output:
        run.run_and_leave_nothing([sys.executable, "-c", driver], output)
    assert f"{tmp_path}/pods-cero-" in (tmp_path / "output.log").read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["output.log"]


def test_a_log_of_an_earlier_run_in_the_folder_is_not_printed(tmp_path, capsys):
    log = tmp_path / "project" / "experiment.jsonl"
    log.parent.mkdir()
    log.write_text('{"step": 1, "data": {}}\n')
    os.utime(log, (0, 0))
    StepLines(tmp_path)()
    assert capsys.readouterr().out == ""


def test_a_failed_run_shows_the_end_of_what_it_said_and_where_the_rest_is(monkeypatch, tmp_path, capsys):
    driver = "import sys; [print(f'line {n}') for n in range(99)]; sys.exit('keep must be at most 16')"
    monkeypatch.setattr(run, "stock_command", lambda *_: [sys.executable, "-c", driver])
    assert run.run([f"hydra.run.dir={tmp_path}"]) == 1
    *last, where = capsys.readouterr().err.splitlines()
    assert last[-1] == "keep must be at most 16" and len(last) == run.LAST_LINES
    assert where.endswith(f"its output is in {tmp_path}/output.log.")


def test_flags_of_hydra_print_to_the_terminal(monkeypatch, capfd):
    monkeypatch.setattr(run, "stock_command", lambda *_: [sys.executable, "-c", "print('the configuration')"])
    run.run(["--cfg", "job"])
    assert "the configuration" in capfd.readouterr().out


def test_the_command_is_the_stock_one(tmp_path):
    assert stock_command(tmp_path, ["trainer.n_gpus_per_node=2"])[1:] == [
        "-m",
        "verl.trainer.main_ppo",
        "--config-name=quickstart_cpu",
        f"hydra.run.dir={tmp_path}",
        "trainer.n_gpus_per_node=2",
    ]


def test_a_run_folder_of_ones_own_takes_the_place_of_ours():
    overrides = ["hydra.run.dir=first", "quickstart.seed=1", "hydra.run.dir=mine"]
    folder = run.run_folder(overrides)
    assert stock_command(folder, overrides)[-2:] == ["hydra.run.dir=mine", "quickstart.seed=1"]


@pytest.fixture
def trained(tmp_path, monkeypatch):
    """Stand in for the training: a run folder as the command names it, with the log that is asked for."""
    monkeypatch.chdir(tmp_path)
    commands = []

    def train(records, **options):
        def run_and_leave_nothing(command, _output, watch):
            commands.append(command)
            (folder,) = (word.removeprefix("hydra.run.dir=") for word in command if word.startswith("hydra.run.dir="))
            write_run(tmp_path / folder, records, **options)
            watch()
            return 0

        monkeypatch.setattr(run, "run_and_leave_nothing", run_and_leave_nothing)
        return commands

    return train


@pytest.mark.parametrize("help_option", ["-h", "--help"])
def test_help_is_printed_and_nothing_trained(trained, capsys, help_option):
    commands = trained(steps([0.5]))
    assert run.run([help_option]) == 0
    said = capsys.readouterr().out
    assert said.startswith("usage: python -m verl_pods_cero.quickstart") and "passed on to Hydra" in said
    assert "prepare" in said and "smollm2" in said
    assert commands == []


@pytest.mark.parametrize("option", ["-m", "--multirun"])
def test_a_multirun_is_refused_in_one_line_with_the_command_for_it(trained, capsys, option):
    commands = trained(steps([0.5]))
    assert run.run([option, "quickstart.seed=0,1"]) == 2
    said = capsys.readouterr()
    assert said.err.count("\n") == 1 and said.out == ""
    assert "python -m verl.trainer.main_ppo --config-name=quickstart_cpu -m ..., then verl-pods-cero report" in said.err
    assert commands == []


@pytest.mark.parametrize("overrides", [[], ["hydra.run.dir=mine"]])
def test_the_log_is_found_whatever_the_experiment_and_the_folder_are_called(trained, tmp_path, capsys, overrides):
    trained(steps([0.5, None, 0.75]), experiment="x")
    assert run.run(["trainer.experiment_name=x", *overrides]) == 0
    said = capsys.readouterr()
    assert "0.750" in said.out and "x.jsonl" in said.out and said.err == ""
    (figure,) = tmp_path.rglob("quickstart.png")
    assert figure.parent.name == "mine" or not overrides


@pytest.mark.parametrize(
    ("records", "why"),
    [
        (steps([None, None]), "holds no validation. Fix: leave trainer.test_freq above 0."),
        (None, "holds no log of verl's file logger. Fix: leave file in trainer.logger."),
    ],
)
def test_a_run_that_makes_no_table_says_why_in_one_line_and_ends_well(trained, capsys, records, why):
    trained(records)
    assert run.run([]) == 0
    error = capsys.readouterr().err
    assert error.startswith("no table: ") and error.endswith(f"{why}\n") and error.count("\n") == 1


@pytest.mark.parametrize("flag", ["--config-name=cero_cpu", "-cn=cero_cpu"])
def test_another_recipe_is_refused_with_the_command_that_runs_it(flag, capsys):
    assert run.run([flag, "quickstart.seed=1"]) == 2
    assert "python -m verl.trainer.main_ppo --config-name=<recipe>" in capsys.readouterr().err


def test_a_command_that_leaves_no_run_folder_ends_well(trained, monkeypatch, capsys):
    trained(None)
    monkeypatch.setattr(run, "run_and_leave_nothing", lambda _command: 0)
    assert run.run(["hydra.run.dir=nothing", "--cfg", "job"]) == 0
    assert capsys.readouterr().err.startswith("no table: RUN must be a folder or a log that exists")


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
    progress, read = summary.read(log)
    assert (progress.steps.tolist(), progress.mean.tolist()) == ([0, 2], [0.45, 0.75])
    assert progress.spent["training_s"].tolist() == [[0.0, 8.0]]
    assert progress.spent["rollouts"].tolist() == [[0.0, 256.0]]
    assert time_shares(read) == pytest.approx({"generation": 6.0, "update": 1.0, "other": 1.0})


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
