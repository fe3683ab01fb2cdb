"""Exact amounts: every epsilon and delta in Confide is a rational number.

Floats mean their shortest decimal (0.1 is 1/10), so that three spends of 0.1 fit a budget of 0.3 and a
fourth does not (pitfall F05). Where a bound must be computed in floating point, `round_up` turns it into
a rational that is never smaller.
"""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

from confide.errors import ParameterError

Amount = int | float | str | Decimal | Fraction

#: Amounts are kept to this many decimal places, rounded up; far below any privacy parameter in use.
RESOLUTION = 60
#: Larger amounts are refused: they are mistakes, and no float can show them.
LARGEST = 10**300
_LONGEST = 400


def exact(value: Amount, name: str = "amount") -> Fraction:
    """Return a non-negative finite amount as a `Fraction`.

    Parameters
    ----------
    value : int, float, str, Decimal or Fraction
        Floats mean their shortest decimal. Amounts finer than 10^-60 are rounded up to that grid.
    name : str
        The parameter's public name, for the message.

    Raises
    ------
    ParameterError
        For NaN, infinities, negative amounts, booleans and anything that is not a number.

    Examples
    --------
    >>> exact(0.1) * 3 == exact("0.3")
    True
    """
    result = _parse(value, name)
    if result > LARGEST:
        raise ParameterError(f"The '{name}' parameter is above 1e300.", "Pass a number that means something.")
    if result < 0:
        raise ParameterError(f"The '{name}' parameter is negative: {value!r}.", "Pass a non-negative number.")
    scale = 10**RESOLUTION
    if result.denominator > scale:
        result = Fraction(-((-result.numerator * scale) // result.denominator), scale)
    return result


def _parse(value: Amount, name: str) -> Fraction:
    bad = ParameterError(f"The '{name}' parameter is {value!r:.80}.", "Pass a finite non-negative number.")
    if isinstance(value, bool) or type(value).__name__ in (
        "bool_",
        "bool",
    ):  # numpy's booleans are floats too
        raise bad
    if isinstance(value, Fraction):
        return value
    if isinstance(value, int):
        return Fraction(value)
    if isinstance(value, Decimal):
        if not value.is_finite() or abs(value.adjusted()) > _LONGEST:
            raise bad
        return Fraction(value)
    if isinstance(value, str):
        # A long exponent would build an integer of that many digits: bound it before parsing.
        digits = value.lower().partition("e")[2]
        if len(value) > _LONGEST or len(digits.lstrip("+-")) > 3:
            raise bad
        try:
            return Fraction(value)
        except (ValueError, ZeroDivisionError):
            raise bad from None
    try:
        number = float(value)  # numpy scalars
    except (TypeError, ValueError):
        raise bad from None
    if not math.isfinite(number):
        raise bad
    return Fraction(repr(number))


def round_up(value: float, digits: int = 12) -> Fraction:
    """Return a rational that is >= `value` and within a relative 10^(1-digits) of it.

    Parameters
    ----------
    value : float
        Finite and non-negative; its floating-point error must already lie inside it.
    digits : int
        Significant decimal digits kept.
    """
    grid = _grid(value, digits)
    return -(-Fraction(value) // grid) * grid


def round_down(value: float, digits: int = 12) -> Fraction:
    """Return a rational that is <= `value` and within a relative 10^(1-digits) of it."""
    grid = _grid(value, digits)
    return (Fraction(value) // grid) * grid


def _grid(value: float, digits: int) -> Fraction:
    if not math.isfinite(value) or value < 0:
        raise ParameterError(f"Cannot round {value!r} to a rational.", "Pass a finite number >= 0.")
    return Fraction(10) ** (math.floor(math.log10(value)) + 1 - digits) if value else Fraction(1)


def show(value: Fraction | float) -> str:
    """Return an amount as a short decimal for people: exact where 12 digits suffice."""
    if value == math.inf:
        return "infinity"
    number = float(value)
    text = f"{number:.12g}"
    return text if Fraction(text) == value else f"{number:.6g}"
