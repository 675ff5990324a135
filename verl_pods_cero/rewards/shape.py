"""The format terms of PODS' shaped reward: how well a response keeps to its tags.

Source: the reward functions published with arXiv 2504.13818 (github.com/YixuanEvenXu/pods, Apache-2.0).
"""

from __future__ import annotations

import re

TAGS = ("<think>", "</think>", "<answer>", "</answer>")

_JOINT = re.compile("</think>[ \n]?<answer>")


def format_term(response: str) -> float:
    """Return 1 for `<think>...</think><answer>...</answer>`, less 0.01 for each character outside it, or 0.

    >>> format_term("<think>x</think> <answer>4</answer>")
    1.0
    >>> round(format_term("<think>x</think><answer>4</answer> Done!"), 2)
    0.94
    >>> format_term("4")
    0.0
    """
    # the published pattern, <think>.*</think>[ \n]?<answer>.*</answer>, in linear time
    start, end = response.find(TAGS[0]), response.rfind(TAGS[3])
    if start < 0 or not _JOINT.search(response, start + len(TAGS[0]), max(end, 0)):
        return 0.0
    outside = start + len(response) - (end + len(TAGS[3]))
    return max(0.0, 1.0 - 0.01 * outside)


def tags_term(response: str) -> float:
    """Return 0.25 for each of the four tags that occurs exactly once.

    >>> tags_term("<think>x</think> 4")
    0.5
    """
    return 0.25 * sum(response.count(tag) == 1 for tag in TAGS)
