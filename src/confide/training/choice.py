"""Public choice of what one round releases: row weights, noise geometry, share of the intercept.

The statistic is b = sum_i f_i (y_i - mid) with f_i = L u_i / max(1, ||L u_i||): rows longer than 1 in the
metric M = L L' are shortened, so one label moves b by at most R whatever the row. Weighted least squares
with weights w_i = 1 / max(1, ||L u_i||) then reads theta = A^-1 L^-T b, A = sum w_i u_i u_i'; it is
unbiased for a linear model, costs noise (sigma R)^2 tr(A^-1 M^-1 A^-1) and sampling noise
s^2 tr(A^-1 B A^-1), B = sum w_i^2 u_i u_i'.

Why shorten rows: with w = 1 the noise is at least the optimal geometry's, which on a Gaussian design with
n = 10,000 and d = 50 is 1.48 d^2/n (few rows stick out in every direction, and M must bow to all of them).
Normalised rows cost 1.01 d^2/n and one per cent more sampling noise.

All candidates are compared by expected squared error under a fixed public prior in units of R; the
constants below decide accuracy, never privacy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from confide.training.conditioning import diagonal
from confide.training.design import Basis
from confide.training.optimal import optimal_geometry, working_rows

Floats = npt.NDArray[np.float64]

#: Prior of the choice: labels have a deviation of R/9, half of whose variance the public columns explain.
_SIGNAL = 1.0 / 162.0
_SAMPLING = 1.0 / 162.0
#: Leverage quantiles at which rows start to be shortened; 1 leaves every row as it is.
_QUANTILES = (1.0, 0.9, 0.5, 0.1)
#: Shares of the squared sensitivity that the intercept may take.
_SHARES = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
#: The scale of the signal must be learnt from the release itself, which costs about as much again as noise.
_CAUTION = 2.0
_CHOICE_ROWS = 4096


@dataclass(frozen=True)
class Plan:
    """A public linear release: f_i = L' u_i / max(1, ||L' u_i||).

    Attributes
    ----------
    factor : ndarray of shape (k, k)
        L, lower-triangular or diagonal-block; M = L L'.
    share : float
        Part of the squared sensitivity that the intercept has in a full-length row; 0 without intercept.
    quantile : float
        Leverage quantile at which rows start to be shortened.
    gap : float
        Relative primal-dual gap of the geometry among its working rows; NaN unless it is optimal.
    """

    factor: Floats
    share: float
    quantile: float
    gap: float

    def rows(self, coordinates: Floats) -> tuple[Floats, Floats]:
        """Return the released rows f (b, k) and their weights w (b,); every ||f_i|| <= 1 up to rounding."""
        image = coordinates @ self.factor
        weights = 1.0 / np.maximum(1.0, np.sqrt(np.einsum("ij,ij->i", image, image)))
        image *= weights[:, None]
        return image, weights


def choose(
    basis: Basis,
    noise: float,
    *,
    kind: str = "optimal",
    leverage: float | None = None,
    p: float = 0.5,
    rho: float = 0.1,
) -> Plan:
    """Choose the plan with the least expected error at a noise level.

    Parameters
    ----------
    basis : Basis
    noise : float
        Noise deviation per unit of L2 sensitivity; 0 for a release without noise.
    kind : str
        Conditioning, see `confide.training.conditioning_matrix`. ``optimal`` takes the best of the optimal
        and the spectral geometry for each leverage quantile.
    leverage : float, optional
        Leverage quantile in (0, 1]; None compares several.
    p, rho : float
        Options of ``power`` and ``ridge``.
    """
    first = int(basis.intercept)
    rest = basis.sample[:, first:]
    r = rest.shape[1]
    if r == 0:
        return Plan(np.eye(first) * math.sqrt(basis.n), float(first), 1.0, math.nan)
    if leverage is not None:
        quantiles = (leverage,)
    else:  # without noise there is nothing to gain from shortened rows: ordinary least squares
        quantiles = _QUANTILES if noise > 0 else (1.0,)
    # Metric of the rest: a diagonal in spectral coordinates, C x = V f(S) S u; optimal starts from spectral.
    base = "spectral" if kind == "optimal" else kind
    shape = diagonal(basis.singular_values, base, p, rho, 0.0) * basis.singular_values
    size = max(_CHOICE_ROWS, 10 * r)
    few = rest[:: -(-rest.shape[0] // size)]
    best: tuple[float, float, float, Floats] | None = None
    for quantile in quantiles:
        root = normalise(np.diag(shape), few, quantile)
        cost, share = _best_share(basis, few, root, noise)
        if best is None or cost < best[0]:
            best = (cost, share, quantile, root)
    assert best is not None
    _, share, quantile, root = best
    gap = math.nan
    if kind == "optimal" and noise > 0:
        root = normalise(np.diag(shape), rest, quantile)
        root, gap = _optimise(basis, rest, root)
        _, share = _best_share(basis, few, root, noise)
    elif quantile == 1.0:
        root = normalise(root, rest, 1.0)
    if not first:
        return Plan(root, 0.0, quantile, gap)
    factor = np.zeros((r + 1, r + 1))
    factor[0, 0] = math.sqrt(share * basis.n)
    factor[1:, 1:] = math.sqrt(1.0 - share) * root
    return Plan(factor, share, quantile, gap)


def _lengths(rows: Floats, root: Floats) -> Floats:
    image = rows @ root
    return np.einsum("ij,ij->i", image, image)


def normalise(root: Floats, rows: Floats, quantile: float) -> Floats:
    """Scale a root of M so that the given quantile of u' M u is 1."""
    lengths = _lengths(rows, root)
    level = float(np.quantile(lengths, quantile))
    if level <= 0:
        level = float(lengths.max()) or 1.0
    return root / math.sqrt(level)


