"""The number that a text ends on, or that follows `####`: signs, currencies, separators and markdown around it."""

from __future__ import annotations

import re

from verl_pods_cero.rewards.answers import MARK, canonical_number

_MINUS = "\u2212-"
_CURRENCY = r"\\?[$€£¥₹]"
_DIGITS = rf"(?:(?<!\.)\.)?\d(?:[.,]?\d|{MARK}(?=\d{{3}}(?!\d)))*"
_NUMERAL = re.compile(rf"(?:(?<!\d)[{_MINUS}])?(?:{_CURRENCY}\s?)?(?:(?<!\d)[{_MINUS}])?{_DIGITS}")

# Emphasis, brackets, dollars and boxes; a sign can stand before and after each of them.
_DRESS = rf"(?:[ \t*_`(\[{{}})\]]|{_CURRENCY}|\\(?:boxed|fbox|text\w*|math\w\w|[(\[]))"
_HASHES = re.compile(rf"####(?P<lead>(?:{_DRESS}|[+{_MINUS}])*)(?P<digits>\d{{1,3}}(?: \d{{3}})+(?![\d,])|{_DIGITS})")

# What stands between two numbers that are alternatives, or a list, or the terms of one expression.
_OR = re.compile(rf"(?:{_DRESS}|\s|,)*\b(?i:or)\b(?:{_DRESS}|\s)*")
_LISTED = re.compile(rf"(?:{_DRESS}|\s)*(?:[,;/|&–—{_MINUS}]|\b(?i:or|and|to)\b)(?:{_DRESS}|\s|\b(?i:or|and)\b)*")
_MORE = re.compile(rf"(?:{_DRESS}|[-+/^=×÷–—−,;|&xX]|\\(?:times|cdot|div)|\b(?i:or|and|to)\b)*(?:\\frac|\d)")
_LONGEST_BETWEEN = 40


def last_number(text: str, *, alone: bool = False) -> str | None:
    """Return the last number of a text as `canonical_number` does, or None where the last numeral is none.

    A full stop or a comma that follows it is punctuation. A number that stands beside an alternative ("3 or 4")
    is none; with `alone`, neither is the last of a list.

    >>> [last_number(t) for t in ("so $18.00.", "18 eggs, sold daily", "it is 1,2", "none", "-$5", "3 or 4")]
    ['18', '18', None, None, '-5', None]
    >>> last_number("18, 19"), last_number("18, 19", alone=True)
    ('19', None)
    """
    before = last = None
    for numeral in _NUMERAL.finditer(text):
        before, last = last, numeral
    if last is None:
        return None
    if before is not None and last.start() - before.end() <= _LONGEST_BETWEEN:
        between = text[before.end() : last.start()]
        if (_LISTED if alone else _OR).fullmatch(between):
            return None
    return canonical_number(re.sub(_CURRENCY + r"\s?", "", last.group()))


def number_after_hashes(text: str) -> str | None:
    r"""Return the number after the last `####` that one follows on its line, as `canonical_number` does.

    Currency signs, emphasis, boxes and brackets may stand around it. One that more numbers follow (a list, or the
    terms of a calculation) is none.

    >>> [number_after_hashes(f"so #### {t}") for t in ("$18", "**18**", r"\boxed{18}", "-$5", "1,800.50", "18 eggs")]
    ['18', '18', '18', '-5', '1800.5', '18']
    >>> [number_after_hashes(f"so #### {t}") for t in ("1,8", "18 or 19", "3/4", "x")]
    [None, None, None, None]
    """
    *_, last = None, *_HASHES.finditer(text)
    if last is None or _MORE.match(text, last.end()):
        return None
    sign = "-" if re.search(f"[{_MINUS}]", last["lead"]) else ""
    return canonical_number(sign + last["digits"])
