"""What the recipes say of themselves is so: commands, sources, data, a comment over every option."""

from __future__ import annotations

import argparse
import re
import shlex
from pathlib import Path

import pytest

from tests.unit.gpu_recipes import FOLDER, RECIPES, header
from verl_pods_cero.tools import datasets
from verl_pods_cero.tools.datasets.catalog import CATALOG

LEAF = re.compile(r"\s*[\w.\"-]+:\s+\S")

# The CPU recipes share a comment between options that belong together.
FILES = sorted(path for path in FOLDER.rglob("*.yaml") if not path.stem.endswith("_cpu"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(FOLDER)))
def test_every_option_has_a_comment_above_it(path):
    lines = path.read_text().splitlines()
    bare = [
        f"{number}: {line.strip()}"
        for number, line in enumerate(lines, 1)
        if LEAF.match(line) and not line.lstrip().startswith("#") and not lines[number - 2].lstrip().startswith("#")
    ]
    assert bare == []


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_says_what_it_is_where_it_is_from_and_what_it_runs_on(name):
    text = header(name)
    assert f"#   python -m verl.trainer.main_ppo --config-name={name}\n" in text
    assert re.search(r"^# Source: .*(arXiv 2504\.13818|arXiv 2606\.05606|arXiv 2610\.09679)", text, re.MULTILINE)
    assert re.search(r"^# Hardware: (one GPU|8 GPUs)", text, re.MULTILINE)
    assert "never run on a GPU" in " ".join(text.replace("#", "").split())


def files_written(command):
    """What a `verl-pods-cero data` command writes, by its own defaults."""
    parser = argparse.ArgumentParser(exit_on_error=False)
    datasets.add_arguments(parser)
    args = parser.parse_args(shlex.split(command)[2:])
    entry = CATALOG[args.name]
    splits = (args.split,) if args.split else ("train", "test") if entry.test_fraction else (entry.split,)
    return {Path(args.name) / f"{split}.parquet" for split in splits}, args.style


@pytest.mark.parametrize("name", RECIPES)
def test_the_data_commands_of_a_recipe_make_its_files(name, recipe, recipe_data):
    config = recipe(name)
    commands = re.findall(r"^#   (verl-pods-cero data .*)$", header(name), re.MULTILINE)
    written, styles = zip(*map(files_written, commands), strict=True)
    validation = config.data.val_files
    wanted = [config.data.train_files, *([validation] if isinstance(validation, str) else validation)]
    assert set().union(*written) == {Path(file).relative_to(recipe_data) for file in wanted}
    shaped = "reward_kwargs" in config.reward.custom_reward_function
    assert set(styles) == {"tags" if shaped else "native"}


def test_groups_have_names_that_verl_does_not_use():
    from verl.trainer import config

    verls = {path.name for path in Path(config.__file__).parent.iterdir() if path.is_dir()}
    ours = {path.name for path in FOLDER.iterdir() if path.is_dir() and not path.name.startswith("__")}
    assert ours == {"algo", "base", "dataset", "hardware", "pods_cero", "policy", "training"}
    assert not ours & verls


def test_every_choice_of_a_group_is_used_by_a_recipe_or_named_as_an_override(repository):
    used = [*FOLDER.glob("*.yaml"), *(repository / "examples").glob("*.sh")]
    texts = "\n".join(path.read_text() for path in used)
    for path in FOLDER.glob("*/*.yaml"):
        group, choice = path.parent.name, path.stem
        assert f"{group}: {choice}\n" in texts or f"{group}={choice}" in texts, path
        assert path.read_text().startswith("# @package _global_\n"), path


def test_the_page_of_published_settings_names_every_recipe_and_no_other(repository):
    text = (repository / "docs" / "published_settings.md").read_text()
    assert set(re.findall(r"`((?:pods|grpo|cero|sweep)_[\w.]+_[\w.]+)`", text)) == set(RECIPES)
