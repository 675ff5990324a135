"""What docs/extending.md shows runs, and keeps the contracts that it names."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from verl_pods_cero.contracts import check_allocator, check_rule


@pytest.fixture(scope="module")
def examples(repository: Path, tmp_path_factory: pytest.TempPathFactory):
    """The modules of the page, importable by the names that it gives them."""
    folder = tmp_path_factory.mktemp("extending")
    page = (repository / "docs" / "extending.md").read_text()
    blocks = re.findall(r"```python\n# (my_\w+\.py)\n(.*?)```", page, re.DOTALL)
    for name, code in blocks:
        with (folder / name).open("a") as module:
            module.write(code)
    sys.path.insert(0, str(folder))
    yield {name for name, _ in blocks}
    sys.path.remove(str(folder))
    for name, _ in blocks:
        sys.modules.pop(name.removesuffix(".py"), None)


def test_the_page_has_a_rule_an_allocator_and_a_scorer(examples):
    assert examples == {"my_rules.py", "my_allocators.py", "my_scorer.py"}


@pytest.mark.parametrize("rule", ["my_rules:first", "my_rules:shortest_right"])
def test_the_rules_of_the_page_keep_the_contract(examples, rule):
    check_rule(rule)


def test_the_allocator_of_the_page_keeps_the_contract(examples):
    check_allocator("my_allocators:LeastTried")


def test_the_scorer_of_the_page_scores(examples):
    import my_scorer

    assert my_scorer.compute_score("mine", "<think>4", "4") == {"score": 1.1, "acc": 1.0}
