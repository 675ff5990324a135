"""What the plugin adds to importing verl in a worker: processor seconds, with and without it."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys

import pytest

PAIRS = 5


def cpu_seconds(policy: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "VERL_USE_EXTERNAL_PLUGINS": policy}
    subprocess.run([sys.executable, "-c", "import verl"], env=environment, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.benchmark(group="import")
def test_import_cost(benchmark):
    pairs = [(cpu_seconds("none"), cpu_seconds("auto")) for _ in range(PAIRS)]
    benchmark.pedantic(cpu_seconds, args=("auto",), rounds=1)
    without, with_plugin = (statistics.median(column) for column in zip(*pairs, strict=True))
    benchmark.extra_info.update(without_s=without, with_s=with_plugin, ratio=with_plugin / without)
    print(
        f"\nimport verl: {without:.2f} s without the plugin, {with_plugin:.2f} s with it ({with_plugin / without:.3f}x)"
    )
    assert with_plugin > 0
