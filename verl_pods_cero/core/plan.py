"""What CERO decides for a round."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Plan:
    """One round's decision.

    Shapes and units:
        indices: (k,) int64, distinct prompts, largest margin first (or in the order of the candidates given).
        planned: (k,) int64, units N~ that the price admits, or that are due in this round.
        executed: (k,) int64, N, the same clipped to the budget left, 0 <= executed <= planned <= N_max.
    """

    indices: Indices
    planned: Indices
    executed: Indices

    @classmethod
    def empty(cls) -> Plan:
        """A plan for nobody."""
        none = np.zeros(0, dtype=np.int64)
        return cls(none, none, none)

    def joined(self, other: Plan) -> Plan:
        """Both plans as one; they must not share a prompt."""
        return Plan(
            np.concatenate([self.indices, other.indices]),
            np.concatenate([self.planned, other.planned]),
            np.concatenate([self.executed, other.executed]),
        )
