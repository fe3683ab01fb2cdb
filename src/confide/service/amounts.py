"""Amounts of privacy as the service writes them: exact text, with a short decimal beside it."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from confide.ledger import Spending
    from confide.ledger.budget import Quantity

#: Significant digits of a decimal.
DIGITS = 6


def amount(spending: Spending, *, rest: bool = False) -> dict[str, str]:
    """Return an amount as exact text, and as decimals that never flatter.

    Under zCDP with its rho, since only rhos add up.

    Parameters
    ----------
    spending : Spending
    rest : bool
        Whether it is something that may yet be spent: rounded down, and everything else up.
    """
    found = spending.to_dict()
    found["epsilon_decimal"] = decimal(spending.epsilon, up=not rest)
    if spending.rho is not None:
        found["rho_decimal"] = decimal(spending.rho, up=not rest)
    return found


def decimal(value: Quantity, *, up: bool) -> str:
    """Return a decimal of `DIGITS` significant digits, not below `value` (`up`) or not above it.

    ==================  =====================
    edge case           what happens
    ==================  =====================
    0                   "0"
    infinite            "inf"
    six digits or less  exact
    ==================  =====================
    """
    if not value or isinstance(value, float):
        return "0" if not value else str(value)
    place = len(str(value.numerator)) - len(str(value.denominator)) - DIGITS
    place += value >= type(value)(10) ** (place + DIGITS)
    unit = type(value)(10) ** place
    count = -(-value // unit) if up else value // unit
    short = Decimal(int(count)).scaleb(place).normalize()
    return f"{short:f}" if -7 < short.adjusted() < 16 else str(short)


def float_above(value: Quantity) -> float:
    """Return the least double that is not below `value`: of what was spent."""
    near = float(value)
    return near if near >= value else math.nextafter(near, math.inf)


def float_below(value: Quantity) -> float:
    """Return the largest double that is not above `value`: of what is left."""
    near = float(value)
    return near if near <= value else math.nextafter(near, -math.inf)
