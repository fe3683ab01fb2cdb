"""Which public geometry a round of `rounds` releases in: the one with the least expected posterior variance.

Given the prior covariance P of what is still unknown and the noise eta of a unit of row length, a geometry
M = L L' with row weights w_i = 1 / max(1, ||L'u_i||) gives an estimate of noise N = eta^2 A^-1 M^-1 A^-1 and
leaves tr (P^-1 + N^-1)^-1. Candidates: the spectral family, and reverse water-filling, which minimises that
trace for rows of equal length: M = (level - P^-1)_+ brings every direction that is worth it down to one
posterior variance. Everything here is a function of public rows and released values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from confide.training.choice import Plan, moments, normalise
from confide.training.design import Basis

Floats = npt.NDArray[np.float64]

_POWERS = (0.0, 0.5, 1.0)
_QUANTILES = (1.0, 0.9, 0.5, 0.1)
#: Part of the metric that is spread evenly, so that no direction goes without any estimate.
_EVEN = 0.1
_ROWS = 1024


@dataclass(frozen=True)
class Chosen:
    """A plan, its name, and the posterior variance that it is expected to leave (trace, all rows)."""

    plan: Plan
    name: str
    expected: float


def water_fill(variances: Floats, budget: float) -> Floats:
    """Return precisions m >= 0 of sum `budget` that minimise sum 1 / (1/variances + m)."""
    order = np.argsort(-variances)
    inverse = 1.0 / variances[order]
    counts = np.arange(1, inverse.size + 1)
    levels = (budget + np.cumsum(inverse)) / counts
    last = int(np.flatnonzero(levels > inverse)[-1])
    filled = np.maximum(levels[last] - inverse, 0.0)
    out = np.empty_like(filled)
    out[order] = filled
    return out


def choose_geometry(
    basis: Basis,
    prior: Floats,
    noise: float,
    residual: float,
    leverage: float | None = None,
) -> Chosen:
    """Choose a plan.

    Parameters
    ----------
    basis : Basis
    prior : ndarray of shape (k, k)
        Covariance of the unknown part of theta.
    noise : float
        Deviation of the privacy noise for rows of length one, in units of the label, share inside included.
    residual : float
        Variance of the label about its predictions: what shortened rows cost.
    leverage : float, optional
        Leverage quantile; None compares several.
    """
    few = basis.sample[:: -(-basis.sample.shape[0] // max(_ROWS, 6 * basis.size))]

    def price(name: str, root: Floats, quantile: float) -> Chosen:
        plan = Plan(normalise(root, few, quantile), _share(basis, root), quantile, math.nan)
        return Chosen(plan, name, expected_variance(basis, few, plan, prior, noise, residual))

    # All roots at one quantile, then the best root at the others: rows matter less than directions.
    first = _QUANTILES[-1] if leverage is None else leverage
    found = [price(name, root, first) for name, root in _roots(basis, prior, noise)]
    best = min(found, key=lambda chosen: chosen.expected)
    if leverage is None:
        root = best.plan.factor
        found = [best, *(price(best.name, root, quantile) for quantile in _QUANTILES[:-1])]
        best = min(found, key=lambda chosen: chosen.expected)
    return best


def _share(basis: Basis, root: Floats) -> float:
    """Return the intercept's part of the squared length of an average row."""
    square = np.einsum("ij,ij->i", root, root)
    return float(square[0] / square.sum()) if basis.intercept else 0.0


def expected_variance(
    basis: Basis, rows: Floats, plan: Plan, prior: Floats, noise: float, residual: float
) -> float:
    """Return tr (P^-1 + N^-1)^-1 for a plan."""
    _, w = plan.rows(rows)
    A, B = moments(basis, rows, w)
    inverse = np.linalg.solve(A, np.eye(A.shape[0]))
    unit = np.linalg.solve(plan.factor.T, np.eye(A.shape[0])).T @ inverse.T
    N = noise**2 * (unit.T @ unit)
    # What shortened rows lose to sampling beyond ordinary least squares, whose covariance is residual * I.
    N += residual * (inverse @ B @ inverse.T)
    return float(np.trace(prior) - np.sum(np.linalg.solve(prior + N, prior) * prior))


def _roots(basis: Basis, prior: Floats, noise: float) -> list[tuple[str, Floats]]:
    """Return named roots L of the metric; scale is fixed later."""
    k, n = basis.size, basis.n
    roots: list[tuple[str, Floats]] = []
    values, vectors = np.linalg.eigh(prior)
    values = np.maximum(values, 1e-12 * float(values.max()))
    for strength in (1.0, 4.0):
        m = water_fill(values * strength, n / noise**2)
        m = (1 - _EVEN) * m / m.sum() + _EVEN / k
        roots.append((f"water-filling {strength:g}", vectors * np.sqrt(m)))
    share = _share(basis, roots[0][1])
    s = basis.singular_values
    for power in _POWERS if s.size else ():
        shape = (s / s[0]) ** (2 * power)
        shape = (1 - _EVEN) * shape / shape.sum() + _EVEN / shape.size
        # Without an intercept the share is 0 and has no direction of its own.
        diagonal = np.concatenate([[share], (1 - share) * shape]) if basis.intercept else shape
        roots.append((f"power {1 - power:g}", np.diag(np.sqrt(diagonal))))
    return roots
