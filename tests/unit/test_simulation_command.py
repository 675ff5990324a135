from __future__ import annotations

import argparse
import csv
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from verl_pods_cero.core.uniform import Uniform
from verl_pods_cero.tools.command_line import INSTALL
from verl_pods_cero.tools.simulation import add_arguments, run

SMALL = ["--prompts", "40", "--batch", "8", "--steps", "12", "--seeds", "2", "--jobs", "1"]
ALLOCATORS = ["--allocators", "uniform,random_matched,cero,offline_optimum"]
FILES = {
    "calibration.csv",
    "differences.csv",
    "effective_prompts.png",
    "exposure.csv",
    "filters.csv",
    "filters.png",
    "frontier.svg",
    "over_rollouts.csv",
    "prompts.png",
    "runs",
    "runs.csv",
    "simulation.json",
    "summary.csv",
}


def simulate(*options: str) -> int:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return run(parser.parse_args(options))


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def texts(folder: Path) -> dict[str, str]:
    """Every file of a simulation but figures and the record of its options."""
    paths = (path for path in folder.rglob("*") if path.suffix in (".csv", ".jsonl"))
    return {str(path.relative_to(folder)): path.read_text() for path in paths}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("simulation") / "out"
    assert simulate(*SMALL, *ALLOCATORS, "--out", str(path)) == 0
    return path


def test_a_simulation_leaves_its_tables_figures_and_logs_and_nothing_else(folder: Path) -> None:
    assert {path.name for path in folder.iterdir()} == FILES
    stems = ["cero", "offline_optimum", "random_matched", "uniform"]
    assert sorted(path.name for path in (folder / "runs").iterdir()) == [
        f"{stem}-seed{seed}.jsonl" for stem in stems for seed in (0, 1)
    ]
    assert {path.read_bytes()[:4] for path in folder.glob("*.png")} == {b"\x89PNG"}
    assert [path.name for path in folder.parent.iterdir()] == ["out"]


def test_the_terminal_says_the_figures_their_spread_and_where_the_files_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulate(*SMALL, "--allocators", "uniform,cero/epoch", "--out", str(tmp_path / "out")) == 0
    said = capsys.readouterr().out
    assert "cero/epoch" in said and "standard deviation over 2 seeds" in said and "±" in said
    assert str(tmp_path / "out" / "runs") in said.replace("\n", "")


def test_tables_agree_with_each_other(folder: Path) -> None:
    runs, summary = rows(folder / "runs.csv"), rows(folder / "summary.csv")
    assert len(runs) == 8
    ratios = [float(row["effective_prompt_ratio"]) for row in runs if row["allocator"] == "cero"]
    (found,) = (r for r in summary if (r["allocator"], r["measure"]) == ("cero", "effective_prompt_ratio"))
    assert float(found["mean"]) == pytest.approx(np.mean(ratios), rel=1e-4)
    assert float(found["standard_deviation"]) == pytest.approx(np.std(ratios, ddof=1), rel=1e-3)
    for row in runs:
        assert float(row["effective_prompt_ratio"]) == pytest.approx(
            float(row["mixed_groups"]) / float(row["groups"]), rel=1e-4
        )
    exposure = [row for row in rows(folder / "exposure.csv") if row["allocator"] == "uniform"]
    assert sum(float(row["prompts"]) for row in exposure) == 40
    differences = rows(folder / "differences.csv")
    assert {(row["allocator"], row["minus"]) for row in differences} >= {
        ("cero", "uniform"),
        ("cero", "random_matched"),
    }
    groups = sum(float(row["groups"]) for row in runs if row["allocator"] == "cero")
    calibration = [row for row in rows(folder / "calibration.csv") if row["allocator"] == "cero"]
    assert sum(float(row["groups"]) for row in calibration) == groups


def test_logs_hold_as_many_mixed_groups_as_the_tables(folder: Path) -> None:
    for row in rows(folder / "runs.csv"):
        text = (folder / "runs" / f"{row['allocator']}-seed{row['seed']}.jsonl").read_text()
        steps = [json.loads(line)["data"] for line in text.splitlines()]
        mixed = sum(step["cero/effective_prompt_ratio"] * step["cero/prompts"] for step in steps)
        assert mixed == pytest.approx(float(row["mixed_groups"]))
        assert sum(step["cero/rollouts"] for step in steps) == float(row["rollouts"])


