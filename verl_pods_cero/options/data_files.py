"""The files of a run's data, as far as they can be seen before it starts."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from verl_pods_cero.errors import OptionError, verbatim
from verl_pods_cero.options.schema import Run

if TYPE_CHECKING:
    from omegaconf import DictConfig


def data_paths(files: Any) -> list[str]:
    """Return the paths of a data option, which may be one, several or none."""
    if files is None:
        return []
    return [str(files)] if isinstance(files, str) else [str(path) for path in files]


def training_rows(config: DictConfig) -> int | None:
    """Return the rows of the training files, or None where they cannot be counted from here."""
    import pyarrow.parquet as pq

    paths = [os.path.expanduser(path) for path in data_paths(config.data.train_files)]  # noqa: PTH111
    local = all(path.endswith(".parquet") and "://" not in path for path in paths)
    if not paths or not local or (config.data.get("custom_cls") or {}).get("path"):
        return None
    rows = sum(pq.read_metadata(path).num_rows for path in paths)
    most = int(config.data.get("train_max_samples", -1) or -1)
    return int(min(rows, most) if most > 0 else rows)


def check_data_files(run: Run) -> None:
    """Refuse local files that are missing, and parquet files without the columns that training reads.

    Raises:
        OptionError: the first file that is wrong, with the fix.
    """
    data = run.config.data
    own_dataset = bool((data.get("custom_cls") or {}).get("path"))
    needed = (data.prompt_key, "data_source", "reward_model")
    for split in ("train_files", "val_files"):
        for path in data_paths(data[split]):
            if "://" in path:  # remote: verl copies it itself
                continue
            option = f"data.{split}"
            local = os.path.expanduser(path)  # noqa: PTH111 - the value may be a pattern of verl's own
            if not os.path.exists(local):  # noqa: PTH110
                raise OptionError(
                    option, "must name a file that exists", path, "write it with `verl-pods-cero data <name>`"
                )
            if local.endswith(".parquet") and not own_dataset:
                _check_columns(option, local, needed)


def _check_columns(option: str, path: str, needed: Iterable[str]) -> None:
    import pyarrow.parquet as pq

    try:
        columns = pq.read_schema(path).names
    except (OSError, ValueError) as error:
        raise OptionError(
            option, f"must name parquet files ({verbatim(error)})", path, "write the file again"
        ) from error
    missing = [name for name in needed if name not in columns]
    if missing:
        raise OptionError(
            option,
            f"must have the columns {', '.join(needed)}: {', '.join(missing)} missing, columns are "
            f"{', '.join(columns)}",
            path,
            "write the file with `verl-pods-cero data <name>`, or set data.prompt_key to the prompt's column",
        )


def check_loader_batches(run: Run) -> None:
    """Refuse batches that the training rows do not fill once: verl finds out when its engines are up.

    Raises:
        OptionError: the first size that is too large, with the rows there are.
    """
    allocator = run.options.allocator
    if allocator.enable and allocator.candidates != "loader":
        return  # rows are taken from the whole data set, in no batches
    rows = training_rows(run.config)
    if rows is None:
        return
    for name in ("train_batch_size", "gen_batch_size"):
        size = run.config.data.get(name)
        if size is not None and size > rows:
            rule = f"must be at most the number of rows in data.train_files ({rows})"
            raise OptionError(f"data.{name}", rule, size, f"use {rows} or less")
