"""Exact composition of pure-epsilon mechanisms: `compose` and its inverse `split`.

Randomised response dominates every eps-DP mechanism, and so its k-fold product dominates k adaptively
chosen ones (Kairouz, Oh & Viswanath 2015, theorem 3.3; adaptivity by Murtagh & Vadhan 2016). With
p = e^eps / (1 + e^eps), X ~ Bin(k, p) and Y ~ Bin(k, 1 - p), for t_{l-1} <= E < t_l, t_l = (2l - k) eps,

    delta(E) = P(X >= l) - e^E P(Y >= l),

piecewise linear in e^E, so that the total epsilon at a given delta is a logarithm and no search is needed.
The probabilities are sums of positive terms, each correct to (3k + 20) ulp; that error is added on the
unsafe side.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction

import numpy as np

from confide.errors import AdjacencyError, ParameterError
from confide.privacy.event import Event
from confide.privacy.exact import Amount, exact, round_down, round_up
from confide.privacy.guarantee import Guarantee

_LARGEST_COUNT = 10**7


def _count(count: int) -> int:
    if isinstance(count, bool) or not isinstance(count, int | np.integer) or not 0 <= count <= _LARGEST_COUNT:
        raise ParameterError(
            f"The 'count' parameter is {count!r}.", f"Pass an integer between 0 and {_LARGEST_COUNT}."
        )
    return int(count)


def _delta(delta: Amount) -> Fraction:
    value = exact(delta, "delta")
    if value >= 1:
        raise ParameterError(f"The 'delta' parameter is {delta!r}.", "Pass 0 <= delta < 1.")
    return value


def _total(epsilon: float, count: int, delta: float) -> float:
    """Return an upper bound on the total epsilon of `count` eps-DP mechanisms at `delta` > 0."""
    # Log of the binomial weights of X by cumulated log-ratios, normalised by their own sum.
    j = np.arange(1, count + 1, dtype=np.float64)
    log_weights = np.concatenate(([0.0], np.cumsum(np.log((count - j + 1) / j) + epsilon)))
    log_weights -= log_weights.max()
    weights = np.exp(log_weights)
    total = math.fsum(weights)
    # Cumulated rounding: k additions of terms that stay below the largest partial sum in magnitude.
    scale = float(np.abs(log_weights).max()) + 1.0
    error = (3.0 * count + 20.0) * 1.2e-16 * max(1.0, min(scale, 750.0))
    upper = np.cumsum(weights[::-1])[::-1] / total * (1.0 + error)  # P(X >= l), rounded up
    losses = (2.0 * np.arange(count + 1) - count) * epsilon
    # P(Y >= l) = sum of weights * e^-loss; kept relative to e^-losses[l], so that it cannot underflow.
    from scipy.signal import lfilter

    recursion = np.asarray(lfilter([1.0], [1.0, -math.exp(-2.0 * epsilon)], weights[::-1]))
    relative = recursion[::-1] * ((1.0 - error) / total)
    # delta just below t_l is upper[l] - relative[l]; the first l at which delta(t_l) <= target.
    at_threshold = upper - relative
    feasible = np.flatnonzero(at_threshold <= delta)
    if feasible.size == 0:  # only through rounding: basic composition always holds
        return count * epsilon
    first = int(feasible[0])
    numerator = upper[first] - delta
    if numerator <= 0.0:
        return max(0.0, float(losses[first - 1])) if first else 0.0
    value = float(losses[first]) + math.log(numerator / relative[first])
    return max(0.0, value)


def compose(epsilon: Amount, count: int, delta: Amount = 0) -> float:
    """Return the total epsilon of `count` adaptive eps-DP mechanisms at `delta`, rounded up.

    Parameters
    ----------
    epsilon : amount
        Pure epsilon of each, >= 0.
    count : int
        Between 0 and 10^7.
    delta : amount
        In [0, 1). At 0 the answer is the sum.

    Returns
    -------
    float
        Its shortest decimal is a valid total; at most 1e-8 above the optimum.

    Examples
    --------
    >>> compose(0.1, 3)
    0.3
    """
    each = exact(epsilon, "epsilon")
    number = _count(count)
    target = _delta(delta)
    basic = each * number
    if target == 0 or basic == 0:
        return _as_float_up(basic)
    value = _total(float(each), number, float(target) * (1.0 - 4e-16))
    # The float nearest to the rational epsilon may lie below it by half an ulp: its effect on the total is
    # below count * ulp(epsilon).
    value += 2.0 * number * math.ulp(float(each)) + 4e-16 * value
    return min(_as_float_up(round_up(value, digits=13)), _as_float_up(basic))


def _as_float_up(value: Fraction) -> float:
    """Return a float whose shortest decimal is >= `value`."""
    number = float(value)
    while Fraction(repr(number)) < value:
        number = math.nextafter(number, math.inf)
    return number


def split(epsilon: Amount, delta: Amount, count: int) -> float:
    """Return the largest pure epsilon of each of `count` queries within a total (epsilon, delta).

    Parameters
    ----------
    epsilon : amount
        Total, > 0.
    delta : amount
        In [0, 1).
    count : int
        Between 1 and 10^7.

    Returns
    -------
    float
        Rounded down: ``compose(split(epsilon, delta, count), count, delta) <= epsilon``.

    Examples
    --------
    >>> round(split(10, 1e-5, 100), 3)
    0.204
    """
    total = exact(epsilon, "epsilon")
    number = _count(count)
    target = _delta(delta)
    if total <= 0:
        raise ParameterError(f"The 'epsilon' parameter is {epsilon!r}.", "Pass a positive number.")
    if number == 0:
        raise ParameterError("The 'count' parameter is 0.", "Pass an integer >= 1.")
    low = total / number  # basic composition
    if target == 0:
        return _as_float_down(low)
    best = _as_float_down(low)
    upper = max(2.0 * best, 4.0 * float(total))
    lower = best
    for _ in range(200):
        middle = math.sqrt(lower * upper)
        if not lower < middle < upper or upper / lower < 1.0 + 1e-13:
            break
        if compose(middle, number, target) <= total:
            lower = middle
        else:
            upper = middle
    candidate = float(round_down(lower, digits=12))
    return candidate if candidate > best and compose(candidate, number, target) <= total else best


def _as_float_down(value: Fraction) -> float:
    """Return a float whose shortest decimal is <= `value`."""
    number = float(value)
    while Fraction(repr(number)) > value:
        number = math.nextafter(number, 0.0)
    return number


def combine(guarantees: Iterable[Guarantee]) -> Guarantee:
    """Return the guarantee of several releases together, by exact sums of epsilon and delta.

    All must share adjacency and unit (convert with `Guarantee.under` first). Assumptions are joined.

    Raises
    ------
    AdjacencyError
        For guarantees under different relations or units.
    ParameterError
        For an empty sequence.
    """
    items = tuple(guarantees)
    if not items:
        raise ParameterError("There is no guarantee to combine.", "Pass at least one.")
    first = items[0]
    for item in items:
        if item.adjacency is not first.adjacency or item.unit != first.unit:
            raise AdjacencyError(
                f"A guarantee under {item.adjacency.value!r} per {item.unit} cannot be added to one under "
                f"{first.adjacency.value!r} per {first.unit}.",
                "Convert one of them with Guarantee.under or confide.privacy.group.",
            )
    declarations = {item.declaration for item in items if item.declaration}
    epsilons = [item.epsilon for item in items]
    return Guarantee(
        math.inf if math.inf in epsilons else sum((Fraction(e) for e in epsilons), Fraction(0)),
        min(Fraction(1), sum((item.delta for item in items), Fraction(0))),
        first.adjacency,
        first.unit,
        Event.sequence(item.event for item in items),
        tuple(name for item in items for name in item.assumptions),
        declarations.pop() if len(declarations) == 1 else ",".join(sorted(declarations)),
    )
