"""Numba kernels of subset selection: the fused first pass, exact-enough inner products, ball problems.

No kernel of this room raises: divisions follow IEEE 754 (`error_model="numpy"`), and each is either guarded
or made where `columns.TINY` and `SubsetProblem._check_scale` keep the divisor away from 0.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

#: Terms that are summed in any order before the compensated sum takes over: fixes DOT_ERROR.
_CHUNK = 32
#: A computed inner product is within DOT_ERROR * sum |x_i y_i| of the true one: 32 products and sums in any
#: order (Higham 2002, section 3.1: gamma_33), then Neumaier's sum of the chunks (2 units).
DOT_ERROR = 36 * 2.0**-53
#: A component of c along an eigenvector below this share of c counts as 0: it moves a score by 2^-60 of
#: radius ||c||, far inside the rounding that is paid for, and what remains divides without underflow.
_NOTHING = 2.0**-60

_FAST = {"reassoc", "contract", "nsz"}


@njit(cache=True, nogil=True, error_model="numpy", fastmath=_FAST)
def measure_rows(X: Any, y: Any, bound: Any, least: Any, squares: Any, products: Any) -> bool:
    """Read C-ordered X once; return whether all cells are 0 or from `least` to `bound` in size (no NaN)."""
    n, p = X.shape
    outside = 0
    for start in range(0, p, 4096):
        stop = min(start + 4096, p)
        for i in range(n):
            target = y[i]
            for j in range(start, stop):
                x = np.float64(X[i, j])
                size = abs(x)
                inside = (size <= bound) & ((size >= least) | (size == 0.0))
                outside += 0 if inside else 1
                if not inside:
                    x = bound if x > bound else (-bound if x < -bound else 0.0)
                squares[j] += x * x
                products[j] += x * target
    return outside == 0


@njit(cache=True, nogil=True, error_model="numpy", fastmath=_FAST)
def measure_columns(X: Any, y: Any, bound: Any, least: Any, squares: Any, products: Any) -> bool:
    """Read X once, given as its transpose [p, n] in C order; return as `measure_rows`."""
    p, n = X.shape
    outside = 0
    for j in range(p):
        square = 0.0
        product = 0.0
        for i in range(n):
            x = np.float64(X[j, i])
            size = abs(x)
            inside = (size <= bound) & ((size >= least) | (size == 0.0))
            outside += 0 if inside else 1
            if not inside:
                x = bound if x > bound else (-bound if x < -bound else 0.0)
            square += x * x
            product += x * y[i]
        squares[j] = square
        products[j] = product
    return outside == 0


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract"}, inline="never")
def _chunk(x: Any, y: Any, start: int, stop: int) -> float:
    total = 0.0
    for i in range(start, stop):
        total += x[i] * y[i]
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def dot(x: Any, y: Any) -> float:
    """Return x'y within `DOT_ERROR` sum |x_i y_i|, whatever the length."""
    total = 0.0
    lost = 0.0
    for start in range(0, x.size, _CHUNK):
        part = _chunk(x, y, start, min(start + _CHUNK, x.size))
        new = total + part
        lost += (total - new) + part if abs(total) >= abs(part) else (part - new) + total
        total = new
    return total + lost


@njit(cache=True, nogil=True, error_model="numpy")
def gram_of_pairs(A: Any, y: Any, supports: Any, G: Any, c: Any) -> None:
    """Fill c = A'y and the entries of G = A'A that occur in a row of `supports`; the others stay NaN."""
    for j in range(A.shape[1]):
        c[j] = dot(A[:, j], y)
    for i in range(supports.shape[0]):
        for a in range(supports.shape[1]):
            for b in range(a + 1):
                j = supports[i, a]
                k = supports[i, b]
                if np.isnan(G[j, k]):
                    G[j, k] = dot(A[:, j], A[:, k])
                    G[k, j] = G[j, k]


@njit(cache=True, nogil=True, error_model="numpy")
def eigen(A: Any, V: Any) -> None:
    """Diagonalise the symmetric A in place by Jacobi's rotations; V becomes the eigenvectors (columns)."""
    s = A.shape[0]
    for i in range(s):
        for j in range(s):
            V[i, j] = 1.0 if i == j else 0.0
    for _ in range(60):
        # Relative to the largest entry, whose square might not be a number that a double can hold.
        largest = 0.0
        for i in range(s):
            for j in range(i + 1):
                largest = max(largest, abs(A[i, j]))
        if largest == 0.0:
            return
        off = 0.0
        size = 0.0
        for i in range(s):
            size += (A[i, i] / largest) ** 2
            for j in range(i):
                off += (A[i, j] / largest) ** 2
        if off <= 1e-34 * size:
            return
        for i in range(s):
            for j in range(i + 1, s):
                if A[i, j] == 0.0:
                    continue
                # A rotation below the rounding of its diagonal is a plain zero.
                if abs(A[i, j]) <= 1e-18 * math.sqrt(abs(A[i, i] * A[j, j])):
                    A[i, j] = 0.0
                    A[j, i] = 0.0
                    continue
                theta = (A[j, j] - A[i, i]) / (2 * A[i, j])
                t = (1.0 if theta >= 0 else -1.0) / (abs(theta) + math.hypot(theta, 1.0))
                cosine = 1 / math.sqrt(t * t + 1)
                sine = t * cosine
                for k in range(s):
                    x = A[k, i]
                    z = A[k, j]
                    A[k, i] = cosine * x - sine * z
                    A[k, j] = sine * x + cosine * z
                for k in range(s):
                    x = A[i, k]
                    z = A[j, k]
                    A[i, k] = cosine * x - sine * z
                    A[j, k] = sine * x + cosine * z
                for k in range(s):
                    x = V[k, i]
                    z = V[k, j]
                    V[k, i] = cosine * x - sine * z
                    V[k, j] = sine * x + cosine * z


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
def _ball_norm(turned: Any, values: Any, nu: float) -> float:
    square = 0.0
    for k in range(turned.size):
        if turned[k] != 0.0:
            b = turned[k] / (values[k] + nu)
            square += b * b
    return math.sqrt(square)


