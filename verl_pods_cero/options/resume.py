"""The checkpoint that a run goes on from, as far as it can be seen before the run starts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verl_pods_cero.core.allocators import create_allocator
from verl_pods_cero.core.state import StateError, StateHeader, load_state, read_header
from verl_pods_cero.core.steps import Steps
from verl_pods_cero.errors import FieldError, OptionError, option_names, verbatim
from verl_pods_cero.options.allocator import allocator_settings
from verl_pods_cero.options.names import ALLOCATOR_NAMES
from verl_pods_cero.options.schema import AllocatorOptions, Run

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from verl_pods_cero.core.settings import AllocatorSettings

STATE_FILE = "pods_cero_allocator.npz"
"""Name of the allocator's state in a checkpoint folder of verl."""

GROWING = ("budget", "rounds")
"""Settings of which a resumed run may have more than the run that was saved."""

TRACKER = "latest_checkpointed_iteration.txt"
"""verl's file that says which checkpoint is the last that is whole."""

# Options that no allocator knows of, and that its counts depend on all the same.
_MEANING = ("candidates", "success_key", "success_threshold")

_SHARD = re.compile(r"model_world_size_(\d+)_rank_\d+\.pt")


def state_settings(options: AllocatorOptions, settings: AllocatorSettings) -> dict[str, Any]:
    """Return the settings that a state belongs to."""
    return {**settings.as_dict(), **{name: getattr(options, name) for name in _MEANING}}


def resumed_folder(config: DictConfig) -> Path | None:
    """Return the checkpoint folder that verl will go on from, or None for a run from the beginning.

    Raises:
        OptionError: verl's tracker file holds no step, or names a folder that is not there; verl would end with a
            bare ValueError, or start over with the whole budget.
    """
    trainer = config.trainer
    if trainer.resume_mode == "resume_path":
        return Path(trainer.resume_from_path) if trainer.resume_from_path else None  # verl refuses none itself
    if trainer.resume_mode != "auto":
        return None
    place = Path(trainer.default_local_dir).absolute()
    tracker = place / TRACKER
    if not tracker.exists():
        return None
    text = tracker.read_text(errors="replace").strip()
    folder = place / f"global_step_{text}"
    if text.isdecimal() and folder.is_dir():
        return folder
    there = sorted(int(path.name[12:]) for path in place.glob("global_step_*") if path.name[12:].isdecimal())
    rule = f"must name a checkpoint in {TRACKER}" if not text.isdecimal() else f"lacks global_step_{text}, the last"
    last = f"write {there[-1]} into {tracker} to go on from there" if there else f"remove {tracker}"
    fix = f"{last}, or start over with trainer.resume_mode=disable"
    raise OptionError("trainer.default_local_dir", rule, text or "an empty file", fix)


def check_checkpoint(run: Run) -> None:
    """Refuse a checkpoint that is not there, or that other ranks have saved: verl finds out when its engines are up."""
    folder, trainer = resumed_folder(run.config), run.config.trainer
    if folder is None:
        return
    if not folder.is_dir():
        rule = "must name a checkpoint folder that exists"
        raise OptionError("trainer.resume_from_path", rule, str(folder), "name a folder global_step_<n>")
    ranks = trainer.n_gpus_per_node * trainer.nnodes
    saved = {int(match[1]) for path in (folder / "actor").glob("*.pt") if (match := _SHARD.fullmatch(path.name))}
    if saved and ranks not in saved:
        (had, *_) = sorted(saved)
        rule = f"make {ranks} ranks, and {folder} was saved by {had}: FSDP's files are read by as many as wrote them"
        fix = f"make them {had}, or start a new run in another folder"
        raise OptionError("trainer.n_gpus_per_node and trainer.nnodes", rule, ranks, fix)


@option_names(ALLOCATOR_NAMES)
def check_state(run: Run) -> None:
    """Refuse an allocator's state that this run cannot go on from; its rows are compared when they have been loaded.

    Raises:
        StateError: there is none, it was saved for another run, or holds what cannot be.
    """
    if (folder := resumed_folder(run.config)) is None:
        return
    path, options = folder / STATE_FILE, run.options.allocator
    found = read_header(path)
    size = found.get("dataset_size")
    if type(size) is not int or size < 1:
        raise StateError(f"{verbatim(path)} does not say its rows: go back to an earlier checkpoint")
    settings = allocator_settings(run.config, options, size)
    expected = StateHeader(
        allocator=options.name,
        schedule=settings.schedule,
        dataset_fingerprint=str(found.get("dataset_fingerprint")),
        dataset_size=size,
        settings=state_settings(options, settings),
    )
    state = load_state(path, expected, GROWING)
    try:
        Steps(create_allocator(options.name, settings), settings).load_state_dict(state, added_budget(found, expected))
    except FieldError:
        raise
    except ValueError as error:
        raise StateError(f"{verbatim(path)}: {verbatim(error)}") from error


def added_budget(found: Mapping[str, Any], now: StateHeader) -> int:
    """Return the rollouts of this run's budget that the run that was saved did not have."""
    return int(now.settings["budget"]) - int(found["settings"]["budget"])
