"""GSM8K: the number after `####`, found by verl's own scorer, or the last number."""

from __future__ import annotations

from verl_pods_cero.rewards.answers import NO_ANSWER, answer_block, canonical_number, final_part, last_number


def score_number(response: str, ground_truth: str, method: str) -> tuple[bool, str]:
    """Compare the final number with the ground truth: correct when both spell the same decimal.

    The number is the one after the last `####`, as verl's `gsm8k.extract_solution` finds it (method "strict"), or
    the last one of the text ("flexible"). In an `<answer>` block, where the tags do the work of `####`, it is
    always the last one. "27.0", "27." and "27" are one answer, which verl's own comparison of strings denies.

    Returns:
        Whether it is right, and the number (`[INVALID]` where there is none).
    """
    from verl.utils.reward_score.gsm8k import extract_solution

    final = final_part(response)
    block = answer_block(final)
    if block is not None or method == "flexible":
        number = last_number(final if block is None else block)
    else:
        number = canonical_number((extract_solution(final, method) or "").rstrip("."))
    return number is not None and number == canonical_number(ground_truth), number or NO_ANSWER
