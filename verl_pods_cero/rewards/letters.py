"""Multiple choice: the letter that a response ends on."""

from __future__ import annotations

import re

from verl_pods_cero.rewards.answers import NO_ANSWER, answer_block, final_part, marked_answer

# One capital letter and nothing else but emphasis, brackets, a closing point, LaTeX text commands, "option".
_LETTER = (
    r"[\s*_`\"'$(\[{<]*(?:(?i:the\s+)?\b(?i:option|choice|letter)\b[\s*_`\"':$(\[{<]*)?"
    r"(?:\\(?:text\w*|math\w\w|boxed)\{[\s(\[]*)*([A-Z])[\s*_`\"'$)\]}>.:]*"
)
_ONE_LETTER = re.compile(_LETTER)
_LONE_LETTER = re.compile(r"\b[A-Z]\b")
_SENTENCE = re.compile(rf"(?P<before>.*)\b(?i:answer|option|choice)[*_]*\s+is[*_]*(?:[:\s]|(?=[(\[])){_LETTER}")


def score_letter(response: str, ground_truth: str) -> tuple[bool, str]:
    r"""Compare the final letter with the right one: correct when they are the same capital letter.

    The letter is read after the reasoning, from the last `<answer>` block where there is one; otherwise from
    the last line, where that is the letter alone or a sentence that ends in "answer is C"; otherwise from the
    last `\boxed{}` or "Answer:". Letters anywhere else are not looked at, and an answer that says more than
    its letter ("A or B", "C: 12.5") is none.

    Returns:
        Whether it is right, and the letter (`[INVALID]` where there is none).

    >>> score_letter("A is tempting, B is wrong.\nAnswer: (C)", "C")
    (True, 'C')
    >>> score_letter("A is tempting, so is C", "C")
    (False, '[INVALID]')
    """
    letter = final_letter(response)
    return letter == ground_truth.strip(), letter or NO_ANSWER


def final_letter(response: str) -> str | None:
    r"""Return the letter that a response gives as its final answer, or None.

    >>> final_letter("<think>B?</think>\n<answer>\nD\n</answer>")
    'D'
    """
    final = final_part(response)
    block = answer_block(final)
    if block is not None:
        return _only_letter(block) or _only_letter(marked_answer(block))
    last_line = final.rstrip().rpartition("\n")[2]
    sentence = _SENTENCE.fullmatch(last_line)
    if sentence:
        # "B is right, or the answer is C" names two
        clause = re.split("[.!?]", sentence["before"])[-1]
        return None if _LONE_LETTER.search(re.split(r"\b(?i:or)\b", clause)[0]) else sentence.group(2)
    return _only_letter(last_line) or _only_letter(marked_answer(final))


def _only_letter(text: str | None) -> str | None:
    match = _ONE_LETTER.fullmatch(text) if text else None
    return match.group(1) if match else None
