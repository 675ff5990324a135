"""MATH, DAPO, AIME and AMC: the final expression, compared by math-verify."""

from __future__ import annotations

import re

from verl_pods_cero.rewards.answers import (
    NO_ANSWER,
    answer_block,
    canonical_number,
    final_part,
    marked_answer,
)

# Characters. The longest reference of MATH has under 200; a whole essay in an <answer> block costs seconds.
_LONGEST = 1000

# MATH's normalisation takes `\text{ ...` for a unit, and drops it: of "5\text{ or }6" it would leave 5.
_SEVERAL = re.compile(r"\\text\s*\{\s*(?:or|and)\b")


def score_expression(response: str, ground_truth: str, timeout: float, processes: int) -> tuple[bool, str]:
    r"""Compare the final expression with the ground truth: correct when they are mathematically equal.

    The expression is the last `\boxed{}` or "Answer:" after the reasoning, or all of the last `<answer>`
    block where nothing is marked in it. A response that marks no answer is wrong: math-verify's own search
    would take any last formula, also of a response that was cut off.

    Two plain numbers, and two texts that MATH's own normalisation makes the same (verl's `math_reward`; it knows
    the percent signs, dollars and units that MATH leaves out of its answers), are compared on the spot. All else
    goes to math-verify in another process, because its time limits are signals, which only a main thread can
    take.

    Returns:
        Whether it is right, and the expression (`[INVALID]` where there is none).
    """
    candidate = final_expression(response)
    if candidate is None:
        return False, NO_ANSWER
    if candidate == ground_truth.strip():
        return True, candidate
    numbers = canonical_number(candidate), canonical_number(ground_truth)
    if None not in numbers:
        return numbers[0] == numbers[1], candidate

    if len(candidate) > _LONGEST:
        return False, candidate
    from verl.utils.reward_score.math_reward import is_equiv

    from verl_pods_cero.rewards.math_process import equivalent

    several = _SEVERAL.search(candidate) or _SEVERAL.search(ground_truth)
    same = not several and is_equiv(candidate, ground_truth)
    return same or equivalent(ground_truth, candidate, timeout=timeout, processes=processes), candidate


def final_expression(response: str) -> str | None:
    r"""Return the expression that a response gives as its final answer, or None.

    >>> final_expression(r"<think>\boxed{1}?</think>So $x = 2$. Answer: \boxed{\frac{4}{2}}")
    '\\frac{4}{2}'
    >>> final_expression("<answer> 3/4 </answer>")
    '3/4'
    """
    final = final_part(response)
    block = answer_block(final)
    if block is None:
        return marked_answer(final) or None
    return marked_answer(block) or block.strip("$ \n") or None
