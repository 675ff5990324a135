"""Allocator state inside verl's checkpoint folders."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import DictConfig

from verl_pods_cero.core.ledger import BudgetedAllocator
from verl_pods_cero.core.settings import AllocatorSettings
from verl_pods_cero.core.state import StateHeader, fingerprint, load_state, save_state

FILE = "pods_cero_allocator.npz"
PROMPTS_FILE = "pods_cero_prompts.parquet"


def state_header(name: str, settings: AllocatorSettings, dataset: Any, prompt_key: str) -> StateHeader:
    """Say what a state belongs to: this allocator, these settings, this data set in this order."""
    return StateHeader(
        allocator=name,
        schedule=settings.schedule,
        dataset_fingerprint=fingerprint(_rows(dataset, prompt_key)),
        dataset_size=settings.num_prompts,
        settings=settings.as_dict(),
    )


def _rows(dataset: Any, prompt_key: str) -> Iterator[bytes]:
    """Yield what identifies each row: its prompt and its answer, or only that there is one."""
    frame = getattr(dataset, "dataframe", None)
    if frame is None or prompt_key not in frame.column_names:
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


def save(folder: Path, header: StateHeader, state: dict[str, np.ndarray]) -> None:
    """Write the state into a checkpoint folder."""
    folder.mkdir(parents=True, exist_ok=True)
    save_state(folder / FILE, header, state)


def load(folder: Path, header: StateHeader) -> dict[str, np.ndarray]:
    """Read the state of a checkpoint folder.

    Raises:
        StateError: there is none, it is damaged, or it belongs to another run.
    """
    return load_state(folder / FILE, header)


def dump_prompts(folder: Path, allocator: BudgetedAllocator) -> None:
    """Write what the allocator knows of each prompt as parquet, for people to look at."""
    import pandas as pd

    columns = {
        "row": np.arange(allocator.settings.num_prompts),
        "rollouts": allocator.exposures * allocator.settings.unit,
        "a": allocator.rates.a,
        "b": allocator.rates.b,
        "pass_rate": allocator.rates.a / (allocator.rates.a + allocator.rates.b),
        "q": allocator.rates.q,
    }
    theta = allocator.state_dict().get("theta")
    if theta is not None:
        columns["theta"] = theta
    partial = folder / f".{PROMPTS_FILE}"
    pd.DataFrame(columns).to_parquet(partial)
    partial.replace(folder / PROMPTS_FILE)
