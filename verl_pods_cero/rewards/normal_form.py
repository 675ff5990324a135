r"""One reading of a written answer: the form in which answers of mathematics are compared.

Each answer is read alone, without a look at the one that it will be compared with. So no response can be read
as two answers. Layout, units and the name of the unknown count on neither side.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise

from verl_pods_cero.rewards.answers import MARK, canonical_number

_CHARACTERS = {"−": "-", "°": "", "π": r"\pi ", "∞": r"\infty ", "×": r"\times ", "²": "^2", "³": "^3"}
_REWRITTEN = (
    (re.compile("|".join(_CHARACTERS)), lambda match: _CHARACTERS[match.group()]),
    (re.compile(rf"(?<![\d.])\d{{1,3}}(?:{MARK}\d{{3}})+(?!\d)"), lambda match: re.sub(r"\D", "", match.group())),
    (re.compile(r"\{,\}"), ","),
    (re.compile(r"\\(?:left|right|[bB]igg?[lr]?|displaystyle|textstyle)(?![a-zA-Z])\.?"), ""),
    (re.compile(r"\^\s*(?:\\circ(?![a-zA-Z])|\{\s*\\circ\s*\})|\\degree(?![a-zA-Z])"), ""),
    (re.compile(r"\\?%|\\?[$€£¥₹]|\{\}"), ""),
    (re.compile(r"\\q?quad(?![a-zA-Z])"), ";"),
    (re.compile(r"(?:(?<!\\)\\[ ,;:!]|~|\s)+"), " "),
    (re.compile(r"\\[dtc]frac(?![a-zA-Z])"), r"\\frac"),
    (re.compile(r"\\(?:text(?:bf|it|rm|normal|sf|up)?|[mh]box|math(?:rm|bf|it|sf)|operatorname)\s*\{"), r"\\text{"),
    (re.compile(r"\\text\{ *\}"), " "),
    (re.compile(r"\binfinity\b"), r"\\infty "),
    (re.compile(r"\\varnothing(?![a-zA-Z])"), r"\\emptyset"),
    (re.compile(r"(?<![_^\d])(\d+) ?\((?=\d)"), r"\1\\cdot("),  # else read as a mixed number: 4(3) as 7
    (re.compile(r"\\frac *(\{[^{}]*\}|[\da-z]) *(\{[^{}]*\}|[\da-z])"), lambda match: _braced(r"\frac", match)),
    (re.compile(r"\\sqrt *([\da-z])"), lambda match: _braced(r"\sqrt", match)),
)

# A unit: words after a number, with a power of two or three. "Or", "and" and the like are no words of a unit.
_WORD = r"(?!(?:(?i:or|and)|not|nor|either|maybe|to|if|for|when|where|with|pi|e|i)\b)[A-Za-z]+"
_WORDS = rf"\(?{_WORD}(?:[ /.-]+{_WORD})*\.?\)?"
_SHORT = r"(?:[cdkm]m|[km]g|m[lL]|mph|ft|lbs?|min|sec|hrs?|pct)"
_UNIT = re.compile(
    rf" ?(?:\\text\{{ *{_WORDS} *\}}|(?<=[\d}})\]]) ?(?:\{{{_SHORT}\}}|{_SHORT})"
    rf"|(?<=[\d}})\]]) (?:{_WORD} )*(?:{_SHORT}|(?=[A-Za-z]{{4}}){_WORD}))(?: ?\^ ?\{{?[23]\}}?)?$"
)
_STOP = re.compile(r"(?<![.,;:]{2}) *[.,;:]$")  # an ellipsis is no stop
_FORMULA = re.compile(r"\$(?!\s)([^$]*[^\s$])\$(?!\d)")  # "$5 or $6" are dollars
_SYMBOL = re.compile(r"\\text\{([A-Za-z])\}")
_TEXT = re.compile(r"\\text\{([^{}]*)\}")
_WORDING = re.compile(r"[A-Za-z](?:[A-Za-z'’. -]*[A-Za-z])?")
_LEFTOVER = re.compile(r"\\text\{|\b(?i:or|and)\b|(?<![_\d])\d+ \d|\\[lc]?dots|\.\.")

_SEPARATOR = re.compile(r"[,;]|,? ?(?:\\text\{ *,? *(?i:or|and) *\}|\b(?i:or|and)\b) ?")
_EQUALS = re.compile(r"(?<![<>!:])=")
_ROUGHLY = re.compile(r"\\(?:approx|simeq|doteq)(?![a-zA-Z])|≈")
_NAME = re.compile(
    r"(?:\\?[A-Za-z]+|\\text\{[^{}]*\})(?:_\{?\w+\}?)?(?:\^\{-1\})?'*(?:\([\w,]+\))?|\([A-Za-z](?:,[A-Za-z])+\)"
)
_MEMBER = re.compile(r"^[A-Za-z] ?\\in(?![a-zA-Z])")
_LETTERS = re.compile(r"(?<![\\a-zA-Z])[a-zA-Z]")

_BASED = re.compile(
    r"(-?)(\d{1,3}(?:,\d{3})+|(?=[A-Z.]*\d)[\dA-Z.]+) ?"
    r"(?:_ ?\{? ?(\d+) ?\}?|_?[ {(]*(?:\\text\{)?[ (]*base[ }{]*(\d+)[ )}]*)"
)
_FRACTION = re.compile(r"(-?)(?:(\d+) ?)??(?:\\frac\{(-?\d+)\}\{(-?\d+)\}|(-?\d+) ?/ ?(\d+))")


class Kind(Enum):
    """What an answer is read as; it decides with which others it is compared."""

    NUMBER = "a rational number"
    WORDS = "words"
    BASED = "a numeral with its base"
    LITERAL = "words among mathematics: compared as it is written"
    TUPLE = "values in an order, or an interval"
    LIST = "values in no order"
    EXPRESSION = "any other mathematics"


@dataclass(frozen=True)
class Reading:
    """What an answer says.

    Args:
        kind: What it is.
        form: Its normal form, in LaTeX.
        value: The number that it is.
        decimal: Whether that was written with a decimal point.
    """

    kind: Kind
    form: str
    value: Fraction | None = None
    decimal: bool = False

    @property
    def equation(self) -> bool:
        """Whether it equates two sides; the sign in the limits of a sum does not count."""
        return len(list(_split(self.form, _EQUALS))) > 1


@lru_cache(maxsize=4096)  # the rollouts of a prompt share its reference, and often their answer
def read(answer: str) -> Reading:
    r"""Return the one reading of an answer.

    >>> read(r"$x = \dfrac{6}{4}\text{ cm}^2$.").value
    Fraction(3, 2)
    >>> read(r"3\text{ or }4").kind.name, read(r"3\text{ (or } 4)").kind.name, read("(3, 4)").kind.name
    ('LIST', 'LITERAL', 'TUPLE')
    >>> read(r"43_{5}.").form, read(r"\text{Even}").form
    ('43_5', 'Even')
    """
    text = _formula(_undressed(answer))
    if r"\begin" not in text:  # elsewhere a doubled backslash is one too many
        text = text.replace(r"\\", "\\")
    for pattern, replacement in _REWRITTEN:
        text = pattern.sub(replacement, text)
    text = _undressed(text)
    parts = [part.strip() for part in _split(text, _SEPARATOR) if part.strip()]
    if len(parts) < 2:
        return _single(_without_unit(_value("".join(parts))))
    names = {name for part in parts if (name := _name(part))}
    whole = _single(_without_unit(text.partition("=")[2] if names and text.count("=") == 1 else text))
    if whole.kind in (Kind.NUMBER, Kind.BASED):  # the commas separate thousands
        return whole
    elements = [_single(_without_unit(_value(part)) if len(names) < 2 else part) for part in parts]
    literal = not {Kind.LITERAL, Kind.WORDS, Kind.BASED}.isdisjoint(element.kind for element in elements)
    return Reading(Kind.LITERAL if literal else Kind.LIST, ", ".join(element.form for element in elements))


def _formula(text: str) -> str:
    """Return what a text with formulas among its words says: the last one, or all where they are one list."""
    text = re.sub(r"(?<!\\)\\[()]", "$", text)
    formulas = list(_FORMULA.finditer(text))
    if not formulas:
        return text
    between = [text[one.end() : other.start()] for one, other in pairwise(formulas)]
    if between and all(_SEPARATOR.fullmatch(words.strip()) for words in between):
        return ", ".join(formula[1] for formula in formulas)
    if re.search(r"\b(?i:or)\b", _FORMULA.sub(" ", text)):
        return text.replace("$", "")
    return formulas[-1][1]


def _single(text: str) -> Reading:
    """Return the reading of an answer that is no list, without its unit and its name."""
    text = _undressed(text)
    number = canonical_number(text)
    if number:
        return Reading(Kind.NUMBER, number, Fraction(number), decimal="." in number)
    if based := _BASED.fullmatch(text):
        digits = based[2].replace(",", "").lstrip("0") or "0"
        base = int(based[3] or based[4])
        return _single(based[1] + digits) if base == 10 else Reading(Kind.BASED, f"{based[1]}{digits}_{base}")
    if fraction := _FRACTION.fullmatch(text):
        return _rational(text, *fraction.groups())
    if (words := _wording(text)) is not None:
        return words
    text = _SYMBOL.sub(r"\1", text)
    if _LEFTOVER.search(text):
        return Reading(Kind.LITERAL, text)
    inner = list(_split(text[1:-1], _SEPARATOR)) if text[:1] in "([" and text[-1:] in ")]" else []
    if len(inner) > 1:
        return Reading(Kind.TUPLE, text)
    return Reading(Kind.LIST if text.startswith(r"\{") or r"\pm" in text else Kind.EXPRESSION, text)


def _rational(text: str, sign: str, whole: str | None, top: str, bottom: str, left: str, right: str) -> Reading:
    numerator, denominator = int(top or left), int(bottom or right)
    mixed = whole is not None
    if denominator == 0 or (mixed and not (int(whole or 0) > 0 and 0 < numerator < denominator)):
        return Reading(Kind.LITERAL, text)
    value = int(whole or 0) + Fraction(numerator, denominator)
    return Reading(Kind.NUMBER, text, -value if sign else value)


def _wording(text: str) -> Reading | None:
    """Return the reading of words: a text in LaTeX, or letters that are too many for a product of variables."""
    plain = _TEXT.sub(r"\1", text).strip().strip("()").strip()
    if not _WORDING.fullmatch(plain):
        return None
    if len(plain) > 1 and (r"\text" in text or re.search("[A-Za-z]{4}", plain)):
        return Reading(Kind.WORDS, plain)
    return Reading(Kind.EXPRESSION, plain)


def _undressed(text: str) -> str:
    """Take away what stands around an answer: the signs of mathematics, braces, a point or comma at its end."""
    before = ""
    while text != before:
        before, text = text, _STOP.sub("", text.strip())
        for opening, closing in (("$", "$"), (r"\(", r"\)"), (r"\[", r"\]"), ("{", "}")):
            inner = text[len(opening) : -len(closing)]
            enclosed = len(text) > 1 and text.startswith(opening) and text.endswith(closing)
            if enclosed and closing not in inner.replace(r"\$", ""):
                text = inner
    return text


def _without_unit(text: str) -> str:
    shorter = _UNIT.sub("", text).strip()
    return shorter if re.search(r"[\d\\a-zA-Z]", shorter) else text


def _name(text: str) -> str:
    """Return the name that an answer gives its value: the x of x = 3."""
    first, *rest = _split(text, _EQUALS)
    name = first.replace(" ", "")
    return name if rest and _NAME.fullmatch(name) else ""


def _value(text: str) -> str:
    """Return the last value of "x = 3", "x = 6/2 = 3" or "6/2 = 3"; any other equation stays as it is."""
    text = _MEMBER.sub("", text)
    for sign, position in ((_ROUGHLY, 0), (_EQUALS, -1)):
        parts = list(_split(text, sign))
        if len(parts) < 2:
            continue
        names = [part for part in parts if _NAME.fullmatch(part.replace(" ", ""))]
        if parts[0] in names:
            text = parts[-1]
        elif not any(_LETTERS.search(part) for part in parts if part not in names):
            text = [part for part in parts if part not in names][position]
    return text.strip()


def _split(text: str, separator: re.Pattern[str]) -> Iterator[str]:
    """Yield the parts between separators outside brackets; the whole text where the brackets do not match."""
    depth = start = position = 0
    ends: list[tuple[int, int]] = []
    while position < len(text):
        found = separator.match(text, position) if depth == 0 else None
        if found:
            ends.append(found.span())
            position = found.end()
            continue
        depth += (text[position] in "([{") - (text[position] in ")]}")
        if depth < 0:
            break
        position += 1
    if depth:
        yield text
        return
    for end, following in ends:
        yield text[start:end]
        start = following
    yield text[start:]


def _braced(command: str, match: re.Match[str]) -> str:
    return command + "".join(argument if argument.startswith("{") else f"{{{argument}}}" for argument in match.groups())