@njit(cache=True, nogil=True, error_model="numpy")
def ball_quadratic(G: Any, c: Any, ridge: float, radius: float, beta: Any) -> float:
    """Minimise beta'(G + ridge I) beta / 2 - c'beta over ||beta|| <= radius; return the multiplier nu >= 0.

    Eigenvalues by Jacobi, then Newton on 1/||beta(nu)|| = 1/radius, which is concave and increasing in nu, so
    that Newton from the left climbs to the root without passing it (More & Sorensen 1983). Directions whose
    eigenvalue and coefficient both vanish stay at 0. The point is scaled into the ball, so it is feasible
    whatever the rounding: its value is an upper bound, of second order in the error of beta.
    """
    s = c.size
    A = G.copy()
    V = np.empty((s, s))
    eigen(A, V)
    values = np.empty(s)
    turned = np.zeros(s)
    for k in range(s):
        values[k] = max(A[k, k], 0.0) + ridge
        for i in range(s):
            turned[k] += V[i, k] * c[i]
    # Left of the root, whatever the spectrum: where the largest single term fills the ball. From here on no
    # term exceeds the radius, so that directions of almost no curvature cannot overflow.
    nu = 0.0
    length = 0.0
    for k in range(s):
        length = math.hypot(length, turned[k])
    for k in range(s):
        if abs(turned[k]) <= _NOTHING * length:
            turned[k] = 0.0
        nu = max(nu, abs(turned[k]) / radius - values[k])
    norm = 0.0
    for _ in range(200):
        norm = _ball_norm(turned, values, nu)
        if norm <= radius * (1 + 1e-15):
            break
        pull = 0.0
        for k in range(s):
            if turned[k] != 0.0:
                share = turned[k] / (values[k] + nu) / norm
                pull += share * share / (values[k] + nu)
        step = (norm - radius) / radius / pull
        if not 1e-16 * nu < step < np.inf:
            break
        nu += step
    if not norm <= radius * (1 + 1e-12):
        # Newton gave up: halve the interval, whose right end has a norm of at most the radius.
        low, high = nu, length / radius
        for _ in range(200):
            nu = (low + high) / 2
            if _ball_norm(turned, values, nu) <= radius:
                high = nu
            else:
                low = nu
        nu = high
    square = 0.0
    for k in range(s):
        turned[k] = turned[k] / (values[k] + nu) if turned[k] != 0.0 else 0.0
        square += turned[k] * turned[k]
    shrink = min(1.0, radius / math.sqrt(square) * (1 - 4e-16)) if square > 0 else 1.0
    for i in range(s):
        total = 0.0
        for k in range(s):
            total += V[i, k] * turned[k]
        beta[i] = total * shrink
    return nu


@njit(cache=True, nogil=True, error_model="numpy")
def quadratic_value(G: Any, c: Any, ridge: float, beta: Any) -> float:
    """Return beta'(G + ridge I) beta / 2 - c'beta."""
    total = 0.0
    for i in range(c.size):
        row = 0.0
        for j in range(c.size):
            row += G[i, j] * beta[j]
        total += beta[i] * (row / 2 - c[i]) + ridge / 2 * beta[i] * beta[i]
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def squared_scores(G: Any, c: Any, supports: Any, ridge: float, radius: float, out: Any) -> None:
    """Fill out[i] = F_S - ||y||^2 / 2 for the rows S of `supports`, from G [p, p] and c [p]; off the grid."""
    count, s = supports.shape
    block = np.empty((s, s))
    part = np.empty(s)
    beta = np.empty(s)
    for i in range(count):
        for j in range(s):
            part[j] = c[supports[i, j]]
            for k in range(s):
                block[j, k] = G[supports[i, j], supports[i, k]]
        ball_quadratic(block, part, ridge, radius, beta)
        out[i] = quadratic_value(block, part, ridge, beta)


@njit(cache=True, nogil=True, error_model="numpy")
def solve_definite(H: Any, rhs: Any, out: Any) -> bool:
    """Solve H out = rhs by Cholesky, H destroyed; False where a pivot is lost to rounding."""
    s = rhs.size
    for j in range(s):
        pivot = H[j, j]
        floor = 1e-14 * pivot
        for k in range(j):
            pivot -= H[j, k] * H[j, k]
        if not pivot > floor:
            return False
        H[j, j] = math.sqrt(pivot)
        for i in range(j + 1, s):
            total = H[i, j]
            for k in range(j):
                total -= H[i, k] * H[j, k]
            H[i, j] = total / H[j, j]
    for j in range(s):
        total = rhs[j]
        for k in range(j):
            total -= H[j, k] * out[k]
        out[j] = total / H[j, j]
    for j in range(s - 1, -1, -1):
        total = out[j]
        for k in range(j + 1, s):
            total -= H[k, j] * out[k]
        out[j] = total / H[j, j]
    return True
