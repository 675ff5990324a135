"""What every command does alike: how it ends, what it refuses to overwrite, and what it needs installed."""

from __future__ import annotations

import importlib.util
import io
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from verl_pods_cero.errors import OptionError, PluginError

INSTALL = "pip install 'verl-pods-cero[report]'"

BAD_USE, FAILURE, INTERRUPTED = 2, 1, 130


def exit_status(act: Callable[[], int | None]) -> int:
    """Run a command; an error that it may meet is said on stderr in one line, without a traceback.

    Args:
        act: the command; what it returns is its exit status, None being 0.

    Returns:
        0, 2 after an `OptionError`, 1 after a `PluginError` or an `OSError`, 130 after an interrupt. Any other
        exception is a mistake of the program, and passes through with its traceback.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        # what a data set or a run is called may be beyond the terminal's encoding
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        return act() or 0
    except OptionError as error:
        return fail(str(error), BAD_USE)
    except (PluginError, OSError) as error:
        return fail(str(error), FAILURE)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED


def fail(message: str, status: int) -> int:
    """Say an error and return the exit status."""
    print(f"error: {message}", file=sys.stderr)
    return status


def refuse_to_overwrite(
    path: Path, option: str, *, overwrite: bool, flag: str = "--overwrite", rule: str = "must not exist yet"
) -> None:
    """Refuse an output that exists, unless the user asks for its replacement.

    Args:
        path: a file or a folder to write.
        option: the option that names it.
        overwrite: whether `flag` was given, or what exists may go for another reason.
        flag: the option that asks for the replacement.
        rule: the rule that an existing output breaks.

    Raises:
        OptionError: it exists.

    >>> refuse_to_overwrite(Path("/"), "--out", overwrite=False)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    verl_pods_cero.errors.OptionError: --out must not exist yet, got '/'. Fix: add --overwrite to replace it, or ...
    """
    if path.exists() and not overwrite:
        raise OptionError(option, rule, str(path), f"add {flag} to replace it, or name another")


def require(command: str, packages: Iterable[str], fix: str = INSTALL) -> None:
    """Refuse to go on without packages, before work is lost for want of them.

    Raises:
        PluginError: some are not installed; the message names them.
    """
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        are = "is" if len(missing) == 1 else "are"
        raise PluginError(f"{command} needs {' and '.join(missing)}, which {are} not installed. Fix: {fix}")
