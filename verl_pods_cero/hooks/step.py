"""One training step, as the trainer's overrides pass it on."""

from __future__ import annotations

from dataclasses import dataclass, field

from verl_pods_cero.hooks.filter import Kept
from verl_pods_cero.hooks.rollouts import Rollouts
from verl_pods_cero.options.update_shape import UpdateShape


class NothingKept(Exception):  # noqa: N818 - leaves verl's step early, and is no error
    """No row is left to update on."""


@dataclass
class Step:
    """What the overrides of one training step tell each other.

    Attributes:
        submitted: prompts in the order in which they were submitted.
        submitted_rollouts: that were asked for, of all of them.
        returned: rollouts that came back.
        balanced: verl came to `_balance_batch`.
        keys: of every row that came back, where there was something to choose.
        rollouts: those with every value; None until they are read, and where not one came back.
        kept: what was chosen of them, None where nothing was to choose from.
        unscored: rollouts that lack a value.
        dropped: keys of the rows that no update reads.
        rows: rows in the update, 0 where it is skipped.
        rows_padded: padding rows beside them.
        shape: of the update.
    """

    submitted: list[str] = field(default_factory=list)
    submitted_rollouts: int = 0
    returned: int = 0
    balanced: bool = False
    keys: list[str] = field(default_factory=list)
    rollouts: Rollouts | None = None
    kept: Kept | None = None
    unscored: int = 0
    dropped: list[str] = field(default_factory=list)
    rows: int = 0
    rows_padded: int = 0
    shape: UpdateShape = field(default_factory=lambda: UpdateShape(1, 0))
