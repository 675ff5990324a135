"""Logs and run folders as no logger leaves them: each is named with what is wrong, and the good ones stay whole."""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.report_runs import ACCURACY, PODS, STEP, TRACEBACK, records_of, steps, write_log, write_run, write_sweep
from verl_pods_cero.errors import OptionError
from verl_pods_cero.tools.reports import add_arguments, run
from verl_pods_cero.tools.reports.accuracy import Measure
from verl_pods_cero.tools.reports.groups import group_runs
from verl_pods_cero.tools.reports.hydra_files import read_job
from verl_pods_cero.tools.reports.log_files import LogError, read_log
from verl_pods_cero.tools.reports.results import results
from verl_pods_cero.tools.reports.runs import find_runs

ROOT = Path(__file__).parents[2]


def line(step: object, data: object) -> bytes:
    return json.dumps({"step": step, "data": data}).encode() + b"\n"


WHOLE = b"".join(line(step, data) for step, data in steps([0.5, None, 0.75], **PODS))
DEEP = b'{"step": 3, "data": ' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001 + b"\n"

# What a file holds, and what is said of it; nothing said, nothing lost.
LOGS = {
    "garbage": (bytes(range(128, 256)) * 20, "no log to read (none of its lines is a record)"),
    "lines": (b"hello\nworld\n", "no log to read (none of its lines is a record)"),
    "zeros": (b"\0" * 5000, "no log to read (none of its lines is a record)"),
    "wide": (WHOLE.decode().encode("utf-16"), "no log to read (none of its lines is a record)"),
    "types": (b'{"step": "1", "data": {}}\n{"step": true, "data": {}}\n[]\n1\nnull\n', "none of its lines is a record"),
    "empty": (b"", "is empty"),
    "blank": (b"\n \n", "is empty"),
    "begun": (b'{"step": 0, "da', "ends in a line that is cut off"),
    "zeros-after": (WHOLE + b"\0" * 99, "has 1 unreadable lines, which are left out (the first is line 4)"),
    "lines-before": (b"x\n" * 3 + WHOLE, "has 3 unreadable lines, which are left out (the first is line 1)"),
    "deep": (WHOLE + DEEP, "has 1 unreadable lines, which are left out (the first is line 4)"),
    "deep-list": (WHOLE + b"[" * 100_000 + b"\n", "has 1 unreadable lines, which are left out (the first is line 4)"),
    "digits": (WHOLE + line(3, {"a": 10**400, **STEP}), "has numbers beyond 1e+100 in 1 lines"),
    "more-digits": (WHOLE + b'{"step": 3, "data": {"a": ' + b"9" * 5000 + b"}}\n", "has 1 unreadable lines"),
    "far-step": (WHOLE + line(10**400, STEP), "has 1 unreadable lines"),
    "early-step": (WHOLE + line(-1, STEP), "has 1 unreadable lines"),
    "infinite": (WHOLE + line(3, {"timing_s/step": math.inf, "a": math.nan}), "has numbers beyond 1e+100 in 1 lines"),
    "vast": (WHOLE + line(3, {**STEP, ACCURACY: 1e300}), "has numbers beyond 1e+100 in 1 lines"),
    "large": (WHOLE + line(3, {**STEP, ACCURACY: -9e99, "timing_s/step": 9e99}), "in 1 of 3 steps"),
    "blank-steps": (WHOLE + line(3, {}) + line(4, {"a": None}), "has no number of 2 of its steps: 3, 4"),
    "gap": (WHOLE + line(9, {**STEP, **PODS}), "lacks 6 steps of training: time, rollouts and tokens are lower bounds"),
    "no-text": (
        WHOLE + b'{"step": 3, "data": {"val-core/\\ud800/acc/mean@1": 0.5, "a": 1}}\n',
        "logs no timing_s/step in",
    ),
    "marked": (b"\xef\xbb\xbf" + WHOLE, ""),
    "two$dollars$": (WHOLE, ""),
    "crlf": (WHOLE.replace(b"\n", b"\r\n"), ""),
}
BROKEN_YAML = {
    "bytes": bytes(range(128, 256)),
    "cut": b"trainer: {project_name: [",
    "deep": b"[" * 100_000,
    "deep-map": b"{a: " * 500 + b"1" + b"}" * 500,
    "deep-list": b"[" * 500 + b"]" * 500,
    "date": b"a: 2026-99-99\n",
    "digits": b"a: " + b"9" * 5000,
    "itself": b"a: &a {b: *a}\n",
    "aliases": b"a: &a {x: 1}\n" + b"".join(b"%d: &a {x: *a, y: *a}\n" % n for n in range(99)),
    "tag": b"a: !!python/object/apply:os.system ['true']\n",
    "text": b"hello",
    "empty": b"",
}


