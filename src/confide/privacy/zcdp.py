"""Zero-concentrated DP: the conversion to (epsilon, delta) and its inverse.

Source: Bun & Steinke 2016 for the definition; the conversion is proposition 12 of Canonne, Kamath &
Steinke 2020: rho-zCDP implies (epsilon, delta)-DP for every order alpha > 1 with

    epsilon = rho alpha + log(1/delta)/(alpha - 1) + log(1 - 1/alpha) - log(alpha)/(alpha - 1).

Every order gives a valid bound, so the search over alpha need not be exact.
"""

from __future__ import annotations

import math
from fractions import Fraction

from confide.errors import ParameterError
from confide.privacy.exact import Amount, exact, round_down, round_up


def order_epsilon(rdp: float, order: float, delta: float) -> float:
    """Return the epsilon at `delta` of a mechanism whose Renyi divergence of `order` is `rdp`.

    The right side of proposition 12 of Canonne, Kamath & Steinke 2020, at least 0.
    """
    if rdp == math.inf:
        return math.inf
    gain = math.log1p(-1.0 / order) - math.log(order) / (order - 1.0)
    return max(0.0, rdp + math.log(1.0 / delta) / (order - 1.0) + gain)


def _delta(delta: Amount) -> float:
    value = exact(delta, "delta")
    if not 0 < value < 1:
        raise ParameterError(f"The 'delta' parameter is {delta!r}.", "Pass 0 < delta < 1.")
    return math.nextafter(float(value), 0.0)


def _epsilon(rho: float, delta: float) -> float:
    if rho == 0.0:
        return 0.0
    # The minimum over u = log(alpha - 1) of a quasi-convex function, by golden section.
    ratio = (math.sqrt(5.0) - 1.0) / 2.0
    guess = 0.5 * math.log(math.log(1.0 / delta) / rho)
    low, high = guess - 8.0, guess + 8.0

    def at(u: float) -> float:
        order = 1.0 + math.exp(u)
        return order_epsilon(rho * order, order, delta)

    left, right = high - ratio * (high - low), low + ratio * (high - low)
    value_left, value_right = at(left), at(right)
    for _ in range(90):
        if value_left <= value_right:
            high, right, value_right = right, left, value_left
            left = high - ratio * (high - low)
            value_left = at(left)
        else:
            low, left, value_left = left, right, value_right
            right = low + ratio * (high - low)
            value_right = at(right)
    return min(value_left, value_right) * (1.0 + 1e-13)


def zcdp_epsilon(rho: Amount, delta: Amount) -> Fraction:
    """Return an epsilon such that rho-zCDP implies (epsilon, delta)-DP, rounded up.

    Parameters
    ----------
    rho : amount
        >= 0.
    delta : amount
        In (0, 1).
    """
    number = float(exact(rho, "rho")) * (1.0 + 2e-16)
    return round_up(_epsilon(number, _delta(delta)))


def zcdp_budget(epsilon: Amount, delta: Amount) -> Fraction:
    """Return the largest rho whose `zcdp_epsilon` stays within `epsilon`, rounded down.

    Examples
    --------
    >>> zcdp_epsilon(zcdp_budget(1, 1e-6), 1e-6) <= 1
    True
    """
    total = exact(epsilon, "epsilon")
    if total <= 0:
        raise ParameterError(f"The 'epsilon' parameter is {epsilon!r}.", "Pass a positive number.")
    number = _delta(delta)
    low, high = 0.0, float(total)
    while _epsilon(high, number) <= total:
        low, high = high, 2.0 * high
    for _ in range(200):
        middle = 0.5 * (low + high)
        if not low < middle < high or (low > 0 and high / low < 1.0 + 1e-14):
            break
        if _epsilon(middle, number) <= total:
            low = middle
        else:
            high = middle
    rho = round_down(low, digits=12)
    while rho > 0 and zcdp_epsilon(rho, delta) > total:
        rho = round_down(float(rho) * (1.0 - 1e-11), digits=12)
    return rho
