"""Logs and run folders: finished, half-written, empty, failed; and which runs belong together."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from tests.unit.report_runs import (
    ACCURACY,
    CERO,
    PODS,
    STEP,
    TRACEBACK,
    records_of,
    steps,
    write_log,
    write_run,
    write_sweep,
)
from verl_pods_cero import run_record
from verl_pods_cero.errors import OptionError
from verl_pods_cero.run_record import RunRecord
from verl_pods_cero.tools.reports.accuracy import Measure, curves
from verl_pods_cero.tools.reports.groups import group_runs
from verl_pods_cero.tools.reports.log_files import read_log
from verl_pods_cero.tools.reports.reference_group import choose_baseline, describe_baseline
from verl_pods_cero.tools.reports.runs import find_runs


def found(*paths):
    return find_runs([str(path) for path in paths])


def names(*paths):
    return [group.name for group in group_runs(found(*paths))]


# ---------------------------------------------------------------------- logs


def test_a_log_is_its_finite_numbers_step_by_step(tmp_path):
    path = write_log(tmp_path / "run.jsonl", [(1, {"a": 1, "b": None, "c": "text"}), (2, {"a": 3.5})])
    log = read_log(path)
    assert records_of(log) == [(1, {"a": 1.0}), (2, {"a": 3.5})]
    assert log.remarks == ()
    assert [column.tolist() for column in log.series("a")] == [[1.0, 2.0], [1.0, 3.5]]


@pytest.mark.parametrize("kept", [1, 10, 30])
def test_a_last_line_that_is_cut_off_is_left_out_and_said(tmp_path, kept):
    path = write_log(tmp_path / "run.jsonl", [(1, {"a": 1.0}), (2, {"a": 2.0})])
    whole = path.read_text()
    path.write_text(whole[: whole.index("\n") + 1 + kept])
    log = read_log(path)
    assert log.steps.tolist() == [1]
    (remark,) = log.remarks
    assert remark.startswith("ends in a line that is cut off")


def test_a_whole_last_line_without_its_line_end_counts(tmp_path):
    path = write_log(tmp_path / "run.jsonl", [(1, {"a": 1.0}), (2, {"a": 2.0})])
    path.write_text(path.read_text().rstrip("\n"))
    assert read_log(path).steps.tolist() == [1, 2]
    assert read_log(path).remarks == ()


@pytest.mark.parametrize(("text", "remark"), [("", "is empty"), ('{"step": 0, "da', "ends in a line that is cut off")])
def test_a_log_without_a_whole_line_has_no_records(tmp_path, text, remark):
    path = tmp_path / "run.jsonl"
    path.write_text(text)
    log = read_log(path)
    assert records_of(log) == []
    assert log.remarks[0].startswith(remark)


def test_unreadable_lines_are_left_out_and_counted(tmp_path):
    path = write_log(tmp_path / "run.jsonl", [(1, {"a": 1.0}), (2, {"a": 2.0})])
    first, second = path.read_text().splitlines()
    path.write_text("\n".join([first, "\0\0\0", "Traceback", second, ""]))
    log = read_log(path)
    assert log.steps.tolist() == [1, 2]
    assert log.remarks == ("has 2 unreadable lines, which are left out (the first is line 2)",)


def test_a_file_of_other_lines_is_refused_with_the_fix(tmp_path):
    path = tmp_path / "rollouts.jsonl"
    path.write_text('{"input": "1+1", "output": "2"}\n')
    with pytest.raises(OptionError, match=r"must be a log of verl's file logger.*trainer\.logger=\[console,file\]"):
        read_log(path)


def test_a_validation_logged_after_its_step_joins_it(tmp_path):
    log = read_log(write_log(tmp_path / "run.jsonl", [(1, {"timing_s/step": 4.0}), (1, {ACCURACY: 0.5})]))
    assert records_of(log) == [(1, {"timing_s/step": 4.0, ACCURACY: 0.5})]
    assert log.remarks == ()


def test_steps_trained_twice_count_once_and_a_log_of_a_resumed_run_says_where_it_begins(tmp_path):
    log = read_log(write_log(tmp_path / "run.jsonl", [(3, {"a": 1.0}), (4, {"a": 2.0}), (4, {"a": 5.0})]))
    assert log.series("a")[1].tolist() == [1.0, 5.0]
    assert log.remarks[0] == "has steps that were trained twice, of which the later counts: 4"
    assert log.remarks[1].startswith("begins with step 3: time, rollouts and tokens count from there")


# ---------------------------------------------------------------------- run folders and how far they came


def test_a_run_folder_is_its_log_with_its_options(tmp_path):
    (run,) = found(write_run(tmp_path / "run", steps([0.5, None, 0.75]), ["actor_rollout_ref.rollout.n=32"]))
    assert (run.status, run.detail) == ("finished", "2 of 2 steps")
    assert run.job.overrides == ("actor_rollout_ref.rollout.n=32",)
    assert run.job.whole_number("actor_rollout_ref.rollout.n") == 32
    assert run.job.config["data.seed"] == "${quickstart.seed}"
    assert len(run.log.steps) == 3


def test_a_log_given_by_itself_takes_the_options_of_its_run_folder(tmp_path):
    folder = write_run(tmp_path / "run", steps([0.5, None]), asked=4)
    (run,) = found(folder / "project" / "grpo.jsonl")
    assert run.job.whole_number("data.train_batch_size") == 8
    assert (run.status, run.detail.split(":")[0]) == ("incomplete", "1 of 4 steps")


def test_a_log_without_options_has_no_known_end(tmp_path):
    (run,) = found(write_log(tmp_path / "run.jsonl", steps([None, 0.5])))
    assert (run.status, run.detail) == ("end unknown", "1 step")


def test_a_run_with_fewer_steps_than_asked_for_is_incomplete_and_says_when_it_was_written(tmp_path):
    (run,) = found(write_run(tmp_path / "run", steps([0.5, None]), asked=4))
    assert run.status == "incomplete"
    assert run.detail.startswith("1 of 4 steps: running or stopped, last written 20")


def test_a_run_of_which_the_process_is_gone_without_a_word_failed(tmp_path):
    folder = write_run(tmp_path / "run", steps([0.5, None]), asked=4)
    replace(RunRecord.of_this_process(), born=0.0).write(folder)
    (run,) = found(folder)
    assert run.status == "failed"
    assert run.detail == f"1 of 4 steps: process {os.getpid()} is gone and left no word: it was killed or interrupted"


def test_a_run_of_which_the_process_lives_is_running(tmp_path):
    folder = write_run(tmp_path / "run", steps([0.5, None]), asked=4)
    RunRecord.of_this_process().write(folder)
    (run,) = found(folder)
    assert (run.status, run.detail.split(", last")[0]) == (
        "incomplete",
        f"1 of 4 steps: running, as process {os.getpid()}",
    )


def test_a_run_of_another_machine_is_not_judged_by_the_processes_here(tmp_path):
    folder = write_run(tmp_path / "run", steps([0.5, None]), asked=4)
    replace(RunRecord.of_this_process(), host="elsewhere", born=0.0).write(folder)
    (run,) = found(folder)
    assert run.detail.startswith("1 of 4 steps: running or stopped")


def test_what_a_run_wrote_down_that_it_failed_with_is_told(tmp_path):
    folder = write_run(tmp_path / "run", steps([0.5, None]), asked=4)
    RunRecord.of_this_process().with_end(RuntimeError("ray::step()\nActorDiedError: out of memory")).write(folder)
    (run,) = found(folder)
    assert (run.status, run.detail) == ("failed", "1 of 4 steps: ActorDiedError: out of memory")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"pid": "x", "born": 1.0, "host": "h"}'])
def test_a_record_that_cannot_be_read_counts_as_none(tmp_path, text):
    folder = write_run(tmp_path / "run", steps([0.5, None]), asked=4)
    (folder / run_record.FILE).write_text(text)
    assert run_record.read(folder) is None
    assert found(folder)[0].status == "incomplete"


RECORDED_JOB = """
import hydra
import verl  # loads the plugin

