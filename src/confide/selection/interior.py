"""Interior point method for one support: any loss of the room, a ridge, a ball, and a certified gap.

The problem has few variables (the s coefficients) and many records, each with one multiplier in a box:

    min over ||beta|| <= r of  sum_i loss(y_i, x_i'beta) + sum_j ridge_j beta_j^2 / 2.

Every iteration costs one pass over the n x s block and one s x s system, and every iterate gives a feasible
beta (an upper bound) and multipliers inside their boxes (a lower bound), so the returned gap is a certificate
that no stopping rule can spoil. The boxes enter by barriers; the ball does not (as a barrier it jams): each
Newton step minimises its quadratic model over the ball exactly (`kernels.ball_quadratic`).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from confide.selection.kernels import ball_quadratic, solve_definite
from confide.selection.losses import HINGE, HUBER, LOGISTIC, QUANTILE

_HUBER, _QUANTILE, _HINGE, _LOGISTIC = HUBER, QUANTILE, HINGE, LOGISTIC
_CHUNK = 64
#: A multiplier of the ball that costs nothing, and that no square of a normal size divides to infinity.
_LEAST_NU = 2.0**-500


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
def loss_value(code: int, shape: float, y: float, z: float) -> float:
    """Return loss(y, z) of one record."""
    if code == _HINGE:
        return max(0.0, 1.0 - y * z)
    if code == _LOGISTIC:
        m = -y * z
        return (m if m > 0 else 0.0) + math.log1p(math.exp(-abs(m)))
    r = y - z
    if code == _QUANTILE:
        return max(shape * r, (shape - 1.0) * r)
    size = abs(r)
    if code == _HUBER and size > shape:
        return shape * (size - shape / 2)
    return r * r / 2


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
def box_of(code: int, shape: float, y: float) -> Any:
    """Return the bounds of one record's multiplier."""
    if code == _HUBER:
        return -shape, shape
    if code == _QUANTILE:
        return shape - 1.0, shape
    return min(y, 0.0), max(y, 0.0)


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
def dual_term(code: int, y: float, alpha: float) -> float:
    """Return -conjugate(y, alpha) for alpha inside the box."""
    if code == _LOGISTIC:
        t = min(max(alpha * y, 0.0), 1.0)
        total = 0.0
        if t > 0.0:
            total -= t * math.log(t)
        if t < 1.0:
            total -= (1.0 - t) * math.log1p(-t)
        return total
    if code == _HUBER:
        return alpha * y - alpha * alpha / 2
    return alpha * y


@njit(cache=True, nogil=True, error_model="numpy")
def ball_conjugate(v: Any, ridge: Any, radius: float) -> float:
    """Return an upper bound on the supremum over ||beta|| <= radius of v'beta - sum ridge beta^2 / 2.

    For any nu >= 0 it is at most sum v^2 / (2 (ridge + nu)) + nu r^2 / 2; the best nu by Newton, and whatever
    nu the iteration ends with is a valid bound.
    """
    nu = 0.0
    length = 0.0
    for j in range(v.size):
        nu = max(nu, abs(v[j]) / radius - ridge[j])
        length = max(length, abs(v[j]))
    if length > 0.0 and radius < np.inf:
        # No divisor below is 0.
        nu = max(nu, _LEAST_NU)
    for _ in range(100):
        square = 0.0
        for j in range(v.size):
            if v[j] != 0.0:
                b = v[j] / (ridge[j] + nu)
                square += b * b
        norm = math.sqrt(square)
        if norm <= radius * (1 + 1e-15):
            break
        pull = 0.0
        for j in range(v.size):
            if v[j] != 0.0:
                share = v[j] / (ridge[j] + nu) / norm
                pull += share * share / (ridge[j] + nu)
        step = (norm - radius) / radius / pull
        if not 1e-16 * nu < step < np.inf:
            break
        nu += step
    total = 0.0
    if nu > 0.0:
        total = nu * radius * radius / 2
    for j in range(v.size):
        if v[j] != 0.0:
            total += v[j] * v[j] / (2 * (ridge[j] + nu))
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def fit_values(
    A: Any, y: Any, code: int, shape: float, ridge: Any, beta: Any, alpha: Any, z: Any, products: Any
) -> Any:
    """Fill z = A beta and products = A'alpha; return (primal, dual sum), both less sum loss(y_i, 0)."""
    n, s = A.shape
    primal = 0.0
    dual = 0.0
    lost_p = 0.0
    lost_d = 0.0
    products[:] = 0.0
    for start in range(0, n, _CHUNK):
        stop = min(start + _CHUNK, n)
        for i in range(start, stop):
            z[i] = 0.0
        for j in range(s):
            b = beta[j]
            part = 0.0
            for i in range(start, stop):
                z[i] += A[i, j] * b
                part += A[i, j] * alpha[i]
            products[j] += part
        part_p = 0.0
        part_d = 0.0
        for i in range(start, stop):
            origin = loss_value(code, shape, y[i], 0.0)
            part_p += loss_value(code, shape, y[i], z[i]) - origin
            part_d += dual_term(code, y[i], alpha[i]) - origin
        new = primal + part_p
        lost_p += (primal - new) + part_p if abs(primal) >= abs(part_p) else (part_p - new) + primal
        primal = new
        new = dual + part_d
        lost_d += (dual - new) + part_d if abs(dual) >= abs(part_d) else (part_d - new) + dual
        dual = new
    primal += lost_p
    dual += lost_d
    for j in range(s):
        primal += ridge[j] * beta[j] * beta[j] / 2
    return primal, dual


