"""Which verl the plugin works with: the names that the hooks need decide, and the version says what was tried."""

from __future__ import annotations

from verl_pods_cero.errors import PluginError

TESTED = ("0.9.0", "0.9.1")
"""Versions on which the unit tests and training runs are made (`make test-all`)."""

_LEAST = "0.9"


def check_verl_version(version: str) -> None:
    """Refuse a verl from before the trainers that the hooks are for; whether a later one will do, its names tell.

    Raises:
        PluginError: the version is below 0.9.

    >>> check_verl_version("0.9.0"); check_verl_version("0.10.0.dev0")
    >>> check_verl_version("0.8.0")
    Traceback (most recent call last):
        ...
    verl_pods_cero.errors.PluginError: verl-pods-cero needs verl 0.9 or later, and verl 0.8.0 is installed. \
Fix: pip install 'verl>=0.9'.
    """
    from packaging.version import Version

    if Version(version).release < Version(_LEAST).release:
        raise PluginError(
            f"verl-pods-cero needs verl {_LEAST} or later, and verl {version} is installed. "
            f"Fix: pip install 'verl>={_LEAST}'."
        )


def lacking(names: list[str]) -> PluginError:
    """Return the error for a verl that lacks names which the hooks need."""
    return PluginError(
        f"the installed verl lacks {', '.join(names)}, which verl-pods-cero needs. "
        f"Fix: pip install one of {', '.join(f'verl=={version}' for version in TESTED)}, or a later verl-pods-cero."
    )
