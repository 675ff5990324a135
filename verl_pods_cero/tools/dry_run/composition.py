"""What Hydra makes of a training command's arguments, as in the run itself, with no job started and no folder made."""

from __future__ import annotations

import argparse
import copy
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verl_pods_cero.errors import OptionError, nearest

if TYPE_CHECKING:
    from omegaconf import DictConfig

# verl's `@hydra.main`: the module, the folder of its configuration, and the configuration without --config-name.
_MODULE, _FOLDER, _NAME = "verl.trainer.main_ppo", "config", "ppo_trainer"

# Hydra's options that print something of Hydra's and train nothing.
_NO_RUN = ("cfg", "info", "hydra_help", "shell_completion", "experimental_rerun", "package", "resolve")

_BASIC_SWEEPER = "hydra._internal.core_plugins.basic_sweeper.BasicSweeper"


@dataclass(frozen=True)
class Job:
    """One training run.

    Attributes:
        overrides: what a sweep gave to this job and not to all of them.
        config: what verl's `main` would receive, with every interpolation resolved.
    """

    overrides: tuple[str, ...]
    config: DictConfig


def compose_jobs(arguments: Sequence[str]) -> tuple[str, list[Job]]:
    """Compose the runs that `python -m verl.trainer.main_ppo` would start with these arguments.

    Returns:
        The name of the recipe, and its jobs: one, or those of a sweep.

    Raises:
        OptionError: an unknown recipe, or an argument that starts no run.
        HydraException: what Hydra refuses.
    """
    with warnings.catch_warnings():
        # of engines for accelerators that this machine may not have
        warnings.simplefilter("ignore")
        import verl  # noqa: F401 - loads the plugin, which puts the recipes on Hydra's search path

    args = _parse(arguments)
    name = args.config_name or _NAME
    if args.config_dir and not Path(args.config_dir).is_dir():
        raise OptionError("--config-dir", "must be a folder that exists", args.config_dir, "name the recipe's folder")
    with _hydra(args) as hydra:
        if not any(part.startswith("hydra.searchpath") for part in args.overrides):
            _check_name(hydra, name)
        from hydra.types import RunMode

        mode = hydra.get_mode(config_name=name, overrides=args.overrides)
        if args.multirun or mode == RunMode.MULTIRUN:
            return name, _sweep(hydra, name, args.overrides)
        config = hydra.compose_config(config_name=name, overrides=args.overrides, run_mode=RunMode.RUN)
        return name, [Job((), _resolved(config, config.hydra.run.dir))]


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    from hydra._internal.utils import get_args_parser

    parser = get_args_parser()
    parser.prog = "verl-pods-cero dry-run"
    args: argparse.Namespace = parser.parse_args(list(arguments))
    for name in _NO_RUN:
        if value := getattr(args, name):
            flag = "--" + name.replace("_", "-")
            raise OptionError(flag, "starts no training run", value, f"take it out, or use python -m {_MODULE} {flag}")
    return args


def _check_name(hydra: Any, name: str) -> None:
    """Refuse a recipe that is nowhere, in fewer words than Hydra, which prints its whole search path."""
    known = [known for known in hydra.config_loader.get_group_options("") if not known.startswith("_")]
    if "/" not in name and name.removesuffix(".yaml") not in known:
        raise OptionError("--config-name", "names no recipe", name, nearest(name, known))


@contextmanager
def _hydra(args: argparse.Namespace) -> Iterator[Any]:
    """Set Hydra up as `hydra.main` does for verl's `main`, and leave its global state as it was.

    `hydra.compose` would do but for --config-dir, which only this way in takes.
    """
    from hydra import version
    from hydra._internal.hydra import Hydra
    from hydra._internal.utils import create_automatic_config_search_path
    from hydra.core.config_search_path import SearchPathQuery
    from hydra.core.global_hydra import GlobalHydra
    from hydra.core.hydra_config import HydraConfig

    version.setbase(None)
    search_path = create_automatic_config_search_path(None, _MODULE, args.config_path or _FOLDER)
    if args.config_dir is not None:
        anchor, folder = SearchPathQuery(provider="schema"), Path(args.config_dir).absolute()
        search_path.prepend(provider="command-line", path=f"file://{folder}", anchor=anchor)
    before = HydraConfig.instance().cfg
    hydra = Hydra.create_main_hydra2(task_name=_MODULE.rpartition(".")[2], config_search_path=search_path)
    try:
        yield hydra
    finally:
        GlobalHydra.instance().clear()
        HydraConfig.instance().cfg = before


def _sweep(hydra: Any, name: str, overrides: Sequence[str]) -> list[Job]:
    """Compose the jobs of a multirun, as Hydra's basic sweeper and launcher would."""
    from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.types import RunMode
    from omegaconf import OmegaConf, open_dict

    master = hydra.compose_config(config_name=name, overrides=list(overrides), run_mode=RunMode.MULTIRUN)
    sweeper = master.hydra.sweeper
    if sweeper._target_ != _BASIC_SWEEPER:
        rule = "chooses its jobs while it runs, and only Hydra's basic sweeper is known before"
        raise OptionError("hydra/sweeper", rule, sweeper._target_, "give the options of one job, without --multirun")
    given = [f"{key}={value}" for key, value in (sweeper.get("params") or {}).items()]
    # What an override points at is known in its job alone.
    own: Any = OmegaConf.to_container(master.hydra.overrides.task, resolve=False)
    given += own
    parsed = OverridesParser.create(config_loader=hydra.config_loader).parse_overrides(given)
    [choices] = BasicSweeper.split_arguments(parsed, max_batch_size=None)
    jobs = []
    for number, options in enumerate(choices):
        config = hydra.config_loader.load_sweep_config(master, list(options))
        with open_dict(config):
            config.hydra.job.num, config.hydra.job.id = number, str(number)
        swept = tuple(option for option in options if any(option not in other for other in choices))
        jobs.append(Job(swept, _resolved(config, f"{config.hydra.sweep.dir}/{config.hydra.sweep.subdir}")))
    return jobs


def _resolved(config: DictConfig, output_folder: str) -> DictConfig:
    """Take Hydra's node out of a configuration, once all that points into it has its value."""
    from hydra.core.hydra_config import HydraConfig
    from omegaconf import OmegaConf, open_dict, read_write

    with read_write(config.hydra.runtime), open_dict(config.hydra.runtime):
        config.hydra.runtime.output_dir = os.path.abspath(output_folder)  # noqa: PTH100 - as Hydra does
    HydraConfig.instance().set_config(config)
    task = copy.deepcopy(config)
    with read_write(task), open_dict(task):
        del task["hydra"]
    OmegaConf.resolve(task)
    return task
