"""The best Gaussian noise geometry for a public design, with a certified primal-dual gap.

A statistic M^(1/2) sum_i u_i y_i has L2 sensitivity R max_i (u_i' M u_i)^(1/2), and noise of that size
costs tr M^-1 in the squared error of the fitted values. So the best M solves

    minimise tr M^-1   subject to   u_i' M u_i <= 1 for every row i.                              (primal)

With design weights p on the simplex and S = sum_i p_i u_i u_i', every feasible M has
(tr S^(1/2))^2 <= tr(M^-1) tr(M S) <= tr M^-1 (Cauchy-Schwarz), so that

    maximise (tr S^(1/2))^2                                                                       (dual)

bounds the primal from below (Kiefer's Phi_1/2 criterion), and M = S^(-1/2) / max_i u_i' S^(-1/2) u_i is
feasible: both ends of the gap come from one p. The gap is exact whatever the solver did, and everything
here is computed from public rows, so accuracy is a matter of utility, never of privacy.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from confide.errors import DataError, ParameterError
from confide.training.conditioning import RCOND, PublicMatrix, conditioning_matrix, finite_rows

Floats = npt.NDArray[np.float64]

#: Exponent of the multiplicative update. 1 is the classical monotone step; 2 needs about a third of the
#: passes and is guarded: a step that lowers the dual is taken back and repeated with exponent 1.
_EXPONENT = 2.0
#: Newton steps cost m^3 in the working set's size; above this many rows first-order steps are cheaper.
_LARGEST_NEWTON = 1500


@dataclass(frozen=True)
class Geometry:
    """A feasible noise geometry and what is known about its distance from the best one.

    Attributes
    ----------
    M : ndarray of shape (d, d)
        Symmetric, non-negative, scaled so that the largest z' M z over the rows is 1 (to rounding).
    primal : float
        tr M^-1 on the span of the rows: unit-noise squared error of the n fitted values together.
    dual : float
        A valid lower bound on tr M^-1 over every feasible M.
    weights : ndarray of shape (n,)
        The design weights that certify `dual`; they sum to 1.
    iterations : int
        Passes over all rows.
    """

    M: Floats
    primal: float
    dual: float
    weights: Floats = field(repr=False)
    iterations: int = 0

    @property
    def gap(self) -> float:
        """Relative gap (primal - dual) / dual, >= 0 up to rounding."""
        return (self.primal - self.dual) / self.dual if self.dual > 0 else 0.0


def geometry(X: PublicMatrix, *, tolerance: float = 1e-7, rcond: float = RCOND) -> Geometry:
    """Return the optimal geometry for the whitened rows z = C x, C the unscaled spectral conditioning.

    Parameters
    ----------
    X : ndarray or CSR matrix of shape (n, d)
        Public rows; rank-deficient, duplicate, constant and zero rows or columns are all allowed.
    tolerance : float
        Relative primal-dual gap to stop at.
    rcond : float
        Public relative cut-off below which a singular direction of `X` does not exist.

    Returns
    -------
    Geometry
        `M` acts on z (shape d x d) and is zero outside the span of the rows.

    Raises
    ------
    DataError
        If `X` has no rows or holds a non-finite value.

    Notes
    -----
    ====================  ============================================================
    edge case             result
    ====================  ============================================================
    X all zero            M = 0, primal = dual = 0
    p > n, rank n         every whitened row has leverage 1, so M is the projector on their span
    duplicate rows        merged for the solver; their weight is shared
    ====================  ============================================================
    """
    C = conditioning_matrix(X, "spectral", scaled=False, rcond=rcond)
    Z = np.asarray(finite_rows(X) @ C, dtype=np.float64)
    # An orthonormal basis of the rows' span: the projector Z'Z has eigenvalues 1 (span) and 0.
    values, vectors = np.linalg.eigh(Z.T @ Z)
    basis = vectors[:, values > 0.5]
    inner = optimal_geometry(Z @ basis, tolerance=tolerance)
    return Geometry(basis @ inner.M @ basis.T, inner.primal, inner.dual, inner.weights, inner.iterations)


def optimal_geometry(rows: Floats, *, tolerance: float = 1e-7, max_passes: int = 200) -> Geometry:
    """Solve the design problem for dense rows of full column rank.

    Parameters
    ----------
    rows : ndarray of shape (n, r)
        Public rows u_i whose second-moment matrix is non-singular.
    tolerance : float
        Relative gap to stop at.
    max_passes : int
        Largest number of passes over all rows; what is returned then is still feasible and its gap valid.

    Returns
    -------
    Geometry
    """
    if not tolerance > 0:
        raise ParameterError(f"The 'tolerance' parameter is {tolerance!r}.", "Pass a positive number.")
    n, r = rows.shape
    if r == 0 or n == 0:
        return Geometry(np.zeros((r, r)), 0.0, 0.0, np.full(n, 1.0 / max(n, 1)))
    distinct, inverse, counts = distinct_rows(rows)
    scale = float(np.sqrt(np.max(np.einsum("ij,ij->i", distinct, distinct))))
    if not scale > 0:
        return Geometry(np.zeros((r, r)), 0.0, 0.0, np.full(n, 1.0 / n))
    solver = _Solver(distinct / scale)
    solver.run(tolerance, max_passes)
    M, primal, dual = solver.best
    weights = (solver.best_weights / counts)[inverse]
    return Geometry(M / scale**2, primal * scale**2, dual * scale**2, weights, solver.passes)


def distinct_rows(rows: Floats) -> tuple[Floats, npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Return distinct rows, position of each row among them, and multiplicities.

    Rows are compared by one fixed random projection: one-hot tables have few distinct rows, and sorting
    numbers is far cheaper than sorting rows. A collision of projections merges two rows; `_Solver` then
    works without one of them, which callers repair by scaling with the maximum over all rows.
    """
    key = rows @ np.random.default_rng(20260618).standard_normal(rows.shape[1])
    _, first, inverse, counts = np.unique(key, return_index=True, return_inverse=True, return_counts=True)
    return rows[first], inverse.reshape(-1), counts