@hydra.main(config_path=".", config_name="options", version_base=None)
def main(config):
    if config.get("fails"):
        raise RuntimeError("the engine died")

main()
"""


@pytest.mark.parametrize(("options", "error"), [([], ""), (["+fails=true"], "RuntimeError: the engine died")])
def test_a_job_writes_down_how_it_ended(tmp_path, options, error):
    (tmp_path / "job.py").write_text(RECORDED_JOB)
    (tmp_path / "options.yaml").write_text("defaults: [pods_cero_schema, _self_]\n")
    command = [sys.executable, "job.py", f"hydra.run.dir={tmp_path}/run", *options]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    record = run_record.read(tmp_path / "run")
    assert record is not None, done.stderr
    assert (done.returncode == 0, record.error) == (not error, error)
    assert record.ended is not None and record.ended > record.born


@pytest.mark.parametrize("last", [{"cero/budget_left": 0.0}, {"cero/round": 9.0}])
def test_an_allocator_that_used_up_its_budget_or_rounds_finished_its_run(tmp_path, last):
    options = {"pods_cero__allocator__schedule": "round"}
    ended = write_run(tmp_path / "ended", steps([None, None], **{**CERO, **last}), asked=9, **options)
    going_on = write_run(tmp_path / "going_on", steps([None, None], **CERO), asked=9, **options)
    assert [run.status for run in found(ended, going_on)] == ["finished", "incomplete"]


def test_a_failed_run_gives_the_last_line_of_its_last_traceback(tmp_path):
    (run,) = found(write_run(tmp_path / "run", steps([0.5, None]), asked=4, job_log=TRACEBACK))
    assert run.status == "failed"
    error = "verl_pods_cero.errors.OptionError: pods_cero.filter.keep must be at most n, got 32. Fix: lower it."
    assert run.detail == f"1 of 4 steps: {error}"


def test_a_traceback_that_a_run_survived_is_no_failure(tmp_path):
    (run,) = found(write_run(tmp_path / "run", steps([0.5, None, 0.75]), job_log=TRACEBACK))
    assert run.status == "finished"


@pytest.mark.parametrize(
    ("job_log", "error"),
    [
        ("", "its job log says no error"),
        ("[2026-11-30 04:25:10,123][verl][ERROR] - no GPU\n[2026-11-30 04:25:10,124][verl][INFO] - bye\n", "no GPU"),
    ],
)
def test_a_job_without_a_log_failed_if_a_later_job_began(tmp_path, job_log, error):
    done = {"records": steps([0.5, None, 0.75])}
    sweep = write_sweep(tmp_path / "sweep", [{"job_log": job_log}, done, {}])
    assert [(run.status, run.detail.split(": ")[:2]) for run in found(sweep)][:2] == [
        ("failed", ["no steps logged", error]),
        ("finished", ["2 of 2 steps"]),
    ]
    assert found(sweep)[2].status == "incomplete"  # the last one may just be starting


def test_a_later_job_says_nothing_where_jobs_run_side_by_side(tmp_path):
    launcher = "hydra_plugins.hydra_joblib_launcher.joblib_launcher.JoblibLauncher"
    sweep = write_sweep(tmp_path / "sweep", [{"launcher": launcher}, {"launcher": launcher}])
    assert [run.status for run in found(sweep)] == ["incomplete", "incomplete"]


def test_jobs_come_in_the_order_of_their_numbers_and_know_their_multirun(tmp_path):
    sweep = write_sweep(tmp_path / "sweep", [{"records": steps([None, 0.5])}] * 11)
    runs = found(tmp_path)
    assert [run.path.name for run in runs] == [str(number) for number in range(11)]
    assert {run.sweep for run in runs} == {sweep}


def test_half_written_options_count_as_none(tmp_path):
    folder = write_run(tmp_path / "run", steps([None, 0.5]))
    (folder / ".hydra" / "config.yaml").write_text("trainer: {project_name: [")
    (run,) = found(folder)
    assert run.job.config == {}
    assert len(run.log.steps) == 2


def test_a_folder_of_logs_is_a_run_each_and_other_json_lines_are_passed_over(tmp_path):
    write_log(tmp_path / "a.jsonl", steps([None, 0.5]))
    write_log(tmp_path / "below" / "b.jsonl", steps([None, 0.5]))
    (tmp_path / "rollouts.jsonl").write_text('{"input": "1+1"}\n')
    assert [run.path.name for run in found(tmp_path)] == ["a.jsonl", "b.jsonl"]


def test_a_run_given_twice_counts_once(tmp_path):
    folder = write_run(tmp_path / "run", steps([None, 0.5]))
    assert len(found(folder, tmp_path)) == 1


def test_a_path_that_is_missing_gets_the_nearest_name(tmp_path):
    write_run(tmp_path / "quickstart", steps([None, 0.5]))
    with pytest.raises(OptionError, match=r"must be a folder or a log that exists.*did you mean 'quickstart'"):
        found(tmp_path / "quickstrat")
    # The folder may hold thousands of files: they are not listed.
    with pytest.raises(OptionError, match=r"got '.*nothing-like-it'. Fix: give a run folder, a multirun folder"):
        found(tmp_path / "nothing-like-it")


def test_a_folder_without_a_run_is_refused_with_the_fix(tmp_path):
    with pytest.raises(OptionError, match=r"must hold a run.*Fix: give a folder that Hydra made"):
        found(tmp_path)


def test_a_run_folder_with_two_logs_is_refused_with_their_names(tmp_path):
    folder = write_run(tmp_path / "run", None)
    for name in ("a", "b"):
        write_log(folder / "other" / f"{name}.jsonl", steps([None, 0.5]))
    with pytest.raises(OptionError, match=r"must hold one log.*a\.jsonl, .*b\.jsonl"):
        found(folder)


JOB = """
import json
from pathlib import Path
import hydra
from hydra.core.hydra_config import HydraConfig

