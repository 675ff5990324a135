"""Allocator state inside verl's checkpoint folders."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import DictConfig

from verl_pods_cero.core.allocators import Allocator
from verl_pods_cero.core.budget import BudgetedAllocator
from verl_pods_cero.core.settings import AllocatorSettings
from verl_pods_cero.core.state import StateHeader, fingerprint, load_state, read_header, save_state
from verl_pods_cero.errors import LOGGER, option_names
from verl_pods_cero.files import written_whole
from verl_pods_cero.options.names import ALLOCATOR_NAMES
from verl_pods_cero.options.resume import GROWING, STATE_FILE, added_budget, resumed_folder, state_settings
from verl_pods_cero.options.schema import AllocatorOptions

logger = logging.getLogger(LOGGER)

PROMPTS_FILE = "pods_cero_prompts.parquet"


def state_header(options: AllocatorOptions, settings: AllocatorSettings, dataset: Any, prompt_key: str) -> StateHeader:
    """Say what a state belongs to: this allocator, these options, this data set in this order."""
    return StateHeader(
        allocator=options.name,
        schedule=settings.schedule,
        dataset_fingerprint=fingerprint(_rows(dataset, prompt_key)),
        dataset_size=settings.num_prompts,
        settings=state_settings(options, settings),
    )


def _rows(dataset: Any, prompt_key: str) -> Iterator[bytes]:
    """Yield what identifies each row: its prompt and its answer, or only that there is one."""
    frame: Any = getattr(dataset, "dataframe", None)
    if prompt_key not in getattr(frame, "column_names", ()):
        logger.warning(
            "the rows of a %s cannot be told apart from here: a resumed run is checked for their number alone",
            type(dataset).__name__,
        )
        yield from (b"" for _ in range(len(dataset)))
        return
    columns = [column for column in (prompt_key, "reward_model") if column in frame.column_names]
    for row in frame.select_columns(columns):
        yield json.dumps([row[column] for column in columns], sort_keys=True, default=str).encode()


def step_folder(config: DictConfig, step: int) -> Path:
    """Return verl's checkpoint folder of a step, the one to resume from where one is named."""
    if config.trainer.resume_mode == "resume_path" and config.trainer.resume_from_path:
        named = Path(config.trainer.resume_from_path)
        if named.name == f"global_step_{step}":
            return named
    return Path(config.trainer.default_local_dir) / f"global_step_{step}"


def resumed_step(config: DictConfig) -> int:
    """Return the step that verl will resume from, 0 for a run from the beginning."""
    step = str(resumed_folder(config)).rpartition("global_step_")[2]
    return int(step) if step.isdigit() else 0  # verl refuses a path without a step itself


def save(folder: Path, header: StateHeader, state: dict[str, np.ndarray]) -> None:
    """Write the state into a checkpoint folder."""
    folder.mkdir(parents=True, exist_ok=True)
    save_state(folder / STATE_FILE, header, state)


@option_names(ALLOCATOR_NAMES)
def load(folder: Path, header: StateHeader) -> dict[str, np.ndarray]:
    """Read the state of a checkpoint folder.

    Raises:
        StateError: there is none, it is damaged, or it belongs to another run.
    """
    return load_state(folder / STATE_FILE, header, GROWING)


def added(folder: Path, header: StateHeader) -> int:
    """Return the rollouts of this run's budget that the run that was saved did not have, and say so."""
    found, now = read_header(folder / STATE_FILE), header.settings
    saved = found["settings"]
    if grown := [f"{name} {saved[name]} -> {now[name]}" for name in GROWING if saved[name] != now[name]]:
        more = "the run is longer than it was when it was saved (%s): from here on its pace is that of the longer run"
        logger.warning(more, ", ".join(grown))
    return added_budget(found, header)


def dump_prompts(folder: Path, allocator: Allocator) -> None:
    """Write what the allocator knows of each prompt as parquet: to look at, or for the next run's warm start."""
    assert isinstance(allocator, BudgetedAllocator), "the options refuse others"
    import pandas as pd

    a0, b0 = allocator.rates.prior
    columns = {
        "row": np.arange(allocator.settings.num_prompts),
        "rollouts": allocator.exposures * allocator.settings.unit,
        "successes": allocator.rates.a - a0,
        "failures": allocator.rates.b - b0,
        "a": allocator.rates.a,
        "b": allocator.rates.b,
        "pass_rate": allocator.predict(np.arange(allocator.settings.num_prompts)),
        "q": allocator.rates.q,
    }
    theta = allocator.state_dict().get("theta")
    if theta is not None:
        columns["theta"] = theta
    with written_whole(folder / PROMPTS_FILE) as temporary:
        pd.DataFrame(columns).to_parquet(temporary)