def test_the_same_command_writes_the_same_numbers_on_any_number_of_processes(folder: Path, tmp_path: Path) -> None:
    options = [*SMALL[:-1], "2", *ALLOCATORS, "--out", str(tmp_path / "again")]
    assert simulate(*options) == 0
    assert texts(tmp_path / "again") == texts(folder)


def test_a_recorded_world_and_one_seed_are_enough(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    path = tmp_path / "rates.json"
    path.write_text(json.dumps({f"p{i}": (rng.integers(0, 9, 5) / 8).tolist() for i in range(20)}))
    options = [
        "--recorded",
        str(path),
        "--batch",
        "4",
        "--steps",
        "10",
        "--seeds",
        "1",
        "--jobs",
        "1",
        "--keep",
        "none",
    ]
    assert simulate(*options, "--out", str(tmp_path / "out")) == 0
    assert {found.name for found in (tmp_path / "out").glob("*.png")} == {"effective_prompts.png", "prompts.png"}
    assert rows(tmp_path / "out" / "filters.csv") == []
    assert all(row["standard_deviation"] == "" for row in rows(tmp_path / "out" / "summary.csv"))
    record = json.loads((tmp_path / "out" / "simulation.json").read_text())
    assert record["prompts"] == 20 and 0 < record["recorded_mixed_share"] < 1
    assert "PODS" not in capsys.readouterr().out


def test_the_sizes_of_the_published_run_are_the_synthetic_worlds_defaults(tmp_path: Path) -> None:
    options = ["--allocators", "uniform", "--seeds", "1", "--jobs", "1", "--out", str(tmp_path / "out")]
    assert simulate(*options) == 0
    record = json.loads((tmp_path / "out" / "simulation.json").read_text())
    assert record["prompts"] == 8960 and record["sizes"]["budget"] == 256_000 and record["sizes"]["batch"] == 66


def test_the_learner_is_judged_by_accuracy_paired_with_uniform(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = [*SMALL, "--world", "learner", "--allocators", "uniform,prioritized", "--out", str(tmp_path / "out")]
    assert simulate(*options) == 0
    said = capsys.readouterr().out
    assert "What was learnt" in said and "speed-up" in said and "PODS" not in said
    assert {found.name for found in (tmp_path / "out").glob("*.png")} == {
        *("accuracy.png", "effective_prompts.png", "prompts.png")
    }
    runs = {(row["allocator"], row["seed"]): row for row in rows(tmp_path / "out" / "runs.csv")}
    assert all(float(row["accuracy"]) > float(row["accuracy_start"]) for row in runs.values())
    assert all(row["utility"] == "" for row in runs.values())
    for seed in ("0", "1"):
        base, other = runs["uniform", seed], runs["prioritized", seed]
        assert base["accuracy_start"] == other["accuracy_start"] and float(base["speed_up"]) == 1.0
        taken = float(base["rollouts_to_accuracy"]) / float(other["rollouts_to_accuracy"])
        assert float(other["speed_up"]) == pytest.approx(taken, rel=1e-4)
    differences = [row for row in rows(tmp_path / "out" / "differences.csv") if row["measure"] == "accuracy"]
    assert differences[0]["interval_95"] != ""
    record = json.loads((tmp_path / "out" / "simulation.json").read_text())
    assert record["learner"] == {"update": "sgd", "noise": 0.0, "difficulty": 2.0, "transfer": 1.0}


# --- refusals -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--allocators", "cerro"], "did you mean 'cero'"),
        (["--allocators", "nowhere.at_all:Class"], "No module named"),
        (["--allocators", "math:sqrt"], "--allocators must name a class"),
        (["--world", "synthetik"], "did you mean 'synthetic'"),
        (["--world", "synthetic", "--recorded", "x.json"], "--world excludes --recorded"),
        (["--recorded", "nowhere.json"], "--recorded cannot be read"),
        (["--smoothing", "3"], "--smoothing belongs to --recorded"),
        (["--update", "adam"], "--update belongs to --world learner"),
        (["--world", "learner", "--update", "adamw"], "did you mean 'adam'"),
        (["--world", "learner", "--noise", "3"], "moves nothing under sgd"),
        (["--world", "learner", "--transfer", "2"], "--transfer must lie between 0 and 1"),
        (["--world", "learner", "--allocators", "offline_optimum"], "a world that reacts"),
        (["--offered", "41"], "--offered must be at most all prompts (40)"),
        (["--budget", "1001"], "--budget must be a multiple of --unit (4)"),
        (["--budget", "100000"], "--budget must be at most"),
        (["--batch", "41"], "--batch must be at most the number of prompts (40)"),
        (["--n-max", "4"], "--n-max must be at least --n (8)"),
        (["--keep", "9"], "--keep must be an integer from 2 to n=8"),
        (["--keep", "two"], "--keep must be whole numbers"),
        (["--rho", "1.5"], "--rho must lie between 0 and 1"),
        (["--seeds", "0"], "--seeds must be at least 1"),
        (["--jobs", "0"], "--jobs must be at least 1"),
    ],
)
def test_bad_use_is_refused_in_one_line_and_leaves_nothing(
    options: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulate(*SMALL, "--out", str(tmp_path / "out"), *options) == 2
    error = capsys.readouterr().err.strip()
    assert said in error and error.startswith("error: ") and "\n" not in error and "Fix:" in error
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_there_is_kept_unless_told_otherwise(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, options = tmp_path / "out", [*SMALL, "--allocators", "uniform"]
    assert simulate(*options, "--out", str(out)) == 0
    before = texts(out)
    assert simulate(*options, "--out", str(out)) == 2
    assert "--overwrite" in capsys.readouterr().err and texts(out) == before
    (out / "mine.txt").write_text("")
    assert simulate(*options, "--steps", "6", "--out", str(out), "--overwrite") == 0
    assert texts(out) != before and not (out / "mine.txt").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_folder_of_something_else_is_never_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    assert simulate(*SMALL, "--out", str(tmp_path), "--overwrite") == 2
    assert "a folder that this command wrote" in capsys.readouterr().err
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


class Failing(Uniform):
    """An allocator that fails in the middle of a run."""

    def advance(self) -> None:
        super().advance()
        if self.round == 3:
            raise RuntimeError("out of ideas")


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_an_allocator_that_fails_is_named_and_the_folder_stays_as_it_was(
    jobs: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert simulate(*SMALL, "--allocators", "uniform", "--out", str(out)) == 0
    before = texts(out)
    capsys.readouterr()
    options = [*SMALL[:-1], jobs, "--allocators", f"uniform,{__name__}:Failing", "--out", str(out), "--overwrite"]
    assert simulate(*options) == 1
    error = capsys.readouterr().err
    assert f"{__name__}:Failing, seed" in error and "RuntimeError: out of ideas" in error
    assert texts(out) == before and [path.name for path in tmp_path.iterdir()] == ["out"]


def test_without_the_report_extra_the_fix_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = importlib.util.find_spec

    def find_spec(name: str, package: str | None = None) -> Any:
        return None if name == "rich" else found(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)
    assert simulate(*SMALL, "--out", str(tmp_path / "out")) == 1
    assert capsys.readouterr().err == f"error: simulate needs rich, which is not installed. Fix: {INSTALL}\n"


def test_the_commands_options_are_known_without_numpy_or_a_plotting_library() -> None:
    heavy = "{'numpy', 'matplotlib', 'rich'}"
    program = f"import verl_pods_cero.tools.simulation, sys; print(*sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_an_interrupted_simulation_writes_nothing(tmp_path: Path) -> None:
    start = "import sys; from verl_pods_cero.tools.cli import main; sys.exit(main())"
    program = [sys.executable, "-c", start, "simulate", "--jobs", "2", "--out", str(tmp_path / "out")]
    with subprocess.Popen(program, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        deadline = time.monotonic() + 60
        while not list(tmp_path.glob(".out-*/made/runs/*.jsonl")) and time.monotonic() < deadline:
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130 and "interrupted" in said and "Traceback" not in said
    assert list(tmp_path.iterdir()) == []
