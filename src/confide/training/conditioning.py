"""Conditioning matrices: what a public design tells about how to look at its rows.

X_pub = U S V' is public, so C = V f(S) V' is free. All kinds treat a direction whose singular value lies
at or below `rcond` times the largest as absent (pseudo-inverse): constant, duplicate, collinear and zero
columns and p > n are ordinary input.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from confide.errors import DataError, ParameterError

Floats = npt.NDArray[np.float64]
#: A dense array or a scipy sparse matrix, shape (n, d); scipy's stubs know no protocol for both.
PublicMatrix = Any

#: Public relative cut-off on singular values of a design held in memory.
RCOND = 1e-10
#: The same where only the Gram matrix is known: squaring loses half the digits.
GRAM_RCOND = 1e-7

KINDS = ("identity", "spectral", "power", "ridge", "optimal")


def finite_rows(X: PublicMatrix) -> PublicMatrix:
    """Return public rows as float64, dense C-ordered or CSR; refuse what is not a finite matrix.

    Raises
    ------
    DataError
        If `X` is not two-dimensional, has no rows, or holds NaN or infinity.
    """
    from scipy import sparse

    if sparse.issparse(X):
        X = sparse.csr_matrix(X, dtype=np.float64)
        values = X.data
    else:
        X = np.asarray(X, dtype=np.float64)
        values = X
    if X.ndim != 2:
        raise DataError(f"The public design has {X.ndim} dimensions.", "Pass a matrix of shape (n, d).")
    if X.shape[0] == 0:
        raise DataError("The public design has no rows.", "Pass at least one row.")
    if not np.isfinite(values).all():
        raise DataError(
            "The public design holds NaN or infinity.", "Impute or clip public columns in the schema."
        )
    return X


def spectrum(X: PublicMatrix) -> tuple[Floats, Floats]:
    """Return all d singular values (descending, zeros included) and right singular vectors V (columns).

    Dense designs go through a QR factorisation, so directions are right down to the machine precision;
    sparse ones through the Gram matrix.
    """
    X = finite_rows(X)
    n, d = X.shape
    if not isinstance(X, np.ndarray):
        return gram_spectrum(np.asarray((X.T @ X).todense(), dtype=np.float64))
    if d == 0:
        return np.zeros(0), np.zeros((0, 0))
    # Dividing by the largest entry keeps the norms of rows near 1e308 finite.
    top = float(np.abs(X).max())
    if top == 0:
        return np.zeros(d), np.eye(d)
    tall = np.linalg.qr(X / top, mode="r") if n > d else X / top
    _, s, vt = np.linalg.svd(tall, full_matrices=True)
    full = np.zeros(d)
    with np.errstate(over="ignore"):
        full[: s.size] = np.minimum(s * top, np.finfo(np.float64).max)
    return full, np.ascontiguousarray(vt.T)


def gram_spectrum(G: Floats) -> tuple[Floats, Floats]:
    """Return singular values and right singular vectors of a design from its Gram matrix G = X'X."""
    G = np.asarray(G, dtype=np.float64)
    if G.ndim != 2 or G.shape[0] != G.shape[1] or not np.isfinite(G).all():
        raise DataError("The Gram matrix is not a finite square matrix.", "Pass X'X of shape (d, d).")
    values, vectors = np.linalg.eigh((G + G.T) / 2)
    return np.sqrt(np.maximum(values[::-1], 0.0)), np.ascontiguousarray(vectors[:, ::-1])