@hydra.main(config_path=".", config_name="job", version_base=None)
def main(config):
    if config.n == 3:
        raise ValueError("no such n")
    log = Path(HydraConfig.get().runtime.output_dir, "project", "toy.jsonl")
    log.parent.mkdir()
    log.write_text(json.dumps({"step": 1, "data": {"timing_s/step": 1.0}}) + "\\n")

main()
"""


def test_a_multirun_that_hydra_made_is_read_with_the_error_that_hydra_logged(tmp_path):
    (tmp_path / "main.py").write_text(JOB)
    (tmp_path / "job.yaml").write_text(
        "n: 2\nseed: 0\ntrainer: {project_name: project, experiment_name: toy, total_training_steps: 1}\n"
    )
    callback = "+hydra.callbacks.log._target_=hydra.experimental.callbacks.LogJobReturnCallback"
    command = [sys.executable, "main.py", "-m", "n=2,3,4", "seed=0,1", "hydra.sweep.dir=sweep", callback]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    runs = found(tmp_path / "sweep")
    assert [run.status for run in runs] == ["finished"] * 2 + ["failed"] * 2 + ["finished"] * 2
    assert runs[2].detail == "no steps logged: ValueError: no such n"
    assert [(group.name, len(group.runs)) for group in group_runs(runs)] == [("n=2", 2), ("n=3", 2), ("n=4", 2)]


# ---------------------------------------------------------------------- groups


def test_runs_that_differ_by_seeds_in_options_and_names_and_by_places_are_one_group(tmp_path):
    for seed in (0, 1):
        overrides = [f"quickstart.seed={seed}", f"trainer.default_local_dir=checkpoints/{'ab'[seed]}"]
        names = {"experiment": f"grpo_seed{seed}", "trainer__project_name": f"sums/seed{seed}"}
        write_run(tmp_path / f"{seed}", steps([None, 0.5]), overrides, **names)
    (group,) = group_runs(found(tmp_path))
    assert (group.name, len(group.runs)) == ("grpo", 2)


@pytest.mark.parametrize("option", ["experiment", "trainer__project_name"])
def test_runs_of_other_project_or_experiment_names_are_other_groups(tmp_path, option):
    for name in ("first", "second"):
        write_run(tmp_path / name, steps([None, 0.5]), **{option: name})
    assert [len(group.runs) for group in group_runs(found(tmp_path))] == [1, 1]


def test_runs_of_other_options_are_other_groups_named_by_what_tells_them_apart(tmp_path):
    for keep in (4, 8):
        overrides = ["data.train_batch_size=16", f"pods_cero.filter.keep={keep}", "quickstart.seed=3"]
        write_run(tmp_path / f"{keep}", steps([None, 0.5]), overrides, experiment="pods")
    assert names(tmp_path) == ["pods keep=4", "pods keep=8"]


def test_jobs_of_a_multirun_are_named_by_what_they_sweep(tmp_path):
    jobs = [
        {"records": steps([None, 0.5]), "overrides": [f"actor_rollout_ref.rollout.n={n}", f"quickstart.seed={seed}"]}
        for n in (16, 32)
        for seed in (0, 1)
    ]
    groups = group_runs(found(write_sweep(tmp_path / "sweep", jobs)))
    assert [(group.name, len(group.runs)) for group in groups] == [("n=16", 2), ("n=32", 2)]


def test_names_on_the_command_line_make_groups(tmp_path):
    paths = [write_log(tmp_path / f"{name}.jsonl", steps([None, 0.5])) for name in ("a", "b", "c")]
    groups = group_runs(find_runs([f"plain={paths[0]}", f"plain={paths[1]}", f"mine={paths[2]}"]))
    assert [(group.name, len(group.runs)) for group in groups] == [("plain", 2), ("mine", 1)]


def test_a_path_with_an_equals_sign_is_a_path(tmp_path):
    path = write_log(tmp_path / "n=16" / "cero.jsonl", steps([None, 0.5]))
    assert names(path) == ["cero"]


def test_logs_without_options_are_grouped_by_their_name_less_the_seed(tmp_path):
    for name in ("cero-seed0", "cero-seed1", "uniform-seed0"):
        write_log(tmp_path / f"{name}.jsonl", steps([None, 0.5]))
    groups = group_runs(found(tmp_path))
    assert [(group.name, len(group.runs)) for group in groups] == [("cero", 2), ("uniform", 1)]


def test_groups_of_one_name_are_told_apart_by_their_folders(tmp_path):
    for folder in ("old", "new"):
        write_log(tmp_path / folder / "cero.jsonl", steps([None, 0.5]))
    assert names(tmp_path) == ["cero (new/cero.jsonl)", "cero (old/cero.jsonl)"]


def test_a_failed_seed_is_no_part_of_the_mean(tmp_path):
    write_run(tmp_path / "0", steps([0.5, None, 0.75]))
    write_run(tmp_path / "1", steps([0.5, None]), ["quickstart.seed=1"], job_log=TRACEBACK)
    (group,) = group_runs(found(tmp_path))
    assert [run.path.name for run in group.drawn] == ["0"]
    assert len(group.runs) == 2


def test_an_incomplete_seed_is_no_part_of_the_mean_of_finished_ones(tmp_path):
    write_run(tmp_path / "0", steps([0.5, None, None, 0.75]), asked=3)
    write_run(tmp_path / "1", steps([0.5, None, 0.75]), ["quickstart.seed=1"], asked=3)
    (group,) = group_runs(found(tmp_path))
    assert [run.path.name for run in group.drawn] == ["0"]
    (group,) = group_runs(found(tmp_path / "1"))
    assert [run.path.name for run in group.drawn] == ["1"]


def test_a_seed_of_unknown_end_is_left_out_before_half_of_the_latest_validation(tmp_path):
    write_log(tmp_path / "grpo-seed0.jsonl", steps([0.5, None, 0.5, None, 0.75]))
    write_log(tmp_path / "grpo-seed1.jsonl", steps([0.5, None, 0.5]))
    write_log(tmp_path / "grpo-seed2.jsonl", steps([0.5, None, None, None]))
    write_log(tmp_path / "grpo-seed3.jsonl", steps([None, None]))
    (group,) = group_runs(found(tmp_path))
    assert [run.path.stem for run in group.drawn] == ["grpo-seed0", "grpo-seed1"]


def test_a_finished_seed_counts_however_early_its_allocator_ended_it(tmp_path):
    options = {"pods_cero__allocator__schedule": "round", "asked": 9}
    write_run(tmp_path / "0", steps([None] * 9 + [0.75]), **options)
    write_run(tmp_path / "1", steps([None, 0.5], **{"cero/round": 9.0}), ["quickstart.seed=1"], **options)
    (group,) = group_runs(found(tmp_path))
    assert [run.status for run in group.drawn] == ["finished", "finished"]


def chosen(groups, name=None):
    return choose_baseline(groups, curves(groups, Measure()), name)


def test_the_baseline_is_the_first_group_without_pods_and_cero(tmp_path):
    cero = write_log(tmp_path / "cero.jsonl", steps([None, 0.5], **CERO))
    plain = write_log(tmp_path / "plain.jsonl", steps([None, 0.5]))
    empty = write_log(tmp_path / "empty.jsonl", [])
    groups = group_runs(found(empty, cero, plain))
    assert chosen(groups).name == "plain"
    assert chosen(groups, "cero").name == "cero"
    assert chosen(groups[:2]).name == "cero"
    assert chosen(groups[:1]) is None
    with pytest.raises(
        OptionError, match=r"--baseline .* got 'plian'\. Fix: did you mean 'plain'\? Known: cero, plain"
    ):
        chosen(groups, "plian")


def test_a_group_without_a_validation_is_the_baseline_only_where_none_has_one(tmp_path):
    for name, accuracy, metrics in (
        ("pods-blind", None, PODS),
        ("plain-blind", None, {}),
        ("pods", 0.5, PODS),
        ("plain", 0.5, {}),
    ):
        write_log(tmp_path / f"{name}.jsonl", steps([None, accuracy], **metrics))
    order = ["pods-blind", "plain-blind", "pods", "plain"]
    groups = group_runs(found(*(tmp_path / f"{name}.jsonl" for name in order)))
    assert [chosen(groups[:count]).name for count in (1, 2, 3, 4)] == order


def test_the_sentence_on_the_baseline_says_why_it_is_that_group(tmp_path):
    write_log(tmp_path / "blind.jsonl", steps([None, None]))
    write_log(tmp_path / "pods.jsonl", steps([None, 0.5], **PODS))
    write_log(tmp_path / "plain.jsonl", steps([None, 0.5]))
    names = ("blind", "pods", "plain")
    blind, pods, plain = groups = group_runs(found(*(tmp_path / f"{name}.jsonl" for name in names)))
    lines = curves(groups, Measure())
    other = "(--baseline NAME takes another)."
    assert describe_baseline(plain, lines, chosen=False) == [
        f"Baseline: plain, the first without PODS and CERO that has a validation {other}"
    ]
    assert describe_baseline(pods, curves(groups[:2], Measure()), chosen=False) == [
        f"Baseline: pods, the first that has a validation, as none of these is without PODS and CERO {other}"
    ]
    assert describe_baseline(pods, lines, chosen=True) == ["Baseline: pods, as asked for."]
    assert describe_baseline(blind, {}, chosen=False) == []
    assert describe_baseline(None, {}, chosen=False) == ["No run has logged a step yet."]


@pytest.mark.parametrize(
    ("metrics", "plain"),
    [
        ({}, True),
        ({"pods/rollouts_generated": 32, "pods/rollouts_kept": 32}, True),
        ({"pods/rollouts_generated": 32, "pods/rollouts_kept": 8}, False),
        ({"pods/rollouts_generated": 32, "pods/rollouts_kept": 32, "pods/zero_variance_fraction": 0.5}, False),
        ({"cero/rollouts": 32}, False),
    ],
)
def test_a_group_is_plain_if_its_logs_have_no_more_than_counts_of_rollouts_all_of_them_kept(tmp_path, metrics, plain):
    (group,) = group_runs(found(write_log(tmp_path / "run.jsonl", steps([None, 0.5], **metrics))))
    assert group.is_plain is plain


def test_metrics_that_nobody_knows_are_no_trouble(tmp_path):
    (run,) = found(write_log(tmp_path / "run.jsonl", [(1, {**STEP, "my/own/metric": 7, "cero/other": 1.0})]))
    assert run.log.series("my/own/metric")[1].tolist() == [7.0]
