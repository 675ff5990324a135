"""The checks of a run that need no accelerator: verl's and ours, and what of the data can be seen from here."""

from __future__ import annotations

import io
import os
import warnings
from contextlib import redirect_stdout
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from verl_pods_cero.options.data_files import data_paths, training_rows
from verl_pods_cero.options.schema import PodsCeroOptions, parse

if TYPE_CHECKING:
    from omegaconf import DictConfig

_SPLITS = ("train_files", "val_files")


@dataclass(frozen=True)
class Checked:
    """A configuration that passed.

    Attributes:
        config: of the run.
        options: the plugin's, or None in a stock verl run.
        use_critic: a critic is trained.
        use_reference: log-probabilities of a reference policy are computed.
        data_rows: of the training files, or None where they cannot be counted.
        notes: what could not be checked or known here, and what would help.
    """

    config: DictConfig
    options: PodsCeroOptions | None
    use_critic: bool
    use_reference: bool
    data_rows: int | None
    notes: tuple[str, ...]


def check(config: DictConfig) -> Checked:
    """Run verl's `validate_config`, and ours in it, without their output.

    Files that are not on this machine are no error here: the run may be meant for another.

    Raises:
        OptionError: a rule of ours is broken. verl raises ValueError, AssertionError and others.
    """
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        from verl.trainer.ppo.utils import need_critic, need_reference_policy
        from verl.utils.config import validate_config

        critic, reference = bool(need_critic(config)), bool(need_reference_policy(config))
        present, missing = _without_missing_files(config)
        notes = _skip_rank_check(present)
        validate_config(config=present, use_reference_policy=reference, use_critic=critic)
    rows, unknown = _rows(config, present, missing)
    return Checked(config, parse(config), critic, reference, rows, (*notes, *unknown))


def _skip_rank_check(config: DictConfig) -> list[str]:
    """Turn off verl's check of the LoRA rank where vLLM, which it asks, cannot be imported, and say so."""
    from omegaconf import OmegaConf

    model = config.actor_rollout_ref.model
    rank = (model.get("lora") or {}).get("rank") or model.get("lora_rank") or 0
    if rank <= 0 or config.actor_rollout_ref.rollout.name != "vllm":
        return []
    try:
        import_module("verl.workers.rollout.vllm_rollout.utils")
    except Exception as error:  # a missing vLLM is a ValueError to verl, and a broken one may be anything
        # Adapters merged into the weights have a rank that vLLM never sees: the one thing that verl's checks read here.
        OmegaConf.update(config, "actor_rollout_ref.model.lora.merge", True, force_add=True)
        return [f"Not checked: the LoRA rank, for which verl asks vLLM ({error})."]
    return []


def _without_missing_files(config: DictConfig) -> tuple[DictConfig, dict[str, list[str]]]:
    """Return a copy that names no split of which a local file is missing, and the files that are."""
    present = config.copy()
    missing = {}
    for split in _SPLITS:
        local = [path for path in data_paths(config.data[split]) if "://" not in path]
        gone = [path for path in local if not os.path.exists(os.path.expanduser(path))]  # noqa: PTH110, PTH111
        if gone:
            missing[f"data.{split}"] = gone
            # A part of the rows would be counted, and refused, as if it were all.
            present.data[split] = []
    return present, missing


def _rows(config: DictConfig, present: DictConfig, missing: dict[str, list[str]]) -> tuple[int | None, list[str]]:
    """Return the training rows, and what is to be said of them."""
    notes = [f"Not on this machine, and not checked: {option}={' '.join(gone)}." for option, gone in missing.items()]
    fix = "write them with `verl-pods-cero data <name>`"
    if "quickstart" in config:
        fix = "make them with `python -m verl_pods_cero.quickstart prepare`, as the first run does itself"
    most = int(config.data.get("train_max_samples", -1) or -1)
    rows: Any = training_rows(present)
    if rows is None and most > 0:
        notes.append(f"The training rows are taken to be data.train_max_samples={most:,}.")
        return most, notes
    if rows is None:
        fix += ", or give their number as data.train_max_samples=<rows>"
        notes.append(f"The training rows cannot be counted, and what follows from them is unknown. Fix: {fix}.")
    elif config.data.get("filter_overlong_prompts"):
        notes.append(
            f"The {rows:,} training rows are those of the files; prompts of more than data.max_prompt_length="
            f"{config.data.max_prompt_length} tokens are left out when the run starts (data.filter_overlong_prompts)."
        )
    return rows, notes
