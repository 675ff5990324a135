"""When two numbers are one: exact numbers exactly, a decimal beside an exact number to six digits."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

TOLERANCE = Fraction(1, 10**6)

# Digits to which roots and powers are computed before their equality is proved.
_DIGITS = 60


def close(first: Fraction, second: Fraction, *, rounded: bool) -> bool:
    """Tell whether two rational numbers are one: |a - b| <= 1e-6 max(|a|, |b|) if `rounded`, else a = b.

    Args:
        first: A number.
        second: Another.
        rounded: One is a decimal, the other is written exactly: 0.333333 and 1/3. Whole numbers need no rounding.

    >>> third = Fraction(1, 3)
    >>> close(third, Fraction("0.333333"), rounded=True), close(third, Fraction("0.33333"), rounded=True)
    (True, False)
    >>> close(Fraction(3), Fraction("3.0000001"), rounded=True)
    False
    """
    if not rounded or 1 in (first.denominator, second.denominator):
        return first == second
    return abs(first - second) <= TOLERANCE * max(abs(first), abs(second))


def equal_numbers(first: Any, second: Any, *_: object) -> bool:
    """Tell whether two constants or matrices of sympy are equal; False where variables are left to algebra.

    Takes the place of math-verify's `sympy_numeric_eq` and has its arguments.
    """
    import sympy

    first, second = first.doit(), second.doit()
    if isinstance(first, sympy.MatrixBase) and isinstance(second, sympy.MatrixBase):
        return first.shape == second.shape and all(map(equal_numbers, first.flat(), second.flat()))
    if first == second:
        return True
    if first.free_symbols or second.free_symbols:
        return False
    rounded = first.has(sympy.Float) != second.has(sympy.Float)
    first, second = (
        number.xreplace({decimal: sympy.Rational(str(decimal)) for decimal in number.atoms(sympy.Float)}).doit()
        for number in (first, second)
    )
    if isinstance(first, sympy.Rational) and isinstance(second, sympy.Rational):
        return close(Fraction(first.p, first.q), Fraction(second.p, second.q), rounded=rounded)
    a, b = first.evalf(_DIGITS), second.evalf(_DIGITS)
    largest = max(abs(a), abs(b))
    if rounded:
        return bool(abs(a - b) <= float(TOLERANCE) * largest)
    return bool(abs(a - b) <= largest / 10 ** (_DIGITS - 10)) and (first - second).equals(0) is not False
