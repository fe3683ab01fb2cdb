"""What the best of a random number of private runs costs, from below: by code of the audit's own.

K runs are made, E[x^K] = F(x) = ((1 - (1 - gamma) x)^-eta - 1) / (gamma^-eta - 1), or its limit at eta = 0,
and the run of the highest score comes out. If the scores are the outcomes themselves, the best one lies in a
cell with probability F(q) - F(q'), q and q' the probabilities of a run up to its ends: on both of two
neighbours that is a law, and its excess a lower bound (`confide.audit.losses`).
"""

from __future__ import annotations

import math

import numpy as np

from confide.audit.losses import Cost, Floats, Kind

#: What a delta may be too large by: sums of 2^14 differences of powers, in double precision.
ERROR = 1e-9
#: Cells of a normal law, in deviations.
_WIDTH, _OUTER = 2.0**-9, 12.0
#: Mass of an outcome that is seldom the best.
_RARE = 1e-3


def delta(cost: Cost, eta: float, gamma: float, epsilon: float) -> float:
    """Return at most the delta(epsilon) of the best of K runs of one pair, but for `ERROR`.

    Parameters
    ----------
    cost : Cost
        Of a run: Gaussian noise on the score, or amounts, of which the outcomes are those that the proof of
        `confide.privacy.random_stopping` is tight for, a rare one below a set that is likelier on the other
        side.
    eta, gamma : float
        Of K.
    epsilon : float
    """
    sides = _normal(cost.size) if cost.kind is Kind.GAUSSIAN else _rare(cost.size, cost.rest)
    best = [np.diff(_generating(np.append(0.0, np.cumsum(side)), eta, gamma)) for side in sides]
    return max(
        float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum()) for p, q in ((best[0], best[1]), best[::-1])
    )


def _normal(mu: float) -> list[Floats]:
    """Return the masses of N(0, 1) and N(mu, 1) in cells."""
    from scipy.special import ndtr

    edges = np.arange(-_OUTER, _OUTER + min(mu, _OUTER) + _WIDTH, _WIDTH)
    return [np.diff(np.concatenate([[0.0], ndtr(edges - mean), [1.0]])) for mean in (0.0, mu)]


def _rare(epsilon: float, lost: float) -> list[Floats]:
    """Return outcomes that differ by e^epsilon; what fails is told outright, at the highest scores."""
    growth = math.exp(min(epsilon, 500.0))
    rest = 1 / (1 + growth)
    rare = min(_RARE, rest / 2)
    one, other = [growth * (rest - rare), growth * rare, rest], [rest - rare, rare, growth * rest]
    return [
        np.append((1 - lost) * np.array(p), lost * told)
        for p, told in zip((one, other), np.eye(2), strict=True)
    ]


def _generating(x: Floats, eta: float, gamma: float) -> Floats:
    if gamma == 1:
        return x
    logs, top = np.log1p((gamma - 1) * np.minimum(x, 1.0)), math.log(gamma)
    told = logs / top if eta == 0 else np.expm1(-eta * logs) / math.expm1(-eta * top)
    return np.asarray(told, dtype=np.float64)
