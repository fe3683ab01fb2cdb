"""Supports from scores of single columns: the exponential mechanism, `size` times without replacement.

Round t draws column j among those left with probability proportional to exp(eta q_j), the q_j scores of
which larger is better. (One draw of Gumbel noise for each column and the `size` largest sums have the same
law.) The set of the columns is released.

Guarantee (proof). Let neighbouring tables move every q_j by a number in [-D, D]. Given the columns drawn so
far, a round is an exponential mechanism: its log-weight moves by eta D at most and so does that of the sum,
so that it is (2 eta D)-DP. With eta = epsilon / (2 size D) each round costs epsilon / size, and `size`
adaptive rounds epsilon. The order is forgotten, which is post-processing.

Computed scores q^_j lie within e of the true ones, e public: they move by at most D + 2e, which takes the
place of D. The draw among given doubles is exact (`confide.mechanisms.weighted_choice`).

==============================  ========================================================================
edge case                       what happens
==============================  ========================================================================
size = p                        all columns, with probability 1
equal scores                    equal probability
a score far above the others    drawn first; the others' probabilities keep their relative accuracy
==============================  ========================================================================
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from confide.mechanisms import weighted_choice
from confide.mechanisms.stream import RandomStream
from confide.privacy import Event
from confide.selection.enumeration import all_supports
from confide.selection.problem import SubsetProblem

Floats = npt.NDArray[np.float64]
Support = tuple[int, ...]

_CHUNK = 1 << 12


def peeling_exponent(epsilon: Fraction, size: int, width: float, error: float) -> float:
    """Return eta for scores that move by at most `width` and are computed within `error`, rounded down."""
    moved = Fraction(width) + 2 * Fraction(error)
    return float(epsilon / (2 * size * moved)) * (1 - 2.0**-50)


def peeling_event(epsilon: Fraction, size: int) -> Event:
    """Return what is run: `size` exponential mechanisms of epsilon / size each."""
    return Event.of("exponential", epsilon=str(epsilon / size), count=size)


def peel(log_weights: Floats, size: int, count: int, source: RandomStream) -> list[Support]:
    """Draw `count` supports of `size` columns.

    Parameters
    ----------
    log_weights : float64 array [p]
        eta q, finite.
    """
    result = []
    for _ in range(count):
        left = log_weights.copy()
        for _ in range(size):
            left[weighted_choice(log_weights=left, stream=source)] = -math.inf
        result.append(tuple(np.flatnonzero(left == -math.inf).tolist()))
    return result


def log_probabilities(log_weights: Floats, supports: npt.NDArray[np.int64]) -> Floats:
    """Return the log-probability of each row of `supports` [m, size], summed over the orders of its columns.

    For a set A of columns drawn so far, P(A) = sum over j in A of P(A - j) w_j / (all that A - j leaves):
    2^size sets for each support. What is left is a sum of positive numbers, never a difference.
    """
    result = np.empty(len(supports))
    for start in range(0, len(supports), _CHUNK):
        part = supports[start : start + _CHUNK]
        result[start : start + _CHUNK] = _log_probabilities(log_weights, part)
    return result


def _log_probabilities(log_weights: Floats, supports: npt.NDArray[np.int64]) -> Floats:
    count, size = supports.shape
    own = log_weights[supports]
    outside = np.broadcast_to(log_weights, (count, log_weights.size)).copy()
    np.put_along_axis(outside, supports, -math.inf, axis=1)
    rest = np.logaddexp.reduce(outside, axis=1)
    sets = 1 << size
    # inside[A]: log of the weight of A alone.
    inside = np.full((sets, count), -math.inf)
    for chosen in range(1, sets):
        j = (chosen & -chosen).bit_length() - 1
        inside[chosen] = np.logaddexp(inside[chosen & (chosen - 1)], own[:, j])
    reached = np.full((sets, count), -math.inf)
    reached[0] = 0.0
    for chosen in range(1, sets):
        for j in range(size):
            if chosen >> j & 1:
                before = chosen ^ (1 << j)
                left = np.logaddexp(rest, inside[(sets - 1) ^ before])
                reached[chosen] = np.logaddexp(reached[chosen], reached[before] + (own[:, j] - left))
    return np.minimum(reached[-1], 0.0)


def peeling_law(problem: SubsetProblem, log_weights: Floats) -> dict[Support, float]:
    """Return the probability of every support, for at most 200,000 of them."""
    supports = all_supports(problem)
    logs = log_probabilities(log_weights, supports)
    return {tuple(map(int, s)): math.exp(v) for s, v in zip(supports, logs.tolist(), strict=True)}