@njit(cache=True, nogil=True, error_model="numpy")
def solve_ball(
    A: Any,
    y: Any,
    code: int,
    shape: float,
    ridge: Any,
    radius: float,
    tolerance: float,
    limit: int,
    beta: Any,
    alpha: Any,
) -> Any:
    """Minimise over the ball; return (value, gap), the value less sum loss(y_i, 0).

    Parameters
    ----------
    A : float64 array [n, s], F order
    y : float64 array [n]
    code, shape : int, float
        Loss; not squared.
    ridge : float64 array [s]
    radius : float
    tolerance : float
        Stop when the certified gap is below it.
    limit : int
        Iterations after which the best pair so far is returned with its gap.
    beta, alpha : float64 arrays [s], [n]
        Filled with the best feasible point and the best multipliers.

    Notes
    -----
    The value is that of a feasible point, the gap is value - best dual value: F <= value <= F + gap, up to
    the rounding of the sums (compensated, below 100 units of sum |loss(y, z) - loss(y, 0)|).
    """
    n, s = A.shape
    smooth = code == _LOGISTIC
    curved = 1.0 if code == _HUBER else 0.0
    b = np.zeros(s)
    a = np.empty(n)
    p = np.zeros(n)
    q = np.zeros(n)
    z = np.zeros(n)
    shift = np.empty(n)
    W = np.empty(n)
    products = np.zeros(s)
    H = np.empty((s, s))
    rhs = np.empty(s)
    delta = np.empty(s)
    model = np.empty(s)
    target = np.empty(s)
    mu = 0.0
    for i in range(n):
        low, high = box_of(code, shape, y[i])
        width = high - low
        a[i] = (low + high) / 2
        # Duals of the order of the residual keep the first step long.
        p[i] = max(abs(y[i]), 1e-3 * width) + 1e-12
        q[i] = p[i]
        mu = max(mu, p[i] * width / 2)
    best_value = np.inf
    best_dual = -np.inf
    previous = 1.0
    for _ in range(limit):
        if smooth:
            for i in range(n):
                total = 0.0
                for j in range(s):
                    total += A[i, j] * b[j]
                m = y[i] * total
                e = math.exp(-abs(m))
                t = 1.0 / (1.0 + e)
                t = 1.0 - t if m > 0 else t
                if m > 0:
                    t = e / (1.0 + e)
                a[i] = y[i] * t
                W[i] = max(e / ((1.0 + e) * (1.0 + e)), 1e-300)
        value, dual = fit_values(A, y, code, shape, ridge, b, a, z, products)
        dual -= ball_conjugate(products, ridge, radius)
        if value < best_value:
            best_value = value
            beta[:] = b
        if dual > best_dual:
            best_dual = dual
            alpha[:] = a
        if best_value - best_dual <= tolerance:
            break
        # Average complementarity, then a target below it: bold after a long step, careful after a short one.
        if not smooth:
            total = 0.0
            for i in range(n):
                low, high = box_of(code, shape, y[i])
                total += p[i] * (a[i] - low) + q[i] * (high - a[i])
            mu = total / (2.0 * n) * min(0.7, max(0.03, (1.0 - previous) ** 2 + 0.03))
        for i in range(n):
            if smooth:
                shift[i] = 0.0
            else:
                low, high = box_of(code, shape, y[i])
                below = a[i] - low
                above = high - a[i]
                W[i] = 1.0 / (curved + p[i] / below + q[i] / above)
                shift[i] = W[i] * (y[i] - z[i] - curved * a[i] + mu / below - mu / above)
        for j in range(s):
            total = 0.0
            pull = 0.0
            for i in range(n):
                total += A[i, j] * shift[i]
                pull += A[i, j] * (W[i] * z[i])
            rhs[j] = products[j] + total
            model[j] = rhs[j] + pull
            for k in range(j + 1):
                total = 0.0
                for i in range(n):
                    total += A[i, j] * A[i, k] * W[i]
                H[j, k] = total
                H[k, j] = total
            H[j, j] += ridge[j]
        nu = ball_quadratic(H, model, 0.0, radius, target)
        # The step itself from its own right side: `model` cancels where W is large, near the solution.
        for j in range(s):
            rhs[j] -= (ridge[j] + nu) * b[j]
            H[j, j] += nu
        size = solve_definite(H, rhs, delta)
        square = 0.0
        for j in range(s):
            square += (b[j] + delta[j]) ** 2
        if not size or not square <= radius * radius * (1 + 1e-9):
            for j in range(s):
                delta[j] = target[j] - b[j]
        elif square > radius * radius * (1 - 1e-15):
            shrink = radius / math.sqrt(square) * (1 - 4e-16)
            for j in range(s):
                delta[j] = (b[j] + delta[j]) * shrink - b[j]
        known = True
        for j in range(s):
            known &= -np.inf < delta[j] < np.inf
        if not known:
            # Nothing to go by: the best pair so far stands.
            break
        step = _step_length(A, code, shape, y, a, p, q, W, shift, delta, z, mu)
        if smooth:
            # Full Newton steps may overshoot far from the solution: shorten until the value falls.
            for _halving in range(40):
                for j in range(s):
                    rhs[j] = b[j] + step * delta[j]
                new, _d = fit_values(A, y, code, shape, ridge, rhs, a, z, products)
                if new <= value + 1e-14 * abs(value):
                    break
                step /= 2
        if not smooth:
            for i in range(n):
                low, high = box_of(code, shape, y[i])
                below = a[i] - low
                above = high - a[i]
                move = shift[i] - W[i] * z[i]  # z holds A delta here
                dp = mu / below - p[i] - p[i] * move / below
                dq = mu / above - q[i] + q[i] * move / above
                a[i] += step * move
                p[i] = max(p[i] + step * dp, 1e-300)
                q[i] = max(q[i] + step * dq, 1e-300)
                # Rounding must not put a multiplier on its wall.
                a[i] = min(max(a[i], low + 1e-14 * (high - low)), high - 1e-14 * (high - low))
        for j in range(s):
            b[j] += step * delta[j]  # between two points of the ball
        previous = step
    return best_value, best_value - best_dual


@njit(cache=True, nogil=True, error_model="numpy")
def _step_length(
    A: Any,
    code: int,
    shape: float,
    y: Any,
    a: Any,
    p: Any,
    q: Any,
    W: Any,
    shift: Any,
    delta: Any,
    z: Any,
    mu: float,
) -> float:
    """Return the longest step (at most 1) that keeps all slacks positive; z becomes A delta."""
    n, s = A.shape
    step = 1.0
    if code == _LOGISTIC:
        return step
    for i in range(n):
        z[i] = 0.0
    for j in range(s):
        for i in range(n):
            z[i] += A[i, j] * delta[j]
    for i in range(n):
        low, high = box_of(code, shape, y[i])
        below = a[i] - low
        above = high - a[i]
        move = shift[i] - W[i] * z[i]
        if move < 0.0:
            step = min(step, -0.99 * below / move)
        elif move > 0.0:
            step = min(step, 0.99 * above / move)
        dp = mu / below - p[i] - p[i] * move / below
        dq = mu / above - q[i] + q[i] * move / above
        if dp < 0.0:
            step = min(step, -0.99 * p[i] / dp)
        if dq < 0.0:
            step = min(step, -0.99 * q[i] / dq)
    return step
