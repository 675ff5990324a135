"""Published data files, which the repository does not hold: tests on them are skipped where they are absent."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = Path(os.environ.get("VERL_PODS_CERO_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))

ABSENT = f"the published files are not in {FOLDER} (VERL_PODS_CERO_DATA names their folder)"
