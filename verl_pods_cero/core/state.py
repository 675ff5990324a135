"""Allocator state on disk: one file, written whole or not at all, and read back only where it belongs."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from verl_pods_cero.errors import FieldError, verbatim
from verl_pods_cero.files import written_whole

STATE_VERSION = 1

_HEADER = "__header__"
_CHECKSUM = "__checksum__"


class StateError(FieldError):
    """A state file is damaged, or was saved for another run; the message says what differs and what to do."""


@dataclass(frozen=True)
class StateHeader:
    """What a state belongs to.

    allocator: its name. schedule: round or epoch. dataset_fingerprint, dataset_size: of the training rows, in
    order. settings: the other options, as JSON values. version: of the file's layout.
    """

    allocator: str
    schedule: str
    dataset_fingerprint: str
    dataset_size: int
    settings: Mapping[str, Any] = field(default_factory=dict)
    version: int = STATE_VERSION


def fingerprint(rows: Iterable[bytes]) -> str:
    """Fingerprint of a data set: SHA-256 over its rows, each with its length, so that order and borders count.

    >>> fingerprint([b"ab", b"c"]) == fingerprint([b"a", b"bc"])
    False
    """
    digest = hashlib.sha256()
    for row in rows:
        digest.update(len(row).to_bytes(8, "little"))
        digest.update(row)
    return digest.hexdigest()


def save_state(path: str | os.PathLike[str], header: StateHeader, arrays: Mapping[str, np.ndarray]) -> None:
    """Write a state to one `.npz` file without pickle.

    The file is written and synced under another name in the same folder and then renamed, so that `path` holds
    either the former state or the new one, also after a crash.

    Raises:
        StateError: An array holds objects, or has a reserved name.
        OSError: The folder is missing or full; no partial file is left.

    >>> import tempfile
    >>> header = StateHeader("cero", "round", fingerprint([b"row"]), 1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_state(f"{folder}/state.npz", header, {"theta": np.array([0.5])})
    ...     load_state(f"{folder}/state.npz", header)
    {'theta': array([0.5])}
    """
    path = Path(path)
    for name, array in arrays.items():
        if name in (_HEADER, _CHECKSUM, "allow_pickle", "file") or np.asarray(array).dtype.hasobject:
            raise StateError(f"array {name!r} cannot be saved: plain numbers under a name of their own only")
    text = json.dumps(asdict(header), sort_keys=True).encode()
    # Any, because numpy's stub takes a name for its own flag allow_pickle.
    content: dict[str, Any] = {
        **arrays,
        _HEADER: np.frombuffer(text, dtype=np.uint8),
        _CHECKSUM: np.frombuffer(_checksum(text, arrays), dtype=np.uint8),
    }
    with written_whole(path) as temporary, temporary.open("wb") as file:
        np.savez(file, **content)
        file.flush()
        os.fsync(file.fileno())
    _sync_folder(path.parent)


def load_state(
    path: str | os.PathLike[str], expected: StateHeader, growing: Collection[str] = ()
) -> dict[str, np.ndarray]:
    """Read a state back, if it is whole and belongs to this run.

    Args:
        path: of the file.
        expected: what the state must belong to.
        growing: settings of which this run may have more than was saved.

    Raises:
        StateError: There is no file, it is cut short or edited, or it was saved by another version, allocator or
            schedule, with other settings, or for another data set.
    """
    text, found, arrays = _read(Path(path))
    _check_header(verbatim(path), found, expected, growing)
    if arrays.pop(_CHECKSUM, np.zeros(0)).tobytes() != _checksum(text, arrays):
        raise StateError(
            f"{verbatim(path)} was changed after it was saved (its checksum does not match): "
            "go back to an earlier checkpoint"
        )
    return arrays


def read_header(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read what a state belongs to, and none of its arrays.

    Raises:
        StateError: There is no file, or it is another kind of file.
    """
    return _read(Path(path), only=_HEADER)[1]


def _read(path: Path, only: str = "") -> tuple[bytes, dict[str, Any], dict[str, np.ndarray]]:
    """Return the header as it was written and as it reads, and the arrays."""
    place = verbatim(path)
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files if only in ("", name)}
        text = arrays.pop(_HEADER).tobytes()
        return text, dict(json.loads(text)), arrays
    except FileNotFoundError as error:
        raise StateError(
            f"no allocator state at {place}: the checkpoint was saved without one; restore the file, or start a new run"
        ) from error
    except Exception as error:
        # A damaged archive fails in a dozen ways (zip, zlib, struct, JSON, numpy); they all mean the same here.
        raise StateError(
            f"{place} is not a whole allocator state ({verbatim(error)}): it was cut short or is another kind of file;"
            " go back to an earlier checkpoint"
        ) from error


def _check_header(place: str, found: Mapping[str, Any], expected: StateHeader, growing: Collection[str] = ()) -> None:
    advice = {
        "version": "use the release of verl-pods-cero that saved it, or start a new run",
        "allocator": "set {name} back, or start a new run in another folder",
        "dataset_size": "train on the same files, or start a new run in another folder",
        "dataset_fingerprint": "the rows or their order changed: train on the same files, or start a new run",
        "schedule": "set {schedule} back, or start a new run in another folder",
    }
    for name, fix in advice.items():
        saved, now = found.get(name), getattr(expected, name)
        if saved != now:
            known = f"was saved with {name} {verbatim(repr(saved))}, this run has {verbatim(repr(now))}"
            raise StateError(f"{place} {known}: {fix}")
    now_settings = json.loads(json.dumps(dict(expected.settings)))
    saved_settings = found.get("settings")
    if not isinstance(saved_settings, dict):
        raise StateError(f"{place} does not say its settings: it was edited; go back to an earlier checkpoint")
    for name in sorted(saved_settings.keys() | now_settings.keys()):
        saved, now = saved_settings.get(name), now_settings.get(name)
        if saved == now:
            continue
        known = f"was saved with {{{name}}}={verbatim(repr(saved))}, this run has {verbatim(repr(now))}"
        fix = "set it back, or start a new run in another folder"
        if name in growing and type(saved) is type(now) is int:
            if saved < now:
                continue
            fix = f"a run may be made longer, not shorter; set {{steps}} or {{{name}}} back, or start a new run"
        raise StateError(f"{place} {known}: {fix}")


def _checksum(header: bytes, arrays: Mapping[str, np.ndarray]) -> bytes:
    digest = hashlib.sha256(header)
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype.str} {np.shape(arrays[name])}".encode())
        digest.update(array.tobytes())
    return digest.digest()


def _sync_folder(folder: Path) -> None:
    # The rename itself lies in the folder; some file systems cannot sync one, and there nothing can be done.
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
