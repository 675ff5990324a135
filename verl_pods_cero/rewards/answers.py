"""The final answer of a response, and the number that an answer spells.

Data preparation and scoring read answers through the same functions, so that a ground truth and a
response that say the same thing compare equal.
"""

from __future__ import annotations

import re
from decimal import Decimal

# What `pred` says where a response has no final answer (verl's own scorers use the same word).
NO_ANSWER = "[INVALID]"

_REASONING_START = re.compile("<(?:think|reasoning)>")
_REASONING_END = re.compile("</(?:think|reasoning)>")
# Capital, or first on its line: "let us check our answer: ..." in the middle of a sentence marks nothing.
_ANSWER_LINE = re.compile(
    r"(?:^[^\w\n]*answer|\bAnswer|\bANSWER|\b[Ff]inal answer)[*_]*\s*:[*_\s]*([^\n]+)", re.MULTILINE
)
_BOX_TOKENS = re.compile(r"\\(?:boxed|fbox)\s*(?:\{|(?P<word>[^\s{}$\\]+))|(?P<escaped>\\[\\{}])|[{}]")
# What stands between two boxes that are alternatives: `\boxed{3} or $x = \boxed{4}$`.
_BETWEEN_BOXES = re.compile(r"(?=.*\b(?i:or)\b)(?:[\s$*_},;]|\\text\s*\{|\b(?i:or)\b|\b[a-zA-Z]\s*=)*", re.DOTALL)
_LONGEST_BETWEEN = 40

# What separates thousands: a comma in its LaTeX spellings, a thin space; in a text that is a number and nothing
# else, also a comma or a plain space.
MARK = r"(?:,\\!\s?|\{,\}|\\[,!:;]|[\u00a0\u2009\u202f])"
_NUMBER = re.compile(rf"[+-]?(?:(?:\d{{1,3}}(?:(?:{MARK}|[, ])\d{{3}})+|\d+)(?:\.\d*)?|\.\d+)")
_NO_PART_OF_A_NUMBER = re.compile(r"[^\d.+-]")


def final_part(response: str) -> str:
    """Return what follows the reasoning: the text after the last `</think>` or `</reasoning>`.

    A response that opens its reasoning and never closes it was cut off: it has no final part. One without
    these tags is all final part.

    >>> final_part("<think>perhaps 7</think>The answer is 8")
    'The answer is 8'
    >>> final_part("<think>perhaps 7")
    ''
    """
    closings = list(_REASONING_END.finditer(response))
    if closings:
        return response[closings[-1].end() :]
    return "" if _REASONING_START.search(response) else response


def answer_block(text: str) -> str | None:
    r"""Return the content of the last complete `<answer>` block, or None.

    >>> answer_block("<answer>\n18\n</answer>")
    '18'
    """
    end = text.rfind("</answer>")
    start = text.rfind("<answer>", 0, max(end, 0))
    return text[start + len("<answer>") : end].strip() if start >= 0 else None


def boxed(text: str) -> str | None:
    r"""Return the content of the last `\boxed{...}` (or `\fbox{...}`, or `\boxed 5`), braces balanced.

    >>> boxed(r"so \boxed{1} or rather \boxed{\frac{1}{2}}.")
    '\\frac{1}{2}'
    >>> boxed(r"\boxed{1") is None
    True
    """
    boxes = _boxes(text)
    return boxes[-1][2] if boxes else None


def marked_answer(text: str) -> str | None:
    r"""Return the last answer that the text marks: `\boxed{...}`, or what follows "Answer:" on its line.

    Boxes with nothing but "or" between them are one answer: a list.

    >>> marked_answer(r"At first \boxed{3}. No. Answer: $4$.")
    '4'
    >>> marked_answer(r"$\boxed{3}$ or $\boxed{4}$")
    '3, 4'
    >>> marked_answer("It is 4") is None
    True
    """
    lines = list(_ANSWER_LINE.finditer(text))
    boxes = _boxes(text)
    if boxes and (not lines or boxes[-1][0] > lines[-1].start()):
        return ", ".join(dict.fromkeys(_alternatives(text, boxes)))
    return _bare(lines[-1].group(1)) if lines else None


def canonical_number(text: str) -> str | None:
    r"""Return the shortest decimal that equals the text, or None where the text is no plain number.

    Thousands separators go (they stand before groups of three digits), and so do leading zeros, trailing zeros
    and a trailing point.

    >>> [canonical_number(t) for t in ("27.0", "1,450,000", "073", "-0.50", "18.", "1,2", "3/4")]
    ['27', '1450000', '73', '-0.5', '18', None, None]
    >>> [canonical_number(t) for t in (r"10\,000", "10{,}000", "10 000", "\u22125")]
    ['10000', '10000', '10000', '-5']
    """
    text = text.strip().replace("\u2212", "-")
    if not _NUMBER.fullmatch(text):
        return None
    plain = format(Decimal(_NO_PART_OF_A_NUMBER.sub("", text)), "f")
    if "." in plain:
        plain = plain.rstrip("0").rstrip(".")
    return "0" if plain in ("-0", "") else plain


def _boxes(text: str) -> list[tuple[int, int, str]]:
    """Return the boxes that are closed, by their start: start, end and content. One pass: responses can be hostile."""
    boxes: list[tuple[int, int, str]] = []
    open_braces: list[tuple[int, int] | None] = []  # None for a brace that belongs to no box
    for token in _BOX_TOKENS.finditer(text):
        if token["word"]:
            boxes.append((token.start(), token.end(), token["word"]))
        elif token.group().endswith("{") and not token["escaped"]:
            is_box = token.group() != "{"
            open_braces.append((token.start(), token.end()) if is_box else None)
        elif token.group() == "}" and open_braces and (opened := open_braces.pop()):
            boxes.append((opened[0], token.end(), text[opened[1] : token.start()].strip()))
    return sorted(boxes)


def _alternatives(text: str, boxes: list[tuple[int, int, str]]) -> list[str]:
    """Return the contents of the last box and of those that it is an alternative to, in their order."""
    first = len(boxes) - 1
    while first:
        start, end = boxes[first - 1][1], boxes[first][0]
        if end - start > _LONGEST_BETWEEN or not _BETWEEN_BOXES.fullmatch(text, start, end):
            break
        first -= 1
    return [content for _, _, content in boxes[first:]]


def _bare(answer: str) -> str:
    """Take away what surrounds an answer on its line: emphasis, a full stop, the dollars of mathematics."""
    answer = answer.strip().strip("*_").strip()
    if answer.endswith("."):
        answer = answer[:-1].rstrip("*_")
    if len(answer) > 1 and answer.startswith("$") and answer.endswith("$") and "$" not in answer[1:-1]:
        answer = answer[1:-1]
    return answer.strip()
