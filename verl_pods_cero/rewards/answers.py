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
_NUMERAL = re.compile(r"-?[0-9.,]+")
_NUMBER = re.compile(r"[+-]?(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d*)?|\.\d+)")


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
    found = _last_boxed(text)
    return found[1] if found else None


def marked_answer(text: str) -> str | None:
    r"""Return the last answer that the text marks: `\boxed{...}`, or what follows "Answer:" on its line.

    >>> marked_answer(r"At first \boxed{3}. No. Answer: $4$.")
    '4'
    >>> marked_answer("It is 4") is None
    True
    """
    lines = list(_ANSWER_LINE.finditer(text))
    found = _last_boxed(text)
    if found and (not lines or found[0] > lines[-1].start()):
        return found[1]
    return _bare(lines[-1].group(1)) if lines else None


def canonical_number(text: str) -> str | None:
    """Return the shortest decimal that equals the text, or None where the text is no plain number.

    Thousands separators go, and so do leading zeros, trailing zeros and a trailing point.

    >>> [canonical_number(t) for t in ("27.0", "1,450,000", "073", "-0.50", "18.", "1,2", "3/4")]
    ['27', '1450000', '73', '-0.5', '18', None, None]
    """
    text = text.strip()
    if not _NUMBER.fullmatch(text):
        return None
    plain = format(Decimal(text.replace(",", "")), "f")
    if "." in plain:
        plain = plain.rstrip("0").rstrip(".")
    return "0" if plain in ("-0", "") else plain


def last_number(text: str) -> str | None:
    """Return the last number of a text as `canonical_number` does, or None where the last numeral is none.

    A full stop or a comma that follows it is punctuation.

    >>> [last_number(t) for t in ("so $18.00.", "18 eggs, sold daily", "it is 1,2", "none")]
    ['18', '18', None, None]
    """
    numerals = [token for token in _NUMERAL.findall(text) if any(map(str.isdigit, token))]
    return canonical_number(numerals[-1].rstrip(".,")) if numerals else None


def _last_boxed(text: str) -> tuple[int, str] | None:
    """Return the last box that is closed: where it starts, and its content. One pass: responses can be hostile."""
    last: tuple[int, str] | None = None
    open_braces: list[tuple[int, int] | None] = []  # None for a brace that belongs to no box
    for token in _BOX_TOKENS.finditer(text):
        box: tuple[int, str] | None = None
        if token["word"]:
            box = token.start(), token["word"]
        elif token.group().endswith("{") and not token["escaped"]:
            is_box = token.group() != "{"
            open_braces.append((token.start(), token.end()) if is_box else None)
        elif token.group() == "}" and open_braces and (opened := open_braces.pop()):
            box = opened[0], text[opened[1] : token.start()].strip()
        if box and (last is None or box[0] > last[0]):
            last = box
    return last


def _bare(answer: str) -> str:
    """Take away what surrounds an answer on its line: emphasis, a full stop, the dollars of mathematics."""
    answer = answer.strip().strip("*_").strip()
    if answer.endswith("."):
        answer = answer[:-1].rstrip("*_")
    if len(answer) > 1 and answer.startswith("$") and answer.endswith("$") and "$" not in answer[1:-1]:
        answer = answer[1:-1]
    return answer.strip()