def good(folder: Path) -> list[Path]:
    return [
        write_run(folder / f"good{seed}", steps([0.5, None, 0.75 + seed / 16], **PODS), [f"quickstart.seed={seed}"])
        for seed in range(3)
    ]


def report(*arguments: object) -> int:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return run(parser.parse_args([str(argument) for argument in arguments]))


def rows(path: Path) -> dict[str, dict[str, str]]:
    """The rows of a CSV file by the last part of the run's path, without that path."""
    return {Path(row.pop("run")).name: row for row in csv.DictReader(path.read_text().splitlines())}


@pytest.fixture
def here(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


@pytest.fixture
def alone(here):
    """The rows of three good runs by themselves."""
    good(here / "alone")
    assert report("alone", "--csv", "alone.csv") == 0
    return rows(here / "alone.csv")


def job(folder: Path, records=None, **options) -> Path:
    return write_run(folder, records, [f"job={folder.name}"], experiment="bad", **options)


def test_jobs_with_hostile_logs_are_rows_beside_three_good_runs_that_stay_whole(here, alone, capsys):
    good(here / "jobs")
    for name, (content, _) in LOGS.items():
        path = job(here / "jobs" / name) / "project" / "bad.jsonl"
        path.parent.mkdir()
        path.write_bytes(content)
    (job(here / "jobs" / "a-folder") / "project" / "bad.jsonl").mkdir(parents=True)
    (job(here / "jobs" / "a-pipe") / "project").mkdir()
    os.mkfifo(here / "jobs" / "a-pipe" / "project" / "bad.jsonl")
    (job(here / "jobs" / "nowhere") / "project").mkdir()
    (here / "jobs" / "nowhere" / "project" / "bad.jsonl").symlink_to("/nowhere/at/all")
    two = job(here / "jobs" / "two")
    for name in ("a", "b"):
        write_log(two / "other" / f"{name}.jsonl", steps([0.5, 0.5]))
    beside = job(here / "jobs" / "beside", steps([0.5, None, 0.75], **PODS))
    write_log(beside / "other" / "a.jsonl", steps([0.25, 0.25]))
    job(here / "jobs" / "no-job-log")
    (here / "jobs" / "no-job-log" / "main_ppo.log").unlink()
    (here / "jobs" / "no-job-log" / "main_ppo.log").mkdir()
    assert report("jobs", "--csv", "jobs.csv", "--curves", "curves.csv", "--figures", "figures") == 0
    shown = " ".join(capsys.readouterr().out.split())
    found = rows(here / "jobs.csv")
    assert {name: found.pop(name) for name in alone} == alone
    assert set(found) == {*LOGS, "a-folder", "a-pipe", "nowhere", "two", "beside", "no-job-log"}
    for name, (_, said) in LOGS.items():
        about = [part for part in shown.split("What is missing ")[1].split("bad job=") if part.startswith(f"{name} ")]
        assert any(said in part for part in about) if said else not about, (name, about)
    for name, why in (
        ("garbage", "none of its lines is a record"),
        ("a-folder", "it is a folder"),
        ("a-pipe", "it is no file"),
        ("nowhere", "it is no file"),
        ("two", "it holds 2, and its options name none of them"),
    ):
        assert (found[name]["status"], found[name]["detail"]) == ("unreadable", f"no log to read ({why})")
        assert f"{name} is shown without numbers: no log to read ({why}) (" in shown
    assert (found["beside"]["status"], found["beside"]["last"]) == ("finished", "0.75")
    assert "beside has other logs in its folder, which are left out: jobs/beside/other/a.jsonl" in shown


def test_hostile_files_in_a_folder_of_logs_are_shown_or_named_and_the_good_runs_stay_whole(here, alone, capsys):
    good(here / "logs")
    for name, (content, _) in LOGS.items():
        (here / "logs" / f"{name}.jsonl").write_bytes(content)
    (here / "logs" / "a-folder.jsonl").mkdir()
    os.mkfifo(here / "logs" / "a-pipe.jsonl")
    (here / "logs" / "nowhere.jsonl").symlink_to("/nowhere/at/all")
    (here / "logs" / "round.jsonl").symlink_to("round.jsonl")
    (here / "logs" / os.fsdecode(b"\xff\xfe.jsonl")).write_bytes(WHOLE)
    assert report("logs", "--csv", "logs.csv") == 0
    shown = " ".join(capsys.readouterr().out.split())
    found = rows(here / "logs.csv")
    assert {name: found.pop(name) for name in alone} == alone
    (left_out,) = (part for part in shown.split("What is missing ")[1].split(". ") if part.startswith("Left out"))
    for name in (*LOGS, "a-folder", "a-pipe", "nowhere", "round"):
        assert (f"{name}.jsonl" in found) != (f"logs/{name}.jsonl" in left_out), name
    assert found["marked.jsonl"]["first"] == "0.5"
    assert "\\udcff\\udcfe" in shown


@pytest.mark.parametrize("content", [LOGS["garbage"][0], LOGS["lines"][0], LOGS["empty"][0], LOGS["begun"][0], None])
def test_a_hostile_seed_takes_no_part_in_the_numbers_of_the_others(tmp_path, content):
    good(tmp_path / "runs")
    path = write_run(tmp_path / "runs" / "bad", None, ["quickstart.seed=9"]) / "project" / "grpo.jsonl"
    path.parent.mkdir()
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    (group,) = group_runs(find_runs([str(tmp_path / "runs")]))
    assert [one.path.name for one in group.runs] == ["bad", "good0", "good1", "good2"]
    assert [one.path.name for one in group.drawn] == ["good0", "good1", "good2"]


@pytest.mark.parametrize("file", ["config", "overrides", "hydra"])
@pytest.mark.parametrize("name", BROKEN_YAML)
def test_a_broken_file_of_hydra_is_named_and_its_run_is_shown(tmp_path, file, name):
    folder = write_run(tmp_path / "run", steps([0.5, None, 0.75], **PODS))
    (folder / ".hydra" / f"{file}.yaml").write_bytes(BROKEN_YAML[name])
    (found,) = find_runs([str(folder)])
    assert found.log.steps.tolist() == [0, 1, 2]
    (remark,) = found.job.remarks
    assert remark.startswith(f"has options that are not known: .hydra/{file}.yaml ")


def test_a_broken_file_of_hydra_is_among_what_is_missing(here, capsys):
    folder = write_run(here / "run", steps([0.5, None, 0.75], **PODS))
    (folder / ".hydra" / "config.yaml").write_text("trainer: [")
    (folder / ".hydra" / "hydra.yaml").unlink()
    assert report("run") == 0
    shown = capsys.readouterr().out
    assert "has options that are not known: .hydra/config.yaml is broken" in shown
    assert "has options that are not known: .hydra/hydra.yaml cannot be read (it is missing)" in shown
    assert "Nothing that this report looks for" not in shown


def test_a_pipe_among_the_files_of_hydra_is_not_waited_for(tmp_path):
    folder = write_run(tmp_path / "run", steps([0.5, None, 0.75], **PODS))
    (folder / ".hydra" / "hydra.yaml").unlink()
    os.mkfifo(folder / ".hydra" / "hydra.yaml")
    assert find_runs([str(folder)])[0].job.remarks == (
        "has options that are not known: .hydra/hydra.yaml cannot be read (it is missing)",
    )


def test_folders_named_by_digits_that_are_no_numbers_are_sorted_all_the_same(tmp_path):
    for name in ("10", "9", "²"):
        write_run(tmp_path / "runs" / name, steps([0.5, 0.5]))
    assert [one.path.name for one in find_runs([str(tmp_path / "runs")])] == ["9", "10", "²"]


def test_options_that_no_float_holds_are_not_known(tmp_path):
    folder = write_run(tmp_path / "run", steps([None, 0.5]), data__train_batch_size=10**400, asked=10**400)
    assert read_job(folder).whole_number("data.train_batch_size") is None
    assert [one.status for one in find_runs([str(folder)])] == ["end unknown"]


@pytest.mark.parametrize("name", ["/etc", "a\0b", "x" * 5000, "../.."])
def test_a_name_in_the_options_that_no_log_can_have_is_no_trouble(tmp_path, name):
    (found,) = find_runs([str(write_run(tmp_path / "run", None, trainer__project_name=name))])
    assert found.status == "incomplete"


def test_a_byte_order_mark_costs_no_step(tmp_path):
    path = tmp_path / "run.jsonl"
    path.write_bytes(LOGS["marked"][0])
    assert records_of(read_log(path))[0] == (0, {ACCURACY: 0.5})
    (found,) = results(group_runs(find_runs([str(tmp_path)])), Measure())
    assert (found.first, found.last) == (0.5, 0.75)


def test_a_log_that_cannot_be_read_says_why(tmp_path, monkeypatch):
    path = write_log(tmp_path / "run.jsonl", steps([0.5, 0.5]))

    def denied(*_args, **_kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", denied)
    with pytest.raises(LogError, match=r"must be a log of verl's file logger, and it cannot be read \(Permission den"):
        read_log(path)


def test_a_hostile_log_is_refused_only_where_no_other_can_be_read(tmp_path):
    (tmp_path / "bad.jsonl").write_bytes(LOGS["lines"][0])
    with pytest.raises(OptionError, match="must be a log of verl's file logger, and none of its lines is a record"):
        find_runs([str(tmp_path / "bad.jsonl")])
    path = write_log(tmp_path / "good.jsonl", steps([0.5, 0.5]))
    found = find_runs([str(tmp_path / "bad.jsonl"), str(path)])
    assert [one.status for one in found] == ["unreadable", "end unknown"]


def test_the_error_of_a_job_whose_log_cannot_be_read_is_told(tmp_path):
    good(tmp_path / "runs")
    (job(tmp_path / "runs" / "bad", job_log=TRACEBACK) / "project" / "bad.jsonl").mkdir(parents=True)
    (bad,) = (one for one in find_runs([str(tmp_path / "runs")]) if one.path.name == "bad")
    assert (bad.status, bad.detail.split(": ")[0]) == ("failed", "no log to read (it is a folder)")
    assert bad.detail.endswith("got 32. Fix: lower it.")


def test_a_run_that_was_refused_before_it_started_is_a_row_and_no_run_of_its_group(here, capsys):
    write_run(here / "runs" / "good", steps([0.5, None, 0.75], **PODS), ["quickstart.seed=3"])
    write_run(here / "runs" / "refused", None, ["quickstart.seed=3"])
    assert report("runs", "--csv", "runs.csv") == 0
    found = rows(here / "runs.csv")
    assert found["refused"]["status"] == "incomplete"
    assert found["refused"]["detail"].startswith(
        "no steps logged: starting, or refused before it started, last written"
    )
    assert (found["good"]["seed"], found["good"]["last"]) == ("3", "0.75")
    shown = capsys.readouterr().out
    assert "has no log: verl's file logger writes" in shown
    assert "is shown without" not in shown


def test_a_multirun_of_hostile_jobs_has_a_row_for_each(here):
    sweep = write_sweep(here / "sweep", [{"records": steps([0.5, None, 0.75])}, {}, {}])
    (sweep / "1" / "project" / "grpo.jsonl").mkdir(parents=True)
    assert report("sweep", "--csv", "sweep.csv") == 0
    found = rows(here / "sweep.csv")
    assert found["1"]["detail"] == "no log to read (it is a folder): its job log says no error"
    assert [found[name]["status"] for name in "012"] == ["finished", "failed", "incomplete"]


def test_logs_beside_run_folders_are_runs_as_well(tmp_path):
    good(tmp_path / "runs")
    write_log(tmp_path / "runs" / "project" / "alone.jsonl", steps([0.5, 0.5]))
    assert [one.path.name for one in find_runs([str(tmp_path / "runs")])] == ["good0", "good1", "good2", "alone.jsonl"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda inner: st.lists(inner), max_leaves=5
)


@settings(max_examples=200)
@given(
    parts=st.lists(
        st.binary(max_size=30)
        | st.builds(
            line, st.integers(-1, 6) | JSON, st.dictionaries(st.sampled_from([*STEP, ACCURACY]) | st.text(), JSON)
        ),
        max_size=8,
    )
)
def test_whatever_a_file_holds_it_is_read_or_refused_by_name_and_its_numbers_are_finite(tmp_path_factory, parts):
    path = tmp_path_factory.mktemp("any") / "run.jsonl"
    path.write_bytes(b"".join(parts))
    try:
        log = read_log(path)
    except LogError as error:
        assert error.clause == "no log to read (none of its lines is a record)"
        return
    assert log.steps.tolist() == sorted(set(log.steps.tolist()))
    records = records_of(log)
    assert {name for _, values in records for name in values} == log.names
    assert len(records) or log.remarks


def test_a_long_log_is_read_in_a_stream(tmp_path):
    # 66 numbers a step: 11 MB as floats of NumPy, 100 MB as Python's
    record = {"step": 0, "data": {f"metric/{number}": number / 7 for number in range(60)} | STEP}
    path = tmp_path / "run.jsonl"
    with path.open("w") as file:
        for step in range(1, 20_001):
            file.write(json.dumps(record | {"step": step}) + "\n")
    code = (
        "import resource, sys; from pathlib import Path; from verl_pods_cero.tools.reports.log_files import read_log;"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss; before = peak();"
        "log = read_log(Path(sys.argv[1])); print(len(log.steps), (peak() - before) // 1024)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True, cwd=ROOT)
    count, megabytes = map(int, done.stdout.split())
    assert count == 20_000
    assert megabytes < 40
