"""The checks of a run that need no accelerator: verl's and ours, and what of the data can be seen from here."""

from __future__ import annotations

import io
import os
import warnings
from contextlib import redirect_stdout
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from verl_pods_cero.errors import OptionError
from verl_pods_cero.options.data_files import data_paths, training_rows
from verl_pods_cero.options.schema import PodsCeroOptions, Run, parse
from verl_pods_cero.options.trainer import check_sizes
from verl_pods_cero.options.update_shape import sequence_parallel_size

if TYPE_CHECKING:
    from omegaconf import DictConfig

_SPLITS = ("train_files", "val_files")

# verl's default for the path of every model: a place in the folder of its authors.
_NO_MODEL = "~/models/deepseek-llm-7b-chat"


@dataclass(frozen=True)
class Checked(Run):
    """A configuration that passed; in a stock verl run our options are all at their defaults, and so off.

    Attributes:
        data_rows: of the training files, or None where they cannot be counted.
        notes: what could not be checked or known here, and what would help.
    """

    data_rows: int | None = None
    notes: tuple[str, ...] = ()


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
        check_sizes(Run(config, PodsCeroOptions()))
        _check_what_fails_later(config, use_critic=critic)
        validate_config(config=present, use_reference_policy=reference, use_critic=critic)
    if (config.algorithm.get("filter_groups") or {}).get("enable"):
        notes.append("Rollouts have no bound: algorithm.filter_groups.enable=true generates until a step is full.")
    rows, unknown = _rows(config, present, missing)
    return Checked(config, parse(config) or PodsCeroOptions(), critic, reference, rows, (*notes, *unknown))


def _check_what_fails_later(config: DictConfig, *, use_critic: bool) -> None:
    """Refuse what verl finds out when Ray and the engines are up."""
    data, actor, rollout = config.data, config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout
    longest = int(data.max_prompt_length) + int(data.max_response_length)
    at_least = f"must be at least the longest sequence, max_prompt_length + max_response_length = {longest} tokens"
    groups = config.algorithm.get("filter_groups") or {}
    if groups.get("enable") and not groups.get("metric"):
        option, fix = "algorithm.filter_groups.metric", "use reward or acc"
        raise OptionError(option, "must be given with algorithm.filter_groups.enable=true", groups.get("metric"), fix)
    sharing = sequence_parallel_size(actor)
    limits = {("rollout", "max_model_len"): 1}
    if actor.use_dynamic_bsz:
        limits["actor", "ppo_max_token_len_per_gpu"] = sharing
    if rollout.log_prob_use_dynamic_bsz:
        limits["rollout", "log_prob_max_token_len_per_gpu"] = sharing
    for (part, name), gpus in limits.items():
        limit = config.actor_rollout_ref[part].get(name)
        if limit is not None and limit * gpus < longest:
            fix = f"set it to {-(-longest // gpus)} or more, or shorten the sequences"
            raise OptionError(f"actor_rollout_ref.{part}.{name}", at_least, limit, fix)
    if _lora_rank(config) and rollout.get("layered_summon") and "dummy" in rollout.load_format:
        rule = "must load the model's weights with LoRA and layered_summon=true, which sends adapters alone"
        fix = "set it to safetensors, or actor_rollout_ref.rollout.layered_summon=false"
        raise OptionError("actor_rollout_ref.rollout.load_format", rule, rollout.load_format, fix)
    if use_critic and config.critic.model.path in (None, "", _NO_MODEL):
        fix = "name one, or use an estimator without a critic, such as grpo"
        raise OptionError(
            "critic.model.path", "must name a model where a critic is trained", config.critic.model.path, fix
        )


def _lora_rank(config: DictConfig) -> int:
    model = config.actor_rollout_ref.model
    return int((model.get("lora") or {}).get("rank") or model.get("lora_rank") or 0)


def _skip_rank_check(config: DictConfig) -> list[str]:
    """Turn off verl's check of the LoRA rank where vLLM, which it asks, cannot be imported, and say so."""
    from omegaconf import OmegaConf

    if _lora_rank(config) <= 0 or config.actor_rollout_ref.rollout.name != "vllm":
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
