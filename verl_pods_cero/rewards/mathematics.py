"""MATH, DAPO, AIME and AMC: the final expression, in its normal form, compared by its value."""

from __future__ import annotations

import re

from verl_pods_cero.rewards.answers import NO_ANSWER, answer_block, canonical_number, final_part, marked_answer
from verl_pods_cero.rewards.normal_form import Kind, Reading, read
from verl_pods_cero.rewards.tolerance import close

# Characters. The longest reference of MATH has under 200; a whole essay in an <answer> block costs seconds.
_LONGEST = 1000

# How references (DeepScaleR's) give several forms of one answer; a response's own "OR" makes a list.
_ALTERNATIVES = re.compile(r"\s*\\text\s*\{\s*OR\s*\}\s*")


def score_expression(response: str, ground_truth: str, timeout: float, processes: int) -> tuple[bool, str]:
    r"""Compare the final expression with the ground truth: correct when they are mathematically equal.

    The expression is the last `\boxed{}` or "Answer:" after the reasoning, or all of the last `<answer>`
    block where nothing is marked in it. A response that marks no answer is wrong.

    Both sides are read once, each by itself (`normal_form.read`). Numbers, words, numerals with a base and equal
    texts are compared on the spot. All else goes to math-verify in another process, because its time limits are
    signals, which only a main thread can take.

    Returns:
        Whether it is right, and the expression (`[INVALID]` where there is none).
    """
    candidate = final_expression(response)
    if candidate is None:
        return False, NO_ANSWER
    truth = ground_truth.strip()
    if candidate == truth:
        return True, candidate
    numbers = canonical_number(candidate), canonical_number(truth)
    if None not in numbers:
        return numbers[0] == numbers[1], candidate
    if max(len(candidate), len(truth)) > _LONGEST:
        return False, candidate
    right = (_equal(form, candidate, timeout, processes) for form in _ALTERNATIVES.split(truth))
    return any(right), candidate


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


def _equal(truth: str, candidate: str, timeout: float, processes: int) -> bool:
    from verl_pods_cero.rewards.math_process import equivalent

    expected, given = read(truth), read(candidate)
    at_once = _equal_at_once(expected, given)
    if at_once is not None:
        return at_once
    return equivalent(expected.form, given.form, timeout=timeout, processes=processes)


def _equal_at_once(expected: Reading, given: Reading) -> bool | None:
    """Compare two answers where that takes no algebra; None where it does."""
    if expected.value is not None and given.value is not None:
        return close(expected.value, given.value, rounded=expected.decimal != given.decimal)
    solid = [reading.form.replace(" ", "") for reading in (expected, given)]
    if solid[0] == solid[1]:
        return True
    kinds = {expected.kind, given.kind}
    if Kind.WORDS in kinds:
        return solid[0].casefold() == solid[1].casefold()
    # an order is no part of a list, and an equation is no value
    unlike = kinds == {Kind.TUPLE, Kind.LIST} or expected.equation != given.equation
    return False if unlike or not kinds.isdisjoint({Kind.BASED, Kind.LITERAL}) else None
