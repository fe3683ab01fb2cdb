"""The response: randomised response whose error falls by e^-epsilon with each change a class withstands."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

from confide.mechanisms.enclosure import divide_up, exp_minus
from confide.prediction.laws import (
    LEVELS,
    Law,
    Probabilities,
    class_count,
    positive_epsilon,
    small_delta,
    whole,
)
from confide.privacy import Event
from confide.privacy.exact import Amount

#: Bits of the grid of probabilities that answers are drawn from; no wrong class is rarer than 2^-192.
_BITS = 192
#: Largest grid of `response_probabilities`: beyond the smallest double.
_FINEST = 1152


def response_probabilities(epsilon: Amount, classes: int, k_max: int, delta: Amount = 0) -> Probabilities:
    """Return the probability of the certified class at each distance k = 0 ... k_max.

    Parameters
    ----------
    epsilon : amount
        In (0, 1000].
    classes : int
        C, at least 2.
    k_max : int
        Between 0 and 65,535.
    delta : amount
        In [0, 1).

    Returns
    -------
    float array [k_max + 1]
        r_k, with ``.wrong``, the probability (1 - r_k) / (C - 1) of each other class, without cancellation.

    Raises
    ------
    ParameterError

    Notes
    -----
    With u_k = (1 - r_k) / (C - 1) and E = e^epsilon,

        u_0 = (1 - delta) / (E + C - 1),
        u_{k+1} = max(0, (u_k - delta / (C - 1)) / E, (1 - delta - E r_k) / (C - 1)),

    so that r_0 = (E + (C-1) delta) / (E + C - 1) and r_{k+1} = min(1, E r_k + delta,
    1 - (1 - r_k - delta) / E).

    *(epsilon, delta)-DP.* Neighbouring tables have either the same class and distances k, k + 1 (or equal
    ones), or different classes and k = 0 twice. A set of answers is bounded as follows. Same class, without
    the certified one: j u_k <= E j u_{k+1} + delta, worst at j = C - 1, is the second term of the maximum;
    with it: r_{k+1} + j u_{k+1} <= E (r_k + j u_k) + delta, worst at j = 0 because u falls, is the third. The
    reverse directions hold because u falls and r grows. Different classes a, b: r_0 <= E u_0 + delta is the
    first line, and other sets are smaller or lie on both sides. No function of k can do better, since each
    r_k is the largest that its predecessor allows, and r_0 that a rival allows.

    Everything is computed in integers with a rational E <= e^epsilon and u rounded up to a grid of 2^-bits:
    each bound above is a lower bound on u, so rounding up keeps it, and the smallest positive u is a unit,
    which falls no more. The table of `response_law` meets the inequalities in rationals.

    The simpler law q e^(-epsilon k) with q = (C - 1) / (E + C - 1) breaks r_1 <= E r_0 once C > 1 + E^2.

    ==============================  ===================================================================
    edge case                       what happens
    ==============================  ===================================================================
    k = 0                           randomised response over C classes
    C > 1 + e^(2 epsilon)           r_1 = e^epsilon r_0, below the simpler law
    delta > 0                       r_k = 1 from some k on: the answer is exact there
    epsilon k above 740             ``.wrong`` is 0.0 in double precision; never the law that is drawn
    epsilon 0, NaN, inf, > 1000     ParameterError
    classes 1, bool, 2.0            ParameterError
    ==============================  ===================================================================

    Examples
    --------
    >>> r = response_probabilities(1, 2, 4)
    >>> float(r.wrong[4].round(6))
    0.004926
    """
    e, c, d = positive_epsilon(epsilon), class_count(classes), small_delta(delta)
    largest = min(whole(k_max, "k_max"), LEVELS - 1)
    bits = min(_FINEST, 128 + c.bit_length() + math.ceil(float(e) * (largest + 1) * 1.4427))
    law = _table(e, c, d, bits, largest + 1)
    return law.probabilities(k_max)


def response_law(epsilon: Amount, classes: int, delta: Amount = 0) -> Law:
    """Return the law that answers are drawn from: that of `response_probabilities`, on a grid of 2^-192.

    Parameters
    ----------
    epsilon, classes, delta
        As there.

    Returns
    -------
    Law
        Exact in its integers; distances past the last level count as the last.
    """
    return _table(positive_epsilon(epsilon), class_count(classes), small_delta(delta), _BITS, LEVELS)


def global_law(epsilon: Amount, classes: int) -> Law:
    """Return randomised response on the class, without regard to k: the baseline.

    The law of `response_law` at k = 0 for every k: epsilon-DP by global sensitivity alone.
    """
    e, c = positive_epsilon(epsilon), class_count(classes)
    at_zero = _table(e, c, Fraction(0), _BITS, 1)
    event = Event.of("randomized_response", epsilon=str(e), classes=c)
    return Law(event, e, Fraction(0), c, _BITS, at_zero.units)


@lru_cache(maxsize=64)
def _table(epsilon: Fraction, classes: int, delta: Fraction, bits: int, levels: int) -> Law:
    units = tuple(_units(epsilon, classes, delta, bits, levels))
    event = Event.of("response", epsilon=str(epsilon), delta=str(delta), classes=classes)
    return Law(event, epsilon, delta, classes, bits, units)


def inverse_growth(epsilon: Fraction, bits: int) -> tuple[int, int]:
    """Return (h, one), h / one a rational >= e^-epsilon within a relative 2^-bits, one a power of two."""
    work = bits + math.ceil(float(epsilon) * 1.4427) + 8
    return exp_minus(epsilon, work)[1], 1 << work


def _units(epsilon: Fraction, classes: int, delta: Fraction, bits: int, levels: int) -> list[int]:
    """Return u_0, u_1, ... in units of 2^-bits, up to where they no longer fall."""
    h, one = inverse_growth(epsilon, 160)
    n, d = delta.numerator, delta.denominator
    grid, others = 1 << bits, classes - 1
    # E = one / h. (1 - delta) / (E + C - 1):
    units = [divide_up((d - n) * h * grid, d * (one + others * h))]
    while len(units) < levels:
        u = units[-1]
        falling = divide_up(h * (u * others * d - n * grid), one * others * d)
        growing = divide_up((d - n) * h * grid - one * d * (grid - others * u), h * d * others)
        units.append(max(0, falling, growing))
        if units[-1] == u:
            break
    return units
