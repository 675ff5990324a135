"""Write docs/metrics.md from the table of metrics: `make docs`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from verl_pods_cero.metric_names import ALLOCATION_METRICS, FILTER_METRICS

PAGE = Path(__file__).parent / "metrics.md"

INTRODUCTION = """\
# Metrics

This page is made from `verl_pods_cero/metric_names.py` by `make docs`.

verl's own keys (`critic/score/*`, `critic/rewards/*`, `response_length/*`, `response_length_non_aborted/*`,
`response/aborted_ratio`, `prompt_length/*`, `num_turns/*`, `training/num_turns/*`, `perf/total_num_tokens`,
`perf/throughput`, `timing_per_token_ms/gen`) describe **every generated rollout**, so that a filtered run and a plain
one share a dashboard. `critic/advantages/*`, `critic/returns/*`, `actor/*` and the other timings describe the rows
that the policy was updated on. With `algorithm.use_kl_in_reward=true`, so do `critic/rewards/*`: the penalty of a
dropped rollout is never computed.

What was kept is under `pods/`, what was allocated under `cero/`. A rollout is one session of an agent loop, whichever
number of rows it has.
With `trainer.rollout_data_dir`, verl's dump has every generated rollout, and a `kept` field.
"""


def table(title: str, metrics: Mapping[str, str]) -> str:
    """Return a section with a row for each metric."""
    rows = [f"| `{name}` | {definition} |" for name, definition in metrics.items()]
    return "\n".join([f"\n## {title}\n", "| metric | definition |", "|---|---|", *rows, ""])


def page() -> str:
    """Return the whole page."""
    return INTRODUCTION + table("PODS", FILTER_METRICS) + table("CERO and the other allocators", ALLOCATION_METRICS)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