class _Solver:
    """Multiplicative weights over all rows, then Newton steps on the rows that can carry weight."""

    def __init__(self, rows: Floats) -> None:
        self.rows = rows
        norms = np.einsum("ij,ij->i", rows, rows)
        self.p = norms / norms.sum()
        self.passes = 0
        self.best_weights = self.p
        self.best: tuple[Floats, float, float] = (np.zeros((0, 0)), np.inf, 0.0)

    def evaluate(self, p: Floats) -> Floats:
        """One pass: keep the better primal and the better dual; return g_i / tr S^(1/2)."""
        self.passes += 1
        root, inverse_root = _roots(self.rows, p)
        g = _quadratic(self.rows, inverse_root)
        trace, top = float(root), float(g.max())
        M, primal, dual = self.best
        if top * trace < primal:
            M, primal = inverse_root @ inverse_root.T / top, top * trace
        if trace * trace > dual:
            dual, self.best_weights = trace * trace, p
        self.best = (M, primal, dual)
        return g / trace

    @property
    def gap(self) -> float:
        return self.best[1] / self.best[2] - 1.0

    def run(self, tolerance: float, max_passes: int) -> None:
        m, r = self.rows.shape
        ratio = np.ones(m)
        for _ in range(12):
            ratio = self.evaluate(self.p)
            if self.gap <= tolerance or self.passes >= max_passes:
                return
            self.p = _step(self.p, ratio, _EXPONENT)
        while self.passes < max_passes and self.gap > tolerance:
            before = self.gap
            # Rows that carry weight or nearly reach the largest g; the gap bounds how far g can still move.
            working = np.flatnonzero((self.p > 1e-3 / m) | (ratio > 1.0 - 4.0 * self.gap))
            if working.size > 30 * r * (r + 1) or working.size > m // 2:
                working = np.arange(m)
            inner = self.rows[working]
            weights = np.maximum(self.p[working], 1e-12 / m)
            weights /= weights.sum()
            # Newton pays once the identity of the support is roughly known, and only for a fine tolerance.
            newton = self.gap < 0.1 and tolerance < 1e-3 and working.size <= _LARGEST_NEWTON
            weights = _interior(inner, weights, tolerance) if newton else _first_order(inner, weights, 10)
            self.p = np.zeros(m)
            self.p[working] = weights / weights.sum()
            ratio = self.evaluate(self.p)
            if newton and self.gap > 0.9 * before:
                # Newton stalled in rounding, or outside rows took over: let those rows in.
                self.p = _step(self.p + 1e-9 / m, ratio, 1.0)
                ratio = self.evaluate(self.p)
                if self.gap > 0.999 * before:
                    return


def _roots(rows: Floats, p: Floats) -> tuple[float, Floats]:
    """Return tr S^(1/2) and a factor F with F F' = S^(-1/2)."""
    values, vectors = np.linalg.eigh((rows * p[:, None]).T @ rows)
    values = np.maximum(values, values[-1] * 1e-15)
    return float(np.sqrt(values).sum()), vectors * values**-0.25


