"""Public parameters of the samplers, checked before any bit is drawn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction

import numpy as np

from confide.errors import ParameterError

Number = int | float | Fraction | Decimal
Size = int | Sequence[int]

#: Largest sigma / step, scale or sigma: with at most 4096 bits of a uniform no draw passes 2^62.
LARGEST = 1 << 50


def rational(value: Number, name: str, *, positive: bool = False) -> Fraction:
    """Return a finite non-negative number as the exact rational that it is (0.1 is its binary value).

    Raises
    ------
    ParameterError
        For NaN, infinities, negative numbers, zero where `positive`, booleans and what is no number.
    """
    remedy = f"Pass a finite number {'> 0' if positive else '>= 0'}."
    try:
        if isinstance(value, bool | str | bytes):
            raise TypeError
        if isinstance(value, np.generic):
            value = value.item()
        result = Fraction(value)
    except (TypeError, ValueError, OverflowError):
        raise ParameterError(f"The '{name}' parameter is {value!r:.80}.", remedy) from None
    if result < 0 or (positive and result == 0):
        raise ParameterError(f"The '{name}' parameter is {value!r:.80}.", remedy)
    return result


def bounded(value: Fraction, name: str) -> Fraction:
    """Refuse a noise scale whose draws could leave int64."""
    if value > LARGEST:
        raise ParameterError(
            f"The '{name}' parameter is above 2^50 units of the grid.",
            "Choose a coarser step: a finer one adds no accuracy.",
        )
    return value


def shape_of(size: Size) -> tuple[int, ...]:
    """Return the shape of the array that `size` asks for."""
    try:
        shape = (size,) if isinstance(size, int | np.integer) else tuple(size)
        if any(isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 0 for n in shape):
            raise TypeError
    except TypeError:
        raise ParameterError(
            f"The 'size' parameter is {size!r:.80}.", "Pass an integer >= 0 or a tuple of them."
        ) from None
    return tuple(int(n) for n in shape)


def float_up(value: Fraction) -> float:
    """Return the smallest double that is >= `value`."""
    result = float(value)
    return result if Fraction(result) >= value else math.nextafter(result, math.inf)


def root_up(value: Fraction) -> Fraction:
    """Return a rational >= sqrt(value), within a relative 2^-64."""
    if value == 0:
        return Fraction(0)
    shift = 2 * max(0, 80 + (value.denominator.bit_length() - value.numerator.bit_length()) // 2)
    whole = -((-value.numerator << shift) // value.denominator)
    root = math.isqrt(whole)
    return Fraction(root if root * root == whole else root + 1, 1 << (shift // 2))
