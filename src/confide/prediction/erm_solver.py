"""Minimise a sum of losses plus a ridge to a public distance of the optimum, which is always reached.

Newton's method, with a whole step where that halves the least gradient so far and else with an exact line
search; steps by Gauss for two classes and by conjugate gradients for more. The objective is ridge-strongly
convex, so a point with gradient g lies within ||g|| / ridge of the optimum. The gradient is summed in blocks
with compensation, and a public bound on its rounding error is added before it is believed.

It ends: whole steps are few, and between two of them Newton's method with an exact line search converges
globally, for the Huber hinge, which is piecewise quadratic, in finitely many steps (Sun 1997, Mathematical
Programming 76). Halving steps do not do for the hinge: where few rows lie on its corner the Hessian is almost
the ridge alone, a Newton step overshoots by a factor of n / ridge, and what is left after halving crawls.
Should a thousand steps not be enough, gradient descent of a fixed step takes over, whose distance after T
steps is known beforehand: then T ends it, whatever was computed. tau is the same public number throughout.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from confide.prediction.erm_losses import BinaryLoss

Floats = NDArray[np.float64]

UNIT = 2.0**-53
#: Rows whose products are summed by a plain matrix product.
BLOCK = 1024
_NEWTON = 1000
#: Of a line search: doublings of its bracket, steps inside it, and what remains of the slope.
_DOUBLINGS, _SEARCH, _CLOSE = 100, 100, 1e-9
#: Cholesky up to this many unknowns.
_DENSE = 1200


@dataclass(frozen=True)
class Accuracy:
    """Public numbers of a fit.

    Attributes
    ----------
    weights : float
        W: the optimum and what is computed have norm below it. The objective at the optimum is at most that
        at 0, so ridge / 2 ||w||^2 <= rows * at_zero, doubled here.
    gradient_error : float
        Bound on the rounding error of a computed gradient at a point of norm at most W.
    tolerance : float
        tau: what is returned lies within tau of the optimum.
    logit_error : float
        Bound on the rounding error of a logit of a row of norm 1.
    """

    weights: float
    gradient_error: float
    tolerance: float
    logit_error: float


def accuracy(
    rows: int, columns: int, ridge: float, *, at_zero: float, slope: float, curvature: float, shift: float
) -> Accuracy:
    """Return the public accuracy for at most `rows` rows of norm <= 1.

    Parameters
    ----------
    rows : int
        Public bound on n.
    columns : int
        Of a row, p + 1; for several classes, times their number.
    ridge : float
        Lambda.
    at_zero, slope, curvature : float
        Of the loss: value at 0, largest norm of the gradient in the logits, largest curvature.
    shift : float
        Largest change of the gradient from one changed row; tau costs a millionth of it.

    Notes
    -----
    A logit errs by (columns + 2) u W (Higham 2002, eq. 3.5, with room), a slope by that times the curvature
    and 16 u of its own; the block sums of a gradient by (BLOCK + columns + 8) u n slope, their compensated
    total by 4 u more.
    """
    weights = 2.0 * math.sqrt(2.0 * rows * at_zero / ridge) + 1.0
    logit = (columns + 2) * UNIT * weights * 1.01
    gradient = rows * (curvature * logit + slope * (BLOCK + columns + 32) * UNIT) + 4 * ridge * weights * UNIT
    tolerance = (1e-6 * shift + 4.0 * gradient) / ridge
    return Accuracy(weights, gradient, tolerance, logit)


class Objective(Protocol):
    """A sum of losses of rows with a ridge; w is flat."""

    @property
    def ridge(self) -> float:
        """Lambda."""
        ...

    @property
    def smooth(self) -> float:
        """Largest eigenvalue of the Hessian."""
        ...

    def start(self) -> Floats:
        """Return zeros."""
        ...

    def value(self, w: Floats) -> float:
        """Return the objective."""
        ...

    def gradient(self, w: Floats) -> Floats:
        """Return the gradient."""
        ...

    def direction(self, w: Floats, gradient: Floats) -> Floats:
        """Return an approximate Newton step."""
        ...

    def along(self, w: Floats, step: Floats) -> Callable[[float], float]:
        """Return the derivative of t -> value(w + t step)."""
        ...


def minimise(objective: Objective, accuracy: Accuracy) -> Floats:
    """Return a point within `accuracy.tolerance` of the optimum."""
    target = accuracy.tolerance * objective.ridge - accuracy.gradient_error
    w = objective.start()
    gradient = objective.gradient(w)
    size = least = norm(gradient)
    for _ in range(_NEWTON):
        if size <= target and norm(w) <= accuracy.weights:
            return w
        moved = _step(objective, w, gradient, least)
        if moved is None:
            break
        w, gradient = moved
        size = norm(gradient)
        least = min(least, size)
    return descend(objective, accuracy, target)


def _step(objective: Objective, w: Floats, gradient: Floats, least: float) -> tuple[Floats, Floats] | None:
    """Return the next point and its gradient; `least` is the smallest norm of a gradient so far."""
    step = objective.direction(w, gradient)
    if not float(gradient @ step) < 0:
        step = -gradient / objective.smooth
    point = w + step
    new = objective.gradient(point)
    # Half the least so far: that can be said no more than log2(first / target) times.
    if norm(new) <= 0.5 * least:
        return point, new
    length = least_along(objective.along(w, step))
    if length == 0.0:
        return None
    point = w + length * step
    return point, objective.gradient(point)


def least_along(slope: Callable[[float], float]) -> float:
    """Return where a convex function of one number is least, t >= 0, from its derivative; 0 for none found.

    The derivative is bracketed by doubling and closed in on by the Illinois rule (Dahlquist & Bjorck 1974,
    section 6.4.2), which is exact once both ends lie on one linear piece.
    """
    low, high = 0.0, 1.0
    left, right = slope(low), slope(high)
    start = left
    if not left < 0.0:
        return 0.0
    for _ in range(_DOUBLINGS):
        if not right < 0.0:
            break
        low, left, high = high, right, 2.0 * high
        right = slope(high)
    kept, t = 0, high
    for _ in range(_SEARCH):
        t = high - right * (high - low) / (right - left) if right > left else high
        if not low < t < high:
            break
        here = slope(t)
        if abs(here) <= _CLOSE * -start:
            break
        if here < 0.0:
            low, left, right = t, here, right / 2.0 if kept < 0 else right
            kept = -1
        else:
            high, right, left = t, here, left / 2.0 if kept > 0 else left
            kept = 1
    return t


def descend(objective: Objective, accuracy: Accuracy, target: float) -> Floats:
    """Return a point within the tolerance by gradient descent with step 1 / smooth.

    Notes
    -----
    A step from w with a gradient that errs by e leads to ||w+ - w*|| <= (1 - ridge / smooth) ||w - w*||
    + e / smooth, so after T steps from 0 the distance is at most (1 - ridge / smooth)^T W + e / ridge. The
    tolerance is at least 4 e / ridge: T = log(2 W / tolerance) smooth / ridge steps are enough, and a small
    gradient may end them earlier.
    """
    w = objective.start()
    steps = math.ceil(
        objective.smooth / objective.ridge * math.log(4.0 * accuracy.weights / accuracy.tolerance)
    )
    for _ in range(max(1, steps)):
        gradient = objective.gradient(w)
        if norm(gradient) <= target:
            break
        w = w - gradient / objective.smooth
    return w


def norm(w: Floats) -> float:
    """Return the Euclidean norm, rounded up."""
    return math.sqrt(math.fsum((w * w).ravel().tolist())) * (1.0 + 1e-14)


def compensated(total: Floats, carry: Floats, term: Floats) -> None:
    """Add `term` to `total` in place, what is lost to `carry` (two-sum)."""
    new = total + term
    rest = new - total
    carry += (total - (new - rest)) + (term - rest)
    total[...] = new


def block_sum(rows: int, shape: tuple[int, ...], term: Callable[[slice], Floats]) -> Floats:
    """Return the compensated sum of `term` over blocks of rows."""
    total, carry = np.zeros(shape), np.zeros(shape)
    for start in range(0, rows, BLOCK):
        compensated(total, carry, term(slice(start, start + BLOCK)))
    return total + carry


@dataclass(frozen=True, eq=False)
class BinaryObjective:
    """Two classes: w [m], rows X [n, m] of norm <= 1, labels y in {-1, +1}."""

    X: Floats
    y: Floats
    loss: BinaryLoss
    ridge: float

    @property
    def smooth(self) -> float:
        """Largest eigenvalue of the Hessian."""
        return (self.ridge + self.loss.curvature * self.X.shape[0]) * (1.0 + 1e-9)

    def start(self) -> Floats:
        """See `Objective`."""
        return np.zeros(self.X.shape[1])

    def value(self, w: Floats) -> float:
        """See `Objective`."""
        return float(np.sum(self.loss.value(self.X @ w, self.y)) + self.ridge / 2.0 * (w @ w))

    def gradient(self, w: Floats) -> Floats:
        """See `Objective`."""
        slope = self.loss.slope(self.X @ w, self.y)
        return self.ridge * w + block_sum(self.X.shape[0], w.shape, lambda b: self.X[b].T @ slope[b])

    def along(self, w: Floats, step: Floats) -> Callable[[float], float]:
        """See `Objective`."""
        z, v = self.X @ w, self.X @ step
        first, second = self.ridge * float(w @ step), self.ridge * float(step @ step)
        return lambda t: first + t * second + float(self.loss.slope(z + t * v, self.y) @ v)

    def direction(self, w: Floats, gradient: Floats) -> Floats:
        """See `Objective`."""
        bend = self.loss.bend(self.X @ w, self.y)
        if w.size > _DENSE:
            return conjugate(lambda v: self.ridge * v + self.X.T @ (bend * (self.X @ v)), gradient)
        hessian = (self.X * bend[:, None]).T @ self.X
        hessian[np.diag_indices_from(hessian)] += self.ridge
        try:
            return np.asarray(-np.linalg.solve(hessian, gradient), dtype=np.float64)
        except np.linalg.LinAlgError:  # a ridge lost in rounding: the step of gradient descent
            return -gradient / self.smooth


@dataclass(frozen=True, eq=False)
class SoftmaxObjective:
    """C classes: w [C m] row by row, rows X [n, m] of norm <= 1, labels y in 0 ... C - 1."""

    X: Floats
    y: NDArray[np.int64]
    classes: int
    ridge: float

    @property
    def smooth(self) -> float:
        """Largest eigenvalue of the Hessian; the softmax has curvature at most 1/2."""
        return (self.ridge + 0.5 * self.X.shape[0]) * (1.0 + 1e-9)

    def start(self) -> Floats:
        """See `Objective`."""
        return np.zeros(self.classes * self.X.shape[1])

    def _logits(self, w: Floats) -> Floats:
        return self.X @ w.reshape(self.classes, -1).T

    def value(self, w: Floats) -> float:
        """See `Objective`."""
        logits = self._logits(w)
        top = np.max(logits, axis=1)
        own = logits[np.arange(self.y.size), self.y]
        losses = top + np.log(np.sum(np.exp(logits - top[:, None]), axis=1)) - own
        return float(np.sum(losses) + self.ridge / 2.0 * (w @ w))

    def _shares(self, w: Floats) -> Floats:
        logits = self._logits(w)
        weights = np.exp(logits - np.max(logits, axis=1, keepdims=True))
        return weights / weights.sum(axis=1, keepdims=True)

    def gradient(self, w: Floats) -> Floats:
        """See `Objective`."""
        slope = self._shares(w)
        slope[np.arange(self.y.size), self.y] -= 1.0
        shape = (self.classes, self.X.shape[1])
        return self.ridge * w + block_sum(self.X.shape[0], shape, lambda b: slope[b].T @ self.X[b]).ravel()

    def along(self, w: Floats, step: Floats) -> Callable[[float], float]:
        """See `Objective`."""
        first, second = self.ridge * float(w @ step), self.ridge * float(step @ step)
        v, rows = self._logits(step), np.arange(self.y.size)
        own = float(np.sum(v[rows, self.y]))
        return lambda t: first + t * second + float(np.sum(self._shares(w + t * step) * v)) - own

    def direction(self, w: Floats, gradient: Floats) -> Floats:
        """See `Objective`."""
        shares = self._shares(w)

        def product(v: Floats) -> Floats:
            moved = self._logits(v)
            bent = shares * (moved - np.sum(shares * moved, axis=1, keepdims=True))
            return self.ridge * v + (bent.T @ self.X).ravel()

        return conjugate(product, gradient)


def conjugate(product: Callable[[Floats], Floats], gradient: Floats) -> Floats:
    """Return an approximate solution of H d = -gradient by conjugate gradients."""
    d = np.zeros_like(gradient)
    residual = -gradient
    p, square = residual.copy(), float(gradient @ gradient)
    # Forcing sequence of a superlinear method (Nocedal & Wright 2006, section 7.1).
    stop = square * min(0.25, square**0.5) * 1e-2
    for _ in range(10 * gradient.size + 10):
        if square <= max(stop, 1e-300):
            break
        image = product(p)
        length = square / float(p @ image)
        d += length * p
        residual = residual - length * image
        new = float(residual @ residual)
        p = residual + new / square * p
        square = new
    return d
