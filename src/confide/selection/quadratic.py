"""Bounds of a bucket under a quadratic minorant: kernels.

For S = I + T let the centred score be at least C + min over beta on S of beta'(kappa G + L) beta / 2 - c'beta
- nu r^2 / 2, with L = lambda + nu (Lagrange, nu >= 0). Choose h with kappa G - diag(h) positive semidefinite
on every set that occurs (`Gram.theta`, `Gram.cover`; 0 always is), mu = L + h > 0, and any point (b, m) on I
and a set A of free columns. With Q = kappa G + L - diag(0 on I, mu elsewhere), convexity of beta'Q beta gives

    beta'Q beta / 2 >= v'beta - (b, m)'v / 2,    v = Q (b, m),

and what remains separates: if b solves v_I = c_I, then for every T

    F_{I+T} >= base - sum over T of w_j,   w_j = u_j^2 / (2 mu_j),   u_j = c_j - v_j,
    base = C - (b'c_I + m'v_A) / 2 - nu r^2 / 2.

With m = 0 it is the bound of selection.md. It touches F where (b, m) is the minimiser on S, so the best
m is the mean coefficient vector under the bucket's own weights: the log-weight is convex in m and stationary
where m_j = pi_j u_j / mu_j, pi_j the probability that j is in T. Given pi that is one small linear system,

    (kappa G + L + diag(0 on I, mu (1/pi - 1) on A)) (b, m) = c.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from confide.selection.kernels import solve_definite

#: Relative inflation of w and deflation of t = 1 diagonals: covers the rounding of a few dozen operations.
_INFLATE = 1 + 1e-12
_DEFLATE = 1 - 1e-9


@njit(cache=True, nogil=True, error_model="numpy")
def quadratic_bound(
    c: Any, diagonal: Any, rows: Any, slots: Any, pinned: Any, helpers: Any, shares: Any, free: Any,
    kappa: float, extra: Any, L: float, eta: float, least: float, exact_one: bool, point: Any, logs: Any,
    mu: Any,
) -> Any:  # fmt: skip
    """Fill logs[j] = eta w_j (-inf where not free), mu and the point; return (base, residual, spread).

    Parameters
    ----------
    c, diagonal : float64 [p]
    rows, slots : Gram columns, and where they are
    pinned, helpers : int64 [i], [a]
        I and A.
    shares : float64 [a]
        pi on A, in (0, 1].
    free : bool [p]
    kappa, L, eta : float
    extra : float64 [p]
        h.
    least : float
        Pivot that replaces a vanishing one (L = 0 with collinear I).
    exact_one : bool
        t = 1: mu_j is the exact Schur complement and A must be empty.
    point : float64 [i + a]

    Returns
    -------
    base : float
        Without C and nu r^2 / 2.
    residual : float
        Norm of c_I - v_I: costs radius times it.
    spread : float
        sum |(b, m)_j| ||x_j||.
    """
    i, a = pinned.size, helpers.size
    k = i + a
    p = c.size
    H = np.empty((k, k))
    rhs = np.empty(k)
    members = np.empty(k, dtype=np.int64)
    members[:i] = pinned
    members[i:] = helpers
    for x in range(k):
        rhs[x] = c[members[x]]
        row = slots[members[x]]
        for z in range(k):
            H[x, z] = kappa * rows[row, members[z]]
        H[x, x] += L
        if x >= i:
            j = members[x]
            H[x, x] += (L + extra[j]) * (1.0 / shares[x - i] - 1.0)
    factor = H.copy()
    known = k == 0 or solve_definite(factor, rhs, point)
    if not known:
        factor[:] = H
        for x in range(k):
            factor[x, x] += least + 1e-10 * H[x, x]
        known = solve_definite(factor, rhs, point)
    for x in range(k):
        known = known and -np.inf < point[x] < np.inf
    if not known:
        point[:] = 0.0
    u = c.copy()
    spread = 0.0
    for x in range(k):
        weight = kappa * point[x]
        row = slots[members[x]]
        for j in range(p):
            u[j] -= weight * rows[row, j]
        spread += abs(point[x]) * math.sqrt(diagonal[members[x]])
    base = 0.0
    residual = 0.0
    for x in range(i):
        j = pinned[x]
        # u_j here is c_j - (kappa G beta)_j; v_j = c_j - (u_j - L b_j).
        miss = u[j] - L * point[x]
        residual += miss * miss
        base -= point[x] * (c[j] - miss) / 2
    if exact_one and known:
        _schur(diagonal, rows, slots, pinned, kappa, L, factor, mu)
    elif exact_one:
        mu[:] = L
    for x in range(a):
        j = helpers[x]
        u[j] += extra[j] * point[i + x]
        base -= point[i + x] * (c[j] - u[j]) / 2
    for j in range(p):
        if not free[j]:
            logs[j] = -np.inf
            continue
        if not exact_one:
            mu[j] = L + extra[j]
        square = u[j] * u[j]
        if square == 0.0:
            logs[j] = 0.0
        elif mu[j] > 0.0:
            logs[j] = eta * (square / (2 * mu[j]) * _INFLATE)
        else:
            logs[j] = np.inf
    return base, math.sqrt(residual), spread


@njit(cache=True, nogil=True, error_model="numpy")
def _schur(
    diagonal: Any, rows: Any, slots: Any, pinned: Any, kappa: float, L: float, factor: Any, mu: Any
) -> None:
    """Fill mu_j = K_jj - K_jI K_II^-1 K_Ij, never below L; `factor` holds the Cholesky factor of K_II."""
    i = pinned.size
    p = diagonal.size
    solved = np.empty((i, p))
    for j in range(p):
        mu[j] = kappa * diagonal[j]
    for x in range(i):
        row = slots[pinned[x]]
        for j in range(p):
            solved[x, j] = kappa * rows[row, j]
        for y in range(x):
            f = factor[x, y]
            for j in range(p):
                solved[x, j] -= f * solved[y, j]
        inverse = 1.0 / factor[x, x]
        for j in range(p):
            solved[x, j] *= inverse
            mu[j] -= solved[x, j] * solved[x, j]
    for j in range(p):
        # Cancellation leaves an error of about 1e-15 kappa G_jj.
        mu[j] = L + max(0.0, mu[j] - 1e-13 * kappa * diagonal[j]) * _DEFLATE


@njit(cache=True, nogil=True, error_model="numpy")
def spread_of_rest(
    logs: Any, mu: Any, diagonal: Any, eta: float, kappa: float, extra: Any, left: float, helpers: Any
) -> Any:
    """Return E over the columns outside `helpers` of beta_j^2 and of (kappa G_jj - h_j) beta_j^2, roughly.

    For proposals only: their marginals are taken proportional to exp(logs), with total `left`.
    """
    top = -np.inf
    skip = np.zeros(logs.size, dtype=np.bool_)
    for x in range(helpers.size):
        skip[helpers[x]] = True
    for j in range(logs.size):
        if not skip[j]:
            top = max(top, logs[j])
    total = 0.0
    square = 0.0
    loose = 0.0
    if top == -np.inf or left <= 0.0:
        return 0.0, 0.0
    for j in range(logs.size):
        if not skip[j] and logs[j] > top - 60.0 and mu[j] > 0.0:
            x = math.exp(logs[j] - top)
            beta = 2 * logs[j] / (eta * mu[j])
            total += x
            square += x * beta
            loose += x * beta * (kappa * diagonal[j] - extra[j])
    if total == 0.0:
        return 0.0, 0.0
    return left * square / total, left * loose / total


@njit(cache=True, nogil=True, error_model="numpy")
def lagrange_scores(
    c: Any,
    rows: Any,
    slots: Any,
    supports: Any,
    kappa: float,
    ridge: float,
    nus: Any,
    radius: float,
    out: Any,
) -> None:
    """Fill out[i] with min of beta'(kappa G + L) beta / 2 - c'beta - nu r^2 / 2, -inf where unknown.

    Below the score by weak duality, and of second order in the error of nu: a cheap first test of a proposal.
    """
    s = supports.shape[1]
    H = np.empty((s, s))
    rhs = np.empty(s)
    beta = np.empty(s)
    for i in range(supports.shape[0]):
        known = True
        for x in range(s):
            row = slots[supports[i, x]]
            known &= row >= 0
            rhs[x] = c[supports[i, x]]
            if known:
                for z in range(x + 1):
                    H[x, z] = kappa * rows[row, supports[i, z]]
                H[x, x] += ridge + nus[i]
        out[i] = -np.inf
        if known and solve_definite(H, rhs, beta):
            total = 0.0
            for x in range(s):
                total += rhs[x] * beta[x]
            out[i] = -total / 2 - nus[i] * radius * radius / 2