def _quadratic(rows: Floats, factor: Floats) -> Floats:
    image = rows @ factor
    return np.einsum("ij,ij->i", image, image)


def _step(p: Floats, ratio: Floats, exponent: float) -> Floats:
    p = p * ratio**exponent
    return p / p.sum()


def _first_order(rows: Floats, p: Floats, steps: int) -> Floats:
    """Guarded multiplicative steps on the working rows."""
    best, exponent = 0.0, _EXPONENT
    kept = p
    for _ in range(steps):
        trace, factor = _roots(rows, p)
        if trace < best:
            p, exponent, best = kept, 1.0, 0.0
            continue
        best, kept = trace, p
        p = _step(p, _quadratic(rows, factor) / trace, exponent)
    return kept


def _interior(rows: Floats, p: Floats, tolerance: float, steps: int = 60) -> Floats:
    """Primal-dual interior point for: maximise 2 tr S^(1/2) - sum p over p >= 0.

    The objective is homogeneous of degree 1/2 in p, so its unconstrained scale replaces the simplex: the
    optimality conditions are g_i + z_i = 1, p_i z_i = 0 with g_i = u_i' S^(-1/2) u_i. The derivative of g
    is -K, K_ij = sum_kl c_kl v_ik v_il v_jk v_jl in the eigenbasis of S (Daleckii-Krein formula for
    S^(-1/2)), c_kl = 1 / (s_k s_l (s_k + s_l)) with s the eigenvalues of S^(1/2).
    """
    m, r = rows.shape
    upper = np.triu_indices(r)
    twice = np.where(upper[0] == upper[1], 1.0, 2.0)
    trace, factor = _roots(rows, p)
    p = p * trace**2  # at this scale the weights' mean of g is 1
    slack = np.maximum(1.0 - _quadratic(rows, factor) / trace, 1e-2)
    for _ in range(steps):
        values, vectors = np.linalg.eigh((rows * p[:, None]).T @ rows)
        s = np.sqrt(np.maximum(values, values[-1] * 1e-15))
        v = rows @ vectors
        g = np.einsum("ij,ij->i", v / s, v)
        mean = float(p @ slack) / m
        if max(mean * m / float(p.sum()), float(np.abs(1.0 - g - slack).max())) < 0.1 * tolerance:
            break
        mu = 0.1 * mean
        c = 1.0 / (np.outer(s, s) * np.add.outer(s, s))
        features = v[:, upper[0]] * v[:, upper[1]] * np.sqrt(c[upper] * twice)
        change = _solve(features, slack / p, g - 1.0 + mu / p)
        change_slack = (mu - p * slack - slack * change) / p
        length = min(1.0, 0.95 * _to_boundary(p, change), 0.95 * _to_boundary(slack, change_slack))
        p = p + length * change
        slack = slack + length * change_slack
    return p


def _solve(features: Floats, diagonal: Floats, right: Floats) -> Floats:
    """Solve (F F' + diag) x = right, through the smaller of the two systems."""
    import scipy.linalg

    m, k = features.shape
    if m <= k:
        matrix = features @ features.T
        matrix[np.diag_indices(m)] += diagonal
        return scipy.linalg.solve(matrix, right, assume_a="pos", check_finite=False)
    scaled = features / diagonal[:, None]
    inner = features.T @ scaled
    inner[np.diag_indices(k)] += 1.0
    return right / diagonal - scaled @ scipy.linalg.solve(
        inner, scaled.T @ right, assume_a="pos", check_finite=False
    )


def _to_boundary(x: Floats, change: Floats) -> float:
    falling = change < 0
    return float(np.min(x[falling] / -change[falling])) if falling.any() else np.inf


def working_rows(rows: Floats, limit: int) -> npt.NDArray[np.intp]:
    """Choose at most `limit` rows for a streamed design: half the longest, half evenly spread.

    Any choice is valid (the caller scales M by the maximum over all rows); long rows are those that bind.
    """
    n = rows.shape[0]
    if limit < 1:
        raise ParameterError(f"The 'limit' parameter is {limit!r}.", "Pass an integer >= 1.")
    if n == 0:
        raise DataError("The public design has no rows.", "Pass at least one row.")
    if n <= limit:
        return np.arange(n)
    norms = np.einsum("ij,ij->i", rows, rows)
    longest = np.argpartition(-norms, limit // 2)[: limit // 2]
    spread = np.linspace(0, n - 1, limit - limit // 2).astype(np.intp)
    return np.unique(np.concatenate([longest, spread]))
