"""The file of `pods_cero.allocator.warm_start`: what is known of the prompts before the run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from verl_pods_cero.errors import OptionError, verbatim

if TYPE_CHECKING:
    from verl_pods_cero.core.arrays import Floats, Ints

OPTION = "pods_cero.allocator.warm_start"
COLUMNS = ("row", "successes", "failures")
_WRITE = "write it with pods_cero.allocator.dump_prompts=true in an earlier run, or yourself"


def read_outcomes(path: str, num_prompts: int | None = None) -> tuple[Ints, Floats, Floats]:
    """Read rows of the data set with the successes and failures that they had, in rollouts, (k,) each.

    Args:
        path: of a parquet file with the columns row, successes and failures; others are not read.
        num_prompts: M, or None where it is not known yet.

    Raises:
        OptionError: the file is none, lacks a column, or names a row twice, out of range, or with counts that are none.
    """
    import pyarrow.parquet

    if not Path(path).is_file():
        raise OptionError(OPTION, "must name a file that exists", path, _WRITE)
    try:
        table = pyarrow.parquet.read_table(path)
    except (OSError, ValueError) as error:
        raise OptionError(OPTION, f"must name a parquet file ({verbatim(error)})", path, _WRITE) from error
    missing = [name for name in COLUMNS if name not in table.column_names]
    if missing:
        rule = f"must have the columns {', '.join(COLUMNS)}: {', '.join(missing)} missing"
        raise OptionError(OPTION, rule, path, _WRITE)
    rows, wins, losses = (table[name].to_numpy() for name in COLUMNS)
    if not np.issubdtype(rows.dtype, np.integer):
        raise OptionError(OPTION, "must have whole numbers as rows", str(rows.dtype), _WRITE)
    bad = rows[(rows < 0) | (rows >= (np.inf if num_prompts is None else num_prompts))]
    if len(bad):
        rule = "must have rows from 0" + ("" if num_prompts is None else f" to {num_prompts - 1}, those of the data")
        raise OptionError(OPTION, rule, int(bad[0]), "use the file of a run on the same data")
    unique, times = np.unique(rows, return_counts=True)
    if len(unique) < len(rows):
        raise OptionError(OPTION, "must have each row once", int(unique[times > 1][0]), "add up its outcomes")
    for name, counts in (("successes", wins), ("failures", losses)):
        if not np.issubdtype(counts.dtype, np.number) or not bool((np.isfinite(counts) & (counts >= 0)).all()):
            raise OptionError(OPTION, f"must have finite numbers, at least 0, as {name}", path, _WRITE)
    return rows.astype(np.int64), wins.astype(np.float64), losses.astype(np.float64)
