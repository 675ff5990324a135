"""The array types of the package."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
SmallInts: TypeAlias = NDArray[np.int32]
Mask: TypeAlias = NDArray[np.bool_]