def conditioning_matrix(
    X: PublicMatrix,
    kind: str = "spectral",
    scaled: bool = True,
    *,
    p: float = 0.5,
    rho: float = 0.1,
    rcond: float = RCOND,
    tolerance: float = 1e-7,
) -> Floats:
    """Return C so that conditioned rows are z = C x (C is symmetric for all kinds but ``"optimal"``).

    Parameters
    ----------
    X : ndarray or CSR matrix of shape (n, d)
        Public rows, with singular value decomposition U S V'.
    kind : {"identity", "spectral", "power", "ridge", "optimal"}
        ===========  ==============================================================================
        identity     I
        spectral     V S^-1 V'
        power        V (S/s_max)^-p V', between the two
        ridge        V (S^2 + rho^2 s_max^2)^(-1/2) V'
        optimal      M^(1/2) V S^-1 V', M the optimal geometry of the whitened rows: every row of X C'
                     has norm <= 1, and the Gaussian noise of a release costs least
        ===========  ==============================================================================
    scaled : bool
        Multiply by sqrt(n), so that learning rates keep their meaning; ``identity`` and ``power``, which
        keep the scale of X in its leading direction, are left as they are.
    p, rho : float
        Options of ``power`` (0 <= p <= 1) and ``ridge`` (rho >= 0).
    rcond : float
        Public relative cut-off on singular values.
    tolerance : float
        Primal-dual gap of ``optimal``.

    Returns
    -------
    ndarray of shape (d, d)
    """
    _check(kind, p, rho, rcond)
    X = finite_rows(X)
    if kind == "identity":
        return np.eye(X.shape[1])
    if kind == "optimal":
        from confide.training.optimal import geometry

        values, vectors = np.linalg.eigh(geometry(X, tolerance=tolerance, rcond=rcond).M)
        root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
        return root @ conditioning_matrix(X, "spectral", scaled, rcond=rcond)
    if not isinstance(X, np.ndarray):
        rcond = max(rcond, GRAM_RCOND)  # sparse designs go through their Gram matrix
    s, V = spectrum(X)
    return _assemble(s, V, X.shape[0], kind, scaled, p, rho, rcond)


def from_gram(
    G: Floats,
    n: int,
    kind: str = "spectral",
    scaled: bool = True,
    *,
    p: float = 0.5,
    rho: float = 0.1,
    rcond: float = GRAM_RCOND,
) -> Floats:
    """Return the conditioning matrix of a streamed design from its Gram matrix G = X'X and row count n.

    Every kind but ``"optimal"``, which needs rows: see `confide.training.geometry`.
    """
    _check(kind, p, rho, rcond)
    if not isinstance(n, int) or n < 1:
        raise ParameterError(f"The 'n' parameter is {n!r}.", "Pass the number of rows, an integer >= 1.")
    if kind == "optimal":
        raise ParameterError(
            "The 'kind' parameter is 'optimal', which a Gram matrix does not determine.",
            "Pass rows to conditioning_matrix or geometry.",
        )
    s, V = gram_spectrum(G)
    return _assemble(s, V, n, kind, scaled, p, rho, rcond)


def diagonal(s: Floats, kind: str, p: float, rho: float, rcond: float) -> Floats:
    """Return f(S), the unscaled diagonal of C in spectral coordinates; 0 in absent directions."""
    top = float(s.max(initial=0.0))
    if kind == "identity":
        return np.ones_like(s)
    kept = s > rcond * top if top > 0 else np.zeros(s.shape, dtype=bool)
    safe = np.where(kept, s, 1.0)
    if kind == "spectral":
        values = 1.0 / safe
    elif kind == "power":
        values = (safe / top) ** -p if top > 0 else safe
    else:
        values = 1.0 / np.hypot(safe, rho * top)
    return np.where(kept, values, 0.0)


def _assemble(
    s: Floats, V: Floats, n: int, kind: str, scaled: bool, p: float, rho: float, rcond: float
) -> Floats:
    values = diagonal(s, kind, p, rho, rcond)
    factor = math.sqrt(n) if scaled and kind in ("spectral", "ridge") else 1.0
    return (V * (values * factor)) @ V.T


def _check(kind: str, p: float, rho: float, rcond: float) -> None:
    if kind not in KINDS:
        raise ParameterError(
            f"The conditioning 'kind' is {kind!r}.", f"Pass one of {', '.join(map(repr, KINDS))}."
        )
    if not 0 <= p <= 1:
        raise ParameterError(f"The 'p' of power conditioning is {p!r}.", "Pass a number in [0, 1].")
    if not (0 <= rho < math.inf):
        raise ParameterError(
            f"The 'rho' of ridge conditioning is {rho!r}.", "Pass a finite non-negative number."
        )
    if not 0 <= rcond < 1:
        raise ParameterError(f"The 'rcond' parameter is {rcond!r}.", "Pass a number in [0, 1).")
