"""What the hooks need of verl, read off the hooks themselves rather than listed."""

from __future__ import annotations

import ast
import inspect
import pkgutil
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType
from typing import Any, TypeVar

from verl_pods_cero.hooks import patches

Method = TypeVar("Method", bound=Callable[..., Any])

# What a run is slower without and no more: server leases (`generation/server_leases`), by what they ask verl for.
OPTIONAL = ("verl.workers.rollout.router.GlobalRequestLoadBalancer.get_all_servers",)

# Packages whose names are not ours to keep.
FOREIGN = ("verl", "transfer_queue", "tensordict", "torchdata")


def overrides(method: Method) -> Method:
    """Mark a method that takes the place of one of verl's, under the same name."""
    method.__overrides__ = True  # type: ignore[attr-defined]
    return method


def overridden(cls: type) -> list[str]:
    """Return the names of the methods that a class marks as overrides, in their order.

    >>> class Mixin:
    ...     @overrides
    ...     def step(self): ...
    ...     def helper(self): ...
    >>> overridden(Mixin)
    ['step']
    """
    return [name for name, method in vars(cls).items() if getattr(method, "__overrides__", False)]


def unmet_overrides(mixin: type, base: type) -> list[str]:
    """Say which overrides have lost what they override, or no longer take its arguments.

    Args:
        mixin: has methods marked by `overrides`.
        base: verl's class.

    >>> class Base:
    ...     def step(self, metrics): ...
    >>> class Mixin:
    ...     @overrides
    ...     def step(self, metrics, timing): ...
    ...     @overrides
    ...     def gone(self): ...
    >>> unmet_overrides(Mixin, Base)
    ['Base.step(metrics)', 'Base.gone']
    """
    unmet = []
    for name in overridden(mixin):
        verls = getattr(base, name, None)
        if verls is None:
            unmet.append(f"{base.__name__}.{name}")
        elif not _takes(inspect.signature(vars(mixin)[name]), given := inspect.signature(verls)):
            unmet.append(f"{base.__name__}.{name}({', '.join([*given.parameters][1:])})")
    return unmet


def _takes(ours: inspect.Signature, verls: inspect.Signature) -> bool:
    """Whether calls that fit verl's method fit ours, by position as by name, and without what verl has defaults for."""
    given = [p for p in verls.parameters.values() if not p.name.startswith("_ray")]
    positional = [p for p in given if p.kind is p.POSITIONAL_OR_KEYWORD]
    keywords = {p.name: p for p in given if p.kind is p.KEYWORD_ONLY}
    try:
        ours.bind(*(p for p in positional if p.default is p.empty), **keywords)
        ours.bind(positional[0], **{p.name: p for p in positional[1:]}, **keywords)
    except TypeError:
        return False
    return True


def unmet_attributes(mixin: type, base: type) -> list[str]:
    """Return what a mixin reads of `self` that neither itself sets nor verl's class ever mentions.

    verl's constructor and its steps set attributes as they go, so that no class has them: a name counts as known where
    the code of one of its methods has it.
    """
    known = {*dir(base), *dir(mixin), *_of_self(mixin, ast.Store)}
    for cls in base.__mro__:
        known.update(name for method in vars(cls).values() for name in _names_of(getattr(method, "__code__", None)))
    return [f"{base.__name__}.{name}" for name in sorted(_of_self(mixin, ast.Load) - known)]


def _names_of(code: CodeType | None) -> Iterator[str]:
    if code is not None:
        yield from code.co_names
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                yield from _names_of(constant)


def _of_self(cls: type, use: type[ast.expr_context]) -> set[str]:
    """Return the attributes of `self` that the source of a class loads or stores."""
    nodes = ast.walk(ast.parse(textwrap.dedent(inspect.getsource(cls))))
    found = (node for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, use))
    return {node.attr for node in found if isinstance(node.value, ast.Name) and node.value.id == "self"}


def names_used(file: Path) -> Iterator[str]:
    """Yield each name of a foreign package that a module imports, or reaches through one that it imports, dotted."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    imported: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported.update((alias.asname or alias.name, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            imported.update((alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names)
    foreign = {name: path for name, path in imported.items() if path.partition(".")[0] in FOREIGN}
    yield from foreign.values()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in foreign:
            yield f"{foreign[node.value.id]}.{node.attr}"


def _is_there(name: str) -> bool:
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        return False
    return True


def missing_names() -> list[str]:
    """Return what the hooks use of verl and TransferQueue and what is installed lacks."""
    used = {name: None for file in sorted(Path(__file__).parent.rglob("*.py")) for name in names_used(file)}
    used |= {f"{patch.module}.{patch.name}": None for patch in patches.CHECKED}
    missing = [name for name in used if not _is_there(name)]
    if missing:
        return missing
    checks = (unmet_overrides, unmet_attributes)
    return [name for pair in contracts() for unmet in checks for name in unmet(*pair)]


def missing_optional_names() -> list[str]:
    """Return what the hooks would use of verl, can do without, and what is installed lacks."""
    return [name for name in OPTIONAL if not _is_there(name)]


def contracts() -> list[tuple[type, type]]:
    """Return our classes that have overrides, each with verl's class that it overrides."""
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer

    from verl_pods_cero.hooks.agent_loop import PodsCeroManager, TaggingWorker
    from verl_pods_cero.hooks.generation.server_leases import LeasingClient
    from verl_pods_cero.hooks.generation.worker import FastWorker
    from verl_pods_cero.hooks.trainer import PodsCeroMixin

    ours: tuple[type, ...] = (TaggingWorker, FastWorker, PodsCeroManager, LeasingClient)
    return [(PodsCeroMixin, PPOTrainer)] + [(cls, _verls_base(cls)) for cls in ours]


def _verls_base(cls: type) -> type:
    return next(base for base in cls.__mro__ if base.__module__.startswith("verl."))
