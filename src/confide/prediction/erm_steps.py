"""How far each further change of the table can move the weights: steps by the slope that rows can still have.

Let F(u) bound the change of the objective's gradient, from one change of the table, at weights of norm at
most u. A row of norm at most 1 has a logit within +-u there, so for two classes F(u) = f s(u), s(u) the
largest slope of the loss within +-u and f the number of rows that come or go: 2 for a replacement, 1 for an
addition or removal. (Logistic: s(u) = 1 / (1 + e^-u), between 1/2 and 1: small weights, as a strong ridge
makes them, are twice as hard to move.) F grows with u and is at most G. With w the computed weights, tau
their distance from the optimum,

    g_i = F(||w|| + s_{i-1} + G / Lambda + 2 tau),   s_i = s_{i-1} + g_i / Lambda + 2 tau,   s_0 = 0.

*Sound.* Along a path of neighbours D = D_0, D_1, ... with optima w_i, ||w_i - w_{i-1}|| <= g_i / Lambda: by
strong convexity it is at most F(||w_i||) / Lambda <= G / Lambda, hence ||w_i|| <= ||w|| + tau +
sum_{j<i} g_j / Lambda + G / Lambda by induction, and F of that is at most g_i. What is computed on D_k lies
within s_k of w.

*1-Lipschitz.* For a neighbour D' of D, g_i(D') <= g_{i+1}(D), because ||w'|| + s_{i-1}(D') <= ||w|| +
s_i(D): for i = 1 by ||w' - w|| <= g_1(D) / Lambda + 2 tau = s_1(D), and further by induction, both sides
growing by g_i(D') <= g_{i+1}(D). So s_k(D') <= s_{k+1}(D) - s_1(D), and the largest k with s_k ||x|| <
margin(x) is 1-Lipschitz: if s_{k+1}(D) ||x|| < margin(D), then s_k(D') ||x|| < margin(D) - s_1(D) ||x|| <=
margin(D').

As computed, each step has 4 e more, e the public bound on the rounding of a logit of a row of norm 1 (norms
of weights included), and is longer by a millionth, which pays for rounding in sums of up to 2^24 steps. (A
ratio of 2^24 steps, the difference and the quotient that k is read from err by 2^-53 of it each, on both
tables: 6 * 2^-29 < 2e-8 of a step, and a millionth of a step s_1 is at least 5e-7 of the longest.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from confide.prediction.erm_solver import Accuracy

Floats = NDArray[np.float64]

#: Steps that are followed one by one; later ones have the length that all are bounded by.
LEVELS = 1024
#: Public: distances above it count as it.
_MOST = 2.0**24


@dataclass(frozen=True, eq=False)
class Steps:
    """Steps of one fit: secret, as they depend on the norm of the weights.

    Attributes
    ----------
    changes : float array [LEVELS]
        g_1, g_2, ...
    totals : float array [LEVELS]
        s_1, s_2, ...
    longest : float
        Bound on every step, public.
    """

    changes: Floats
    totals: Floats
    longest: float

    def distances(self, ratio: Floats, stretch: float = 1.0, extra: float = 0.0) -> NDArray[np.int64]:
        """Return the largest k with stretch s_k + k extra < ratio, ratio = margin / ||x||."""
        walked = stretch * self.totals + extra * np.arange(1, self.totals.size + 1)
        far = (np.minimum(ratio, _MOST * self.longest) - walked[-1]) / (stretch * self.longest + extra)
        beyond = np.maximum(np.ceil(far) - 1.0, 0.0).astype(np.int64)
        return np.searchsorted(walked, ratio, side="left").astype(np.int64) + beyond


def steps_of(
    change: Callable[[float], float], norm: float, ridge: float, precision: Accuracy, *, least: float = 0.0
) -> Steps:
    """Return the steps from computed weights of one norm.

    Parameters
    ----------
    change : callable
        F, growing.
    norm : float
        ||w||, rounded up.
    ridge : float
        Lambda.
    precision : Accuracy
    least : float
        Public: no g_i is taken below it (a larger bound is a bound, and both proofs stay).
    """
    most = change(float("inf"))
    slack = 2.0 * precision.tolerance + 4.0 * precision.logit_error
    changes, totals = np.empty(LEVELS), np.empty(LEVELS)
    total = 0.0
    for i in range(LEVELS):
        changes[i] = max(least, change(norm + total + most / ridge + slack))
        total += (changes[i] / ridge + slack) * (1.0 + 1e-6)
        totals[i] = total
    return Steps(changes, totals, (max(least, most) / ridge + slack) * (1.0 + 1e-6))
