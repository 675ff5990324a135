"""The report itself: a page that stands alone, tables that agree with it, and a command that loses nothing."""

from __future__ import annotations

import argparse
import base64
import csv
import re
import subprocess
import sys
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from tests.unit.report_runs import CERO, PODS, STEP, TRACEBACK, steps, write_log, write_run, write_sweep
from verl_pods_cero.tools.command_line import INSTALL
from verl_pods_cero.tools.reports import add_arguments, run

FIGURES = (
    "Validation accuracy",
    "Where the time went",
    "Effective prompt ratio",
    "Response length",
    "Exposures",
    "Calibration",
)
MILESTONES = "Time and rollouts to the baseline's best accuracy"


class Page(HTMLParser):
    """A page's sections, and every attribute that could fetch something; unbalanced tags are an error."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.sections: dict[str, str] = {}
        self.images: dict[str, list[dict[str, str | None]]] = {}
        self.tables: dict[str, list[list[str]]] = {}
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        assert len(dict(attrs)) == len(attrs)
        if tag == "img":
            self.images.setdefault(list(self.sections)[-1], []).append(dict(attrs))
        if tag == "tr":
            list(self.tables.values())[-1].append([])
        if tag in ("th", "td"):
            list(self.tables.values())[-1][-1].append("")
        if tag not in ("meta", "img", "br", "link"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "h2":
            self.sections[data] = ""
        elif self.sections and self.open:
            self.sections[list(self.sections)[-1]] += data
        if self.open and self.open[-1] == "caption":
            self.tables[data] = []
        if self.open and self.open[-1] in ("th", "td"):
            list(self.tables.values())[-1][-1][-1] += data

    def row(self, caption: str, first: str) -> list[str]:
        """Return the row of a table, by the beginning of its caption, that begins with a cell; without that cell."""
        (table,) = [rows for name, rows in self.tables.items() if name.startswith(caption)]
        (found,) = [row for row in table if row[0] == first]
        return found[1:]


def report(*arguments: object) -> int:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return run(parser.parse_args([str(argument) for argument in arguments]))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder to work in: reports go where the command is run."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path


@pytest.fixture
def four(folder):
    """Plain GRPO, PODS, CERO and both, with three seeds each."""
    runs = folder / "runs"
    for seed in range(3):
        shift = 0.01 * seed
        seeded = [f"quickstart.seed={seed}"]
        accuracies = ([0.5, None, 0.625 + shift, None, 0.75 - shift], [0.5, None, 0.75 + shift, None, 0.75])
        for name, metrics, values in (
            ("grpo", {}, accuracies[0]),
            ("pods", PODS | {"timing_s/step": 2.0}, accuracies[0]),
            ("cero", CERO, accuracies[1]),
            ("both", PODS | CERO, accuracies[1]),
        ):
            write_run(runs / name / f"{seed}", steps(values, **metrics), seeded, experiment=name, asked=4)
    return runs


def test_the_page_has_every_figure_and_needs_nothing_from_outside(four, capsys):
    assert report(four) == 0
    assert "wrote report.html" in capsys.readouterr().out
    text = (four.parent / "here" / "report.html").read_text()
    assert text.startswith("<!DOCTYPE html>\n<html lang")
    page = Page(text)
    assert [heading for heading in page.sections if heading in page.images] == [MILESTONES, *FIGURES]
    for tag, attributes in page.tags:
        assert tag not in ("script", "link", "iframe", "object")
        for name in ("src", "href", "srcset", "action", "data"):
            assert (attributes.get(name) or "data:").startswith("data:")
    assert not re.search(r"https?:|@import|url\(", text)
    for image in (image for images in page.images.values() for image in images):
        assert len(image["alt"] or "") > 20
        svg = base64.b64decode((image["src"] or "").removeprefix("data:image/svg+xml;base64,"))
        assert ElementTree.fromstring(svg).tag == "{http://www.w3.org/2000/svg}svg"
        assert b"<script" not in svg


def test_tables_tell_what_each_group_had_spent_at_the_baselines_best(four):
    assert report(four) == 0
    page = Page((four.parent / "here" / "report.html").read_text())
    assert "Baseline: grpo, the first without PODS and CERO" in page.sections["Runs"]
    spent, ratios = "Spent at the first validation of at least 0.740", "What grpo had spent over what the group had"
    assert page.row(spent, "grpo (baseline)") == ["0.740", "4", "16.0 s", "17.0 s", "512", "400"]
    assert page.row(spent, "pods")[2:4] == ["8.0 s", "9.0 s"]
    assert page.row(spent, "cero") == ["0.760", "2", "8.0 s", "8.0 s", "256", "200"]
    assert [cell.split()[0] for cell in page.row(ratios, "cero")] == ["2.00", "2.00", "2.12", "2.00", "2.00"]
    assert [cell.split()[0] for cell in page.row(ratios, "pods")] == ["1.00", "2.00", "1.89", "1.00", "1.00"]


def test_tables_compare_groups_at_equal_rollouts_and_equal_time(four):
    assert report(four) == 0
    page = Page((four.parent / "here" / "report.html").read_text())
    # 4 steps of 128 rollouts each; pods takes 8 s where the others take 16
    halfway = page.row("Accuracy at the same rollouts", "cero")[2:4]
    assert [cell.split()[0] for cell in halfway] == ["0.760", "+0.125"]
    assert not any("seeds" in cell for cell in halfway)
    assert page.row("Accuracy at the same rollouts", "grpo (baseline)")[1::2] == ["–"] * 3
    at_8_seconds = page.row("Accuracy at the same time in training steps", "pods")[4:]
    assert [cell.split()[0] for cell in at_8_seconds] == ["0.740", "+0.105"]


def test_a_difference_says_over_how_many_seeds_it_is_where_a_group_has_more(folder):
    for name, shift, seeds in (("grpo", 0.0, (0, 1, 2)), ("pods", 0.125, (1, 2)), ("other", 0.125, (2, 3))):
        for seed in seeds:
            write_log(folder / "logs" / f"{name}-seed{seed}.jsonl", steps([0.5, 0.5 + shift]))
    assert report(folder / "logs", "--baseline", "grpo") == 0
    page = Page((folder / "here" / "report.html").read_text())
    caption = "Accuracy at the same time in training steps"
    assert page.row(caption, "pods")[-2:] == ["0.625", "+0.125 over 2 seeds"]
    assert page.row(caption, "other")[-2:] == ["0.625", "–"]


def test_a_target_that_the_baseline_does_not_reach_is_said_in_the_table(four):
    assert report(four, "--target", "0.755") == 0
    page = Page((four.parent / "here" / "report.html").read_text())
    ratios = "What grpo had spent over what the group had"
    assert page.row(ratios, "cero") == ["not reached by the baseline"] * 5
    assert page.row(ratios, "pods") == ["–"] * 5
    assert page.row("Spent at the first validation of at least 0.755", "cero")[1] == "2"
    heading = "Time and rollouts to an accuracy of 0.755"
    assert "grpo does not get there: no ratio is finite, and none is drawn." in page.sections[heading]
    assert heading not in page.images


def test_the_terminal_shows_the_tables_of_the_page(four, capsys):
    assert report(four, "--baseline", "cero") == 0
    shown = capsys.readouterr().out
    assert "Baseline: cero, as asked for." in shown
    assert re.search(r"grpo +3 +0\.500 +0\.740 ± 0\.025 +0\.740 ± 0\.025 +512 +512 +18\.0 s", shown)
    assert "95 % confidence interval" in shown
    assert "grpo logs no rollouts; they are counted from its options: 8 prompts of 16 rollouts a step" in shown


def test_the_same_logs_make_the_same_page_but_for_its_date(four):
    assert report(four, "--out", "a.html") == 0
    assert report(four, "--out", "b.html") == 0
    here = four.parent / "here"
    first, second = (
        re.sub(r"<footer>.*", "", (here / name).read_text(), flags=re.DOTALL) for name in ("a.html", "b.html")
    )
    assert first == second


def test_a_run_without_pods_and_cero_lacks_their_figures_and_says_so(folder):
    write_run(folder / "run", steps([0.5, None, 0.75]))
    assert report(folder / "run") == 0
    page = Page((folder / "here" / "report.html").read_text())
    assert set(page.images) == {"Validation accuracy", "Where the time went", "Response length"}
    assert "No log has cero/effective_prompt_ratio or pods/zero_variance_fraction." in page.sections[FIGURES[2]]
    assert "No log has cero/exposures_p50." in page.sections["Exposures"]
    assert "No log has cero/calibration_mae" in page.sections["Calibration"]
    assert "no other group to compare" in page.sections[MILESTONES]
    assert page.sections["Runs"].count("±") == 0


def test_figures_name_the_groups_that_have_nothing_for_them(four):
    assert report(four) == 0
    page = Page((four.parent / "here" / "report.html").read_text())
    assert "Not logged by: grpo, pods." in page.sections["Exposures"]
    assert "Not logged by: grpo." in page.sections["Effective prompt ratio"]


def test_a_multirun_has_a_row_a_job_a_figure_and_its_failures(folder, capsys):
    jobs = [
        {
            "records": steps([0.5, None, 0.75], **PODS),
            "overrides": [f"actor_rollout_ref.rollout.n={n}", f"pods_cero.filter.keep={m}"],
        }
        for n in (16, 32)
        for m in (4, 8)
    ]
    jobs[1] = {**jobs[1], "records": None, "job_log": TRACEBACK}
    assert report(write_sweep(folder / "sweep", jobs)) == 0
    page = Page((folder / "here" / "report.html").read_text())
    heading = f"Multirun {folder / 'sweep'}"
    assert "4 jobs, 1 of them failed." in page.sections[heading]
    assert len(page.images[heading]) == 1
    assert page.row("Jobs of", "0") == [
        "n=16 keep=4",
        "finished: 2 of 2 steps",
        "0.500",
        "0.750",
        "0.750",
        "256",
        "64",
        "9.0 s",
    ]
    overrides, status, *numbers = page.row("Jobs of", "1")
    assert overrides == "n=16 keep=8"
    assert status.startswith("failed: no steps logged: ")
    assert status.endswith("got 32. Fix: lower it.")
    assert set(numbers) == {"–"}
    assert "n=32 keep=8" in capsys.readouterr().out


def test_a_multirun_of_which_every_job_failed_is_reported(folder, capsys):
    assert report(write_sweep(folder / "sweep", [{"job_log": TRACEBACK}] * 2)) == 0
    page = Page((folder / "here" / "report.html").read_text())
    assert page.images == {}
    assert "No run has logged a step yet." in page.sections["Runs"]
    assert "2 jobs, 2 of them failed." in capsys.readouterr().out


def test_half_written_and_empty_logs_are_reported_with_what_is_missing(folder):
    whole = write_log(folder / "whole.jsonl", steps([0.5, None, 0.75], **PODS))
    half = folder / "half.jsonl"
    half.write_text(whole.read_text()[:-30])
    (folder / "empty.jsonl").write_text("")
    assert report(folder) == 0
    page = Page((folder / "here" / "report.html").read_text())
    assert "half ends in a line that is cut off" in page.sections["What is missing"]
    assert "empty is empty" in page.sections["What is missing"]
    assert page.row("A row a run", "half")[1:5] == ["end unknown: 1 step", "0.500", "0.500", "0.500"]
    assert page.row("A row a run", "empty")[1].startswith("incomplete: no steps logged: running or stopped, last ")


def test_what_does_not_compare_is_said(folder):
    logs = folder / "logs"
    write_log(logs / "grpo-seed0.jsonl", steps([0.5, 0.5, 0.75]))
    write_log(logs / "uneven-seed0.jsonl", steps([0.5, 0.5, None, 0.75]))
    write_log(logs / "uneven-seed1.jsonl", steps([0.5, None, 0.5, 0.75]))
    write_log(logs / "blind-seed0.jsonl", steps([None, None, None]))
    write_log(logs / "resumed-seed0.jsonl", steps([0.5, 0.5, 0.75, 0.75])[2:])
    assert report(logs, "--baseline", "grpo") == 0
    page = Page((folder / "here" / "report.html").read_text())
    missing = page.sections["What is missing"]
    assert "blind has no validation, and is in no comparison of accuracies." in missing
    assert "uneven is compared at the 2 validations that all its seeds had; one seed had 3." in missing
    assert "grpo is" not in missing
    for heading in (MILESTONES, "Accuracy at equal rollouts and equal time"):
        assert "Not comparable: resumed." in page.sections[heading]


def test_a_file_among_the_logs_that_is_none_is_left_out_and_said(folder, capsys):
    write_log(folder / "logs" / "grpo.jsonl", steps([0.5, 0.75]))
    (folder / "logs" / "other.jsonl").write_text("hello\nworld\n")
    assert report(folder / "logs") == 0
    assert "no logs of verl's file logger: " in (err := capsys.readouterr().err) and "other.jsonl" in err


def test_means_over_seeds_are_taken_at_the_validations_that_all_of_them_had(folder):
    write_log(folder / "logs" / "grpo-seed0.jsonl", steps([0.5, 0.625, 0.75]))
    write_log(folder / "logs" / "grpo-seed1.jsonl", steps([0.5, 0.625]))
    assert report(folder / "logs") == 0
    page = Page((folder / "here" / "report.html").read_text())
    assert page.row("Means over seeds", "grpo")[:4] == ["2", "0.500", "0.625", "0.625"]


def test_a_seed_that_has_just_begun_is_in_no_mean_and_this_is_said(folder):
    for seed, records in enumerate([steps([0.5, None, 0.75])] * 2 + [steps([0.5, None])]):
        write_run(folder / "runs" / f"{seed}", records, [f"quickstart.seed={seed}"])
    assert report(folder / "runs") == 0
    page = Page((folder / "here" / "report.html").read_text())
    assert page.row("Means over seeds", "grpo")[:4] == ["2", "0.500", "0.750", "0.750"]
    missing = page.sections["What is missing"]
    assert "grpo is shown without 1 of its 3 runs, which did not finish, or came less than half as far as" in missing
    assert page.row("Spent at the first validation", "grpo (baseline)")[:2] == ["0.750", "2"]


def test_simulated_runs_make_a_report_without_accuracy_and_time(folder):
    for name in ("cero-seed0", "cero-seed1", "uniform-seed0", "uniform-seed1"):
        write_log(folder / "simulated" / f"{name}.jsonl", [(step, {**PODS, **CERO}) for step in (1, 2, 3)])
    assert report(folder / "simulated") == 0
    page = Page((folder / "here" / "report.html").read_text())
    assert set(page.images) == {"Effective prompt ratio", "Response length", "Exposures", "Calibration"}
    assert page.row("Means over seeds", "cero") == ["2", "–", "–", "–", "384", "96", "–"]
    assert "No log has a validation" in page.sections["Runs"]


def test_names_and_errors_are_text_and_no_markup(folder, capsys):
    log = write_log(folder / "run.jsonl", steps([0.5, None, 0.75]))
    assert report(f"<b>[red]{{0}}</b>={log}", "--title", "<script>alert(1)</script>") == 0
    text = (folder / "here" / "report.html").read_text()
    assert "<script>" not in text
    assert Page(text).row("A row a run", "<b>[red]{0}</b>")
    assert "<b>[red]{0}</b>" in capsys.readouterr().out


def test_two_reports_of_one_name_replace_each_other_and_nothing_else(folder, capsys):
    log = write_log(folder / "run.jsonl", steps([0.5, None, 0.75]))
    out = folder / "here" / "report.html"
    out.write_text("<html>my own page</html>")
    assert report(log) == 2
    assert out.read_text() == "<html>my own page</html>"
    error = capsys.readouterr().err
    assert error.startswith("error: --out must not hold a file that is no earlier report, got 'report.html'. Fix: ")
    assert report(log, "--overwrite", "--title", "First") == 0
    assert report(log, "--title", "Second") == 0
    assert "<h1>Second</h1>" in out.read_text()


def test_runs_and_curves_are_written_as_csv(four, capsys):
    here = four.parent / "here"
    assert report(four, "--csv", "runs.csv", "--curves", "curves.csv") == 0
    texts = ((here / name).read_text() for name in ("runs.csv", "curves.csv"))
    runs, curves = (list(csv.DictReader(text.splitlines())) for text in texts)
    assert len(runs) == 12
    assert len(curves) == 36
    (pods,) = [row for row in runs if (row["group"], row["seed"]) == ("pods", "1")]
    assert (pods["status"], pods["best"], pods["updated"], pods["wall_s"]) == ("finished", "0.74", "128", "10")
    last = [row for row in curves if (row["group"], row["seed"]) == ("grpo", "2")][-1]
    assert (last["step"], last["wall_s"], last["accuracy"]) == ("4", "17", "0.73")
    (here / "own.csv").write_text("a,b\n1,2\n")
    assert report(four, "--csv", "own.csv") == 2
    assert (here / "own.csv").read_text() == "a,b\n1,2\n"
    assert "--csv must not hold" in capsys.readouterr().err


def test_figures_are_written_as_files_that_a_later_report_may_replace(four, capsys):
    here = four.parent / "here"
    for _ in range(2):
        assert report(four, "--figures", "figures") == 0
    found = {path.name: path.read_text() for path in (here / "figures").iterdir()}
    assert {"validation-accuracy.svg", "where-the-time-went.svg", "effective-prompt-ratio.svg"} <= set(found)
    assert all(ElementTree.fromstring(text).tag == "{http://www.w3.org/2000/svg}svg" for text in found.values())
    own = here / "figures" / "where-the-time-went.svg"
    own.write_text(own.read_text().replace("verl-pods-cero report", "Matplotlib"))
    mine = own.read_text()
    (here / "report.html").unlink()
    capsys.readouterr()
    assert report(four, "--figures", "figures") == 2
    assert "--figures must not hold a file" in capsys.readouterr().err
    assert own.read_text() == mine and not (here / "report.html").exists()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["missing"], "error: RUN must be a folder or a log that exists, got 'missing'. Fix: "),
        (["."], "error: RUN must hold a run: a .hydra folder or a log of verl's file logger, got '.'. Fix: "),
        (
            ["../run.jsonl", "--baseline", "x"],
            "error: --baseline must be the name of a group with a log, got 'x'. Fix: ",
        ),
        (["../run.jsonl", "--metric", "x"], "error: --metric must be a validation metric or a data source of a log"),
        (
            ["../run.jsonl", "--out", "no/where.html"],
            "error: --out must be in a folder that exists, got 'no/where.html'",
        ),
        (["../run.jsonl", "--out", "."], "error: --out must be a file, got '.'. Fix: use report.html."),
        (["../run.jsonl", "--figures", "../run.jsonl"], "error: --figures must be a folder, or a new one in a folder"),
        (["x="], "error: RUN must name a folder or a log, got 'x='. Fix: "),
        (["../run.jsonl", "--target", "nan"], "error: --target must be a finite number, got nan."),
        (
            ["../run.jsonl", "--out", "a.html", "--csv", "./a.html"],
            "error: --csv must be another file than --out's, got 'a.html'. Fix: ",
        ),
        (["../run.jsonl", "--figures", "no/where"], "error: --figures must be a folder, or a new one in a folder"),
    ],
)
def test_bad_use_is_one_line_on_stderr_and_writes_nothing(folder, capsys, arguments, error):
    write_log(folder / "run.jsonl", steps([0.5, None, 0.75]))
    assert report(*arguments) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith(error)
    assert shown.err.count("\n") == 1
    assert list((folder / "here").iterdir()) == []


def test_a_page_that_cannot_be_written_leaves_the_earlier_one(folder, monkeypatch, capsys):
    log = write_log(folder / "run.jsonl", steps([0.5, None, 0.75]))
    assert report(log) == 0
    before = (folder / "here" / "report.html").read_text()

    def full(*_args, **_kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.replace", full)
    assert report(log, "--title", "Second") == 1
    assert "No space left on device" in capsys.readouterr().err
    assert [path.name for path in (folder / "here").iterdir()] == ["report.html"]
    assert (folder / "here" / "report.html").read_text() == before


def test_missing_libraries_are_named_with_the_fix(folder, monkeypatch, capsys):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "matplotlib" else object())
    log = write_log(folder / "run.jsonl", [(1, STEP)])
    assert report(log) == 1
    assert capsys.readouterr().err == f"error: report needs matplotlib, which is not installed. Fix: {INSTALL}\n"


def test_the_command_imports_nothing_heavy_until_it_runs():
    heavy = {"matplotlib", "rich", "numpy", "yaml"}
    code = f"import sys, verl_pods_cero.tools.reports; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
