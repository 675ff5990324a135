"""The documentation says what the code does."""

from __future__ import annotations

import re

from verl_pods_cero.metric_names import ALLOCATION_METRICS, FILTER_METRICS


def test_the_table_of_metrics_is_the_one_in_the_code(repository):
    text = (repository / "docs" / "metrics.md").read_text()
    table = dict(re.findall(r"^\| `([^`]+)` \| (.+) \|$", text, flags=re.MULTILINE))
    assert table == {**FILTER_METRICS, **ALLOCATION_METRICS}
