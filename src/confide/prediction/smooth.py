"""Smooth sensitivity: the mechanisms of the paper, with Cauchy and with Laplace noise; two classes.

Nissim, Raskhodnikova & Smith 2007 add noise in proportion to a beta-smooth upper bound S of the local
sensitivity of the vote f in {0, 1}. Within k - 1 changes of the table the local sensitivity is 0 (nothing
within k changes has another class), beyond it is at most 1, so S = e^(-beta k) is such a bound, and smooth
because k is 1-Lipschitz. The answer is whether the noisy vote lies above 1/2. So these two are laws of k
like the others, which are drawn without drawing the noise, and no scale, score or k can be seen (F61).

==========  ========================  ==============================  ===================================
release     beta                      noise                           P(wrong class) at k
==========  ========================  ==============================  ===================================
cauchy      epsilon / 6               6 S / epsilon times Cauchy      arctan(12 S / epsilon) / pi
laplace     epsilon / (2 ln(2/delta)) 2 S / epsilon times Laplace     exp(-epsilon / (4 S)) / 2
==========  ========================  ==============================  ===================================

Cauchy: epsilon-DP, their lemma 2.7 with gamma = 2 (alpha = beta = epsilon / (2 (gamma + 1))). Laplace: their
example 3 in one dimension, which needs epsilon small beside ln(2/delta): for delta below 1e-3 the law alone
is not (epsilon, delta)-DP where epsilon lies between 3.2 and 4 times ln(2/delta) (it would take 3 delta at
1e-6 and 43 at 1e-12). At k = 0, S = 1 is the global sensitivity (F58). Probability of the certified class at
epsilon = 1 with Cauchy noise: .526 at k = 0, .632 at 10, .995 at 40.

**Neither proof is relied on.** With w_k the probability above, rounded up to a grid, and E = e^epsilon, what
is drawn is

    u_0 = max(w_0, (1 - delta) / (E + 1)),
    u_{k+1} = max(w_{k+1}, (u_k - delta) / E, 1 - delta - E (1 - u_k)),

in integers that are rounded up and do not grow, with a rational E <= e^epsilon. That is (epsilon, delta)-DP
whatever w is, as long as it falls in k and w_0 <= 1/2. Neighbours with one class have k and k + 1: u_k <= E
u_{k+1} + delta and 1 - u_{k+1} <= E (1 - u_k) + delta are the second and third terms; the reverse directions
hold because u falls: each term is at most u_k, the third since 1 - delta - E (1 - u_k) <= 1 - (1 - u_k).
Neighbours with two classes have k = 0 twice: 1 - u_0 <= E u_0 + delta is the first line, and u_0 <= 1/2 the
other direction. Where the table ends, u is constant. The maximum binds in that range of epsilon alone, and in
tails below 2^-140.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

from confide.errors import ParameterError, UnsupportedError
from confide.mechanisms.enclosure import divide_up
from confide.prediction.laws import LEVELS, Law, class_count, positive_epsilon, small_delta
from confide.prediction.response import inverse_growth
from confide.privacy import Event
from confide.privacy.exact import Amount

_BITS = 192
_RAREST = 1 << 52
#: Off epsilon, so that floating-point error (below a relative 2^-35: exponents stay below 100, are formed
#: with fewer than 10 roundings and one exponential of an argument below 100, and a relative error of
#: 100 (10 + 100) 2^-53 < 2^-39 follows; twice in a ratio) makes no maximum bind where none should.
_SLACK = Fraction(1, 1 << 32)
_LEAST = Fraction(1, 1 << 20)


def cauchy_law(epsilon: Amount, classes: int = 2) -> Law:
    """Return the law of the vote with Cauchy noise of smooth sensitivity: pure epsilon-DP.

    Parameters
    ----------
    epsilon : amount
        In [2^-20, 1000].
    classes : int
        2.

    Raises
    ------
    UnsupportedError
        For more than two classes: the paper's mechanism is binary.
    """
    e = _epsilon(epsilon, classes, "cauchy")
    return _cauchy(e)


def laplace_law(epsilon: Amount, delta: Amount, classes: int = 2) -> Law:
    """Return the law of the vote with Laplace noise of smooth sensitivity: (epsilon, delta)-DP.

    Parameters
    ----------
    epsilon : amount
        In [2^-20, 1000].
    delta : amount
        In (0, 1).
    classes : int
        2.

    Raises
    ------
    UnsupportedError
        For more than two classes.
    """
    e = _epsilon(epsilon, classes, "laplace")
    return _laplace(e, small_delta(delta, positive=True))


@lru_cache(maxsize=64)
def _cauchy(epsilon: Fraction) -> Law:
    inner = float(epsilon - _SLACK)

    def wrong(k: int) -> float:
        return math.atan(12.0 * math.exp(-inner * k / 6.0) / inner) / math.pi

    event = Event.of("smooth_cauchy", epsilon=str(epsilon))
    return Law(event, epsilon, Fraction(0), 2, _BITS, _units(wrong, epsilon, Fraction(0)))


@lru_cache(maxsize=64)
def _laplace(epsilon: Fraction, delta: Fraction) -> Law:
    inner = float(epsilon - _SLACK)
    # delta (1 - 2^-32): the errors of probabilities multiply it too.
    beta = inner / (2.0 * math.log(2.0 / float(delta * (1 - _SLACK)))) * (1.0 - 1e-14)

    def wrong(k: int) -> float:
        return math.exp(-inner * math.exp(min(beta * k, 700.0)) / 4.0) / 2.0

    event = Event.of("smooth_laplace", epsilon=str(epsilon), delta=str(delta))
    return Law(event, epsilon, delta, 2, _BITS, _units(wrong, epsilon, delta))


def _units(wrong: Callable[[int], float], epsilon: Fraction, delta: Fraction) -> tuple[int, ...]:
    """Return u_0, u_1, ... in units of 2^-bits; later ones count as the last."""
    h, one = inverse_growth(epsilon, 160)  # E = one / h
    n, d = delta.numerator, delta.denominator
    grid = 1 << _BITS
    units = [max(_on_grid(wrong(0)), divide_up((d - n) * h * grid, d * (one + h)))]
    while len(units) < LEVELS:
        u = units[-1]
        falling = divide_up(h * (u * d - n * grid), one * d)
        growing = divide_up((d - n) * h * grid - one * d * (grid - u), h * d)
        units.append(max(min(u, _on_grid(wrong(len(units)))), falling, growing))
        if units[-1] == u < _RAREST:  # so few units fall no more
            break
    return tuple(units)


def _on_grid(value: float) -> int:
    exact = Fraction(value)
    return divide_up(exact.numerator << _BITS, exact.denominator)


def _epsilon(epsilon: Amount, classes: int, name: str) -> Fraction:
    if class_count(classes) != 2:
        raise UnsupportedError(
            f"The release {name!r} has no form for {classes} classes.", "Use release='response'."
        )
    value = positive_epsilon(epsilon)
    if value < _LEAST:
        raise ParameterError(f"The 'epsilon' parameter is {epsilon!r}.", "Pass at least 2^-20 here.")
    return value
