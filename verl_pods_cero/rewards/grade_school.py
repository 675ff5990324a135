"""GSM8K: the number after `####`, or the last number."""

from __future__ import annotations

from verl_pods_cero.rewards.answers import NO_ANSWER, answer_block, canonical_number, final_part
from verl_pods_cero.rewards.numerals import last_number, number_after_hashes


def score_number(response: str, ground_truth: str, method: str) -> tuple[bool, str]:
    """Compare the final number with the ground truth: correct when both spell the same decimal.

    The number is the one after the last `####` (method "strict"), or the last one of the text ("flexible"). In an
    `<answer>` block, where the tags do the work of `####`, it is always the last one. "27.0", "27." and "27" are
    one answer.

    Returns:
        Whether it is right, and the number (`[INVALID]` where there is none).

    >>> score_number("She sells 9 eggs. #### $18.00", "18", "strict")
    (True, '18')
    """
    final = final_part(response)
    block = answer_block(final)
    if block is not None:
        number = last_number(block, alone=True)
    else:
        number = last_number(final) if method == "flexible" else number_after_hashes(final)
    return number is not None and number == canonical_number(ground_truth), number or NO_ANSWER
