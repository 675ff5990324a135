"""What verl imports in every process: the way in, and nothing heavy.

verl loads the entry points of group `verl.plugins` when it is imported, in the driver and in every Ray
actor, and logs their failures at DEBUG only. So this module does as little as it can, and what it
leaves for later hangs on the import of the module that it concerns:

- `hydra.core.plugins`: recipes on Hydra's search path, the option schema in its store (driver only);
- `verl.utils.config`: options are checked where verl checks its own, before Ray starts;
- `verl.trainer.ppo.reward`: a scorer that calls `sys.exit` fails one rollout, in the processes that score;
- `verl.trainer.ppo.v1`: the trainers register with verl, in the one process that trains;
- `verl.workers.rollout...`: weights go through sockets of the run's own, in the processes at their ends.

Where a recipe asked for the CPU (`VERL_PLATFORM=cpu`), verl's CPU platform is added as well.
"""

from __future__ import annotations

import functools
import logging
import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import wrapt

from verl_pods_cero import cpu
from verl_pods_cero.errors import LOGGER, FieldError, PluginError
from verl_pods_cero.supported_verl import check_verl_version

logger = logging.getLogger(LOGGER)


def recipes_folder() -> str:
    """Return the folder of the packaged recipes, also from a source tree that is not installed."""
    from importlib.util import find_spec

    spec = find_spec("verl_pods_cero.recipes")
    if spec is not None and spec.submodule_search_locations:
        return next(iter(spec.submodule_search_locations))
    return os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "recipes")  # noqa: PTH100, PTH118, PTH120 - pathlib is not loaded here


def _extend_hydra(_module: ModuleType) -> None:
    from hydra.core.config_search_path import ConfigSearchPath
    from hydra.core.config_store import ConfigStore
    from hydra.core.plugins import Plugins
    from hydra.plugins.search_path_plugin import SearchPathPlugin

    from verl_pods_cero.options.schema import ROOT, SCHEMA_NAME, schema

    class PodsCeroSearchPath(SearchPathPlugin):
        def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
            search_path.append(provider="verl-pods-cero", path=f"file://{recipes_folder()}")

    Plugins.instance().register(PodsCeroSearchPath)
    node = schema()
    # A multirun starts a job in the process that ran the last one; each job gets its own Ray.
    node.hydra = {"callbacks": {ROOT: {"_target_": "verl_pods_cero.hooks.ray_session.RayPerJob"}}}
    ConfigStore.instance().store(name=SCHEMA_NAME, node=node, package="_global_", provider="verl-pods-cero")


def _wrap_validation(_module: ModuleType) -> None:
    from verl_pods_cero.hooks.patches import OPTION_CHECKS

    OPTION_CHECKS.replace(_with_our_checks)


def _with_our_checks(verls: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(verls)
    def checked(config: Any, use_reference_policy: bool, use_critic: bool) -> None:
        from omegaconf import OmegaConf

        from verl_pods_cero.hooks.weight_sockets import name_run
        from verl_pods_cero.options.checks import validate

        try:
            options = validate(config, use_critic=use_critic, use_reference=use_reference_policy)
        except (FieldError, PluginError) as error:
            raise _in_one_line(error) from error
        if options is not None:
            # Hydra's own resolvers, such as its output folder, answer in this process alone.
            OmegaConf.resolve(config)
            name_run(config)
        verls(config=config, use_reference_policy=use_reference_policy, use_critic=use_critic)

    return checked


def _in_one_line(error: Exception) -> Exception:
    """Return the same error as one of Hydra's compact kind, which Hydra prints without a traceback.

    HYDRA_FULL_ERROR=1 shows all of it.
    """
    from hydra.errors import CompactHydraException

    kind = type(type(error).__name__, (type(error), CompactHydraException), {})
    compact: Exception = kind.__new__(kind, *error.args)
    compact.__dict__.update(error.__dict__)
    return compact


def _register_trainers(_module: ModuleType) -> None:
    from verl_pods_cero.hooks import register

    register()


def _guard_scorers(_module: ModuleType) -> None:
    from verl_pods_cero.hooks.patches import SCORER_LOADER
    from verl_pods_cero.hooks.scorer_exit import with_guard

    SCORER_LOADER.replace(with_guard)


def _separate_runs(module: ModuleType) -> None:
    from verl_pods_cero.hooks.weight_sockets import separate_runs

    separate_runs(module)


def _verl_version() -> str:
    verl = sys.modules.get("verl")
    version = getattr(verl, "__version__", None)
    if version is None:
        from importlib.metadata import version as installed_version

        version = installed_version("verl")
    return str(version)


def _load() -> None:
    check_verl_version(_verl_version())
    wrapt.register_post_import_hook(_extend_hydra, "hydra.core.plugins")
    wrapt.register_post_import_hook(_wrap_validation, "verl.utils.config")
    wrapt.register_post_import_hook(_guard_scorers, "verl.trainer.ppo.reward")
    wrapt.register_post_import_hook(_register_trainers, "verl.trainer.ppo.v1")
    if "VERL_PODS_CERO_RUN" in os.environ:
        wrapt.register_post_import_hook(_separate_runs, "verl.workers.rollout.vllm_rollout.bucketed_weight_transfer")
    cpu.activate()


try:
    _load()
except Exception as error:
    # verl would log this at DEBUG and train on without us.
    logger.error("verl-pods-cero is not active: %s", error)
    raise