def _optimise(basis: Basis, rest: Floats, root: Floats) -> tuple[Floats, float]:
    """Improve M with the row weights that `root` implies.

    With weights held, minimising tr(A^-1 M^-1 A^-1) subject to w_i^2 u_i' M u_i <= 1 is the problem of
    `optimal_geometry` for rows w_i A^-1 u_i, M = A^-1 M~ A^-1. The weights of the result are at least as
    large as those held, so the noise can only fall further.
    """
    chosen = working_rows(rest, 20_000)
    rows = rest[chosen]
    weights = 1.0 / np.maximum(1.0, np.sqrt(_lengths(rest, root)))
    A, _ = moments(basis, rest, weights)
    image = np.asarray(np.linalg.solve(A, (rows * weights[chosen][:, None]).T).T, dtype=np.float64)
    # One made-up row a direction, of average length: keeps M finite where the sample has no row at all.
    guard = np.eye(A.shape[0]) * float(np.sqrt(np.mean(np.einsum("ij,ij->i", image, image))) * 0.1)
    inner = optimal_geometry(np.concatenate([image, guard]), tolerance=5e-3, max_passes=40)
    values, vectors = np.linalg.eigh(inner.M)
    new = np.asarray(np.linalg.solve(A, vectors * np.sqrt(np.maximum(values, 0.0))), dtype=np.float64)
    # Row lengths are scaled so that the largest weight is 1: otherwise a shortened intercept is wasted.
    shortest = max(1.0, float(np.sqrt(_lengths(rest, new).min())))
    return new / shortest, inner.gap


def moments(basis: Basis, rows: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Estimate sum w_i u_i u_i' and sum w_i^2 u_i u_i' from a sample of the rows.

    The whole design has sum u_i u_i' = I. What the sample lacks of it, such as directions that belong to a
    few rows it has missed, is made up with the sample's smallest weight: rare rows are the long ones.
    """
    scaled = rows * (basis.n / rows.shape[0])
    A = (scaled * weights[:, None]).T @ rows
    B = (scaled * (weights**2)[:, None]).T @ rows
    if rows.shape[0] < basis.n:
        values, vectors = np.linalg.eigh(np.eye(rows.shape[1]) - scaled.T @ rows)
        lacking = (vectors * np.maximum(values, 0.0)) @ vectors.T
        smallest = float(weights.min())
        A += smallest * lacking
        B += smallest**2 * lacking
    return A, B


def noise_diagonal(A: Floats, root: Floats) -> Floats:
    """Return diag(A^-1 M^-1 A^-1), M = root root'."""
    inverse = np.linalg.solve(A @ root, np.eye(A.shape[0]))
    return np.einsum("ij,ij->j", inverse, inverse)


def _best_share(basis: Basis, rows: Floats, root: Floats, noise: float) -> tuple[float, float]:
    """Return expected error (units of R^2, summed over rows) and the best share of the intercept."""
    first = int(basis.intercept)
    n, r = basis.n, rows.shape[1]
    # Weights at an even split; they change little with the share.
    weights = 1.0 / np.maximum(1.0, np.sqrt(first * 0.5 + (1.0 - first * 0.5) * _lengths(rows, root)))
    A, B = moments(basis, rows, weights)
    released = noise**2 * noise_diagonal(A, root)
    sampling = _SAMPLING * np.einsum("ij,ji->i", np.linalg.solve(A, B), np.linalg.inv(A))
    flat = np.full(r, n * _SIGNAL / r)
    steep = basis.singular_values**2
    steep = steep * (n * _SIGNAL / steep.sum())

    def error(share: float) -> float:
        variance = _CAUTION * released / (1.0 - share) + sampling
        rest = sum(float(np.sum(prior * variance / (prior + variance))) for prior in (flat, steep)) / 2
        if not first:
            return rest
        mean = float(np.mean(weights))
        prior = n / 12.0
        # The intercept's metric is share * n in the coordinate of norm 1, and A is the mean weight there.
        v0 = noise**2 / (share * n * mean**2) + _SAMPLING
        return rest + prior * v0 / (prior + v0)

    shares = _SHARES if first else (0.0,)
    if first and noise == 0:
        shares = (1.0 / (r + 1),)
    costs = [error(share) for share in shares]
    i = int(np.argmin(costs))
    return costs[i], shares[i]
