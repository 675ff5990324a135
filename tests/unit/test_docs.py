"""The documentation says what the code does."""

from __future__ import annotations

import importlib.util
import re
import statistics
from pathlib import Path

import pytest

from verl_pods_cero import hooks


def test_the_page_of_metrics_is_made_from_the_table(repository):
    spec = importlib.util.spec_from_file_location("generate", repository / "docs" / "generate.py")
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    assert generate.PAGE.read_text() == generate.page(), "run `make docs`"


PAGES = ("README.md", "CONTRIBUTING.md", "docs/*.md")


def pages(repository: Path) -> list[Path]:
    return sorted(path for pattern in PAGES for path in repository.glob(pattern))


def test_links_lead_to_files_that_are_there(repository):
    broken = [
        f"{page.name}: {target}"
        for page in pages(repository)
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text())
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert broken == []


def test_modules_that_the_pages_name_are_there(repository):
    rooms = "core|hooks|options|tools|cpu|rewards|quickstart"
    named = {
        (page.name, name)
        for page in pages(repository)
        for name in re.findall(rf"(?<![\w/])(?:verl_pods_cero/)?((?:{rooms})/[\w/]*\w(?:\.py|/))", page.read_text())
    }
    assert named
    package = Path(hooks.__path__[0]).parent
    assert [pair for pair in sorted(named) if not (package / pair[1]).exists()] == []


def test_the_readme_is_short_and_plain(repository):
    text = (repository / "README.md").read_text()
    assert len(text.split()) <= 900
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    lines = [line for line in prose.splitlines() if line and not line.startswith(("|", "#", "!", "-"))]
    sentences = [s for s in re.split(r"(?<=[.:])\s+", " ".join(lines)) if s.strip()]
    assert statistics.median(len(sentence.split()) for sentence in sentences) <= 15


@pytest.mark.parametrize("dialect", [r"\ba prompt\b(?= \d)", r"rollouts a prompt", r"prompts a step"])
def test_the_readme_speaks_the_fields_words(repository, dialect):
    assert not re.search(dialect, (repository / "README.md").read_text())


def test_every_row_of_the_table_of_faults_names_tests_that_there_are(repository):
    table = [line for line in (repository / "docs" / "faults.md").read_text().splitlines() if line.startswith("| ")]
    there = {
        name
        for file in (repository / "tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", file.read_text(), re.MULTILINE)
    }
    for row in table[1:]:
        named = re.findall(r"`(test_\w+)`", row.split("|")[-2])
        assert named and set(named) <= there, row
