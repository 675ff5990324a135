"""GSM8K: the number after `####`, found by verl's own scorer."""

from __future__ import annotations

from verl_pods_cero.rewards.answers import NO_ANSWER, answer_block, canonical_number, final_part


def score_number(response: str, ground_truth: str, method: str) -> tuple[bool, str]:
    """Compare the final number with the ground truth: correct when both spell the same decimal.

    verl's `gsm8k.extract_solution` finds the number: the last one after `####` (method "strict"), or the last
    one of the text ("flexible"). In an `<answer>` block, where the tags do the work of `####`, it is always
    the last one. "27.0", "27." and "27" are one answer, which verl's own comparison of strings denies.

    Returns:
        Whether it is right, and the number (`[INVALID]` where there is none).
    """
    from verl.utils.reward_score.gsm8k import extract_solution

    final = final_part(response)
    block = answer_block(final)
    text, method = (final, method) if block is None else (block, "flexible")
    number = canonical_number(extract_solution(text, method) or "")
    return number is not None and number == canonical_number(ground_truth), number or NO_ANSWER
