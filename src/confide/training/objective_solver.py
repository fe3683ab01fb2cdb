"""The minimiser of a perturbed objective to a certified distance, whatever the data are.

    J(theta) = sum_i loss(y_i, u_i'theta) + (ridge / 2) ||theta||^2 + b'theta    over    ||theta|| <= radius,

with rows |u_ij| <= 1, ||u_i|| <= B, losses of slope at most L and curvature between 0 and kappa. J is
ridge-strongly convex and S-smooth, S = kappa n B^2 + ridge; theta* is its only minimiser in the ball.

Certificate. T(theta) = P(theta - grad J(theta) / S), P the projection on the ball, has theta* as its fixed
point and contracts by 1 - ridge / S (a gradient step of an S-smooth, ridge-strongly convex function does, and
P does not expand). So

    ||theta - theta*|| <= (S / ridge) ||theta - T(theta)||.

T is computed with an error of at most e / S, e = `gradient_error`, a public bound. The solver stops where the
computed S ||theta - T(theta)|| + e is at most E = 4 e, and then ||theta - theta*|| <= E / ridge.

Reachability (proof). Newton steps within the ball propose; nothing is proved about them, and they are given
up after a fixed number. The fallback takes steps of the computed T: the distance to theta* after k of them is
at most (1 - ridge / S)^k 2 radius + e / ridge, so that K = ceil((S / ridge) log(2 radius ridge / e)) steps
come within 2 e / ridge < E / ridge, without looking at a certificate. So the bound E / ridge holds for every
table that has at most the rows `gradient_error` was told: speed depends on data, the bound never does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

_UNIT = 2.0**-53
#: Rows that are summed in floating point; sums of such blocks are added exactly.
_BLOCK = 64
_NEWTON_STEPS = 100


@dataclass(frozen=True)
class SmoothLoss:
    """A convex loss of the prediction with a bounded slope and a bounded curvature.

    Attributes
    ----------
    name : str
    kind : str
        Key of the formulas below.
    slope : float
        L, bound on its first derivative.
    curvature : float
        kappa, bound on its second derivative where it exists; the first derivative is kappa-Lipschitz.
    shape : float
        Width of a parabola, or level of the quantile.
    width : float
        Of the smoothing, for hinge and quantile.
    labels : bool
        Whether targets are classes -1 and +1.
    """

    name: str
    kind: str
    slope: float
    curvature: float
    shape: float = 0.0
    width: float = 0.0
    labels: bool = False

    def derivatives(self, y: Floats, z: Floats) -> tuple[Floats, Floats, Floats]:
        """Return value, first and second derivative in z, each [n]; the second one-sided at kinks."""
        return _KINDS[self.kind](self, y, z)


def _parabola(loss: SmoothLoss, y: Floats, z: Floats) -> tuple[Floats, Floats, Floats]:
    """(z - y)^2 / 2 within the width, linear beyond: squared and Huber's loss."""
    r, w = z - y, loss.shape
    first = np.clip(r, -w, w)
    return first * (r - first / 2), first, (np.abs(r) <= w).astype(np.float64)


def _logistic(_: SmoothLoss, y: Floats, z: Floats) -> tuple[Floats, Floats, Floats]:
    t = np.exp(-np.abs(z))
    upper, lower = 1 / (1 + t), t / (1 + t)  # sigmoid of |z| and of -|z|
    first = -y * np.where(y * z > 0, lower, upper)
    return np.maximum(0.0, -y * z) + np.log1p(t), first, upper * lower


def _hinge(loss: SmoothLoss, y: Floats, z: Floats) -> tuple[Floats, Floats, Floats]:
    """max(0, 1 - y z), its kink a parabola of half-width h: at most h / 4 above it."""
    h = loss.width
    v = 1 - y * z
    ramp = np.clip((v + h) / (2 * h), 0.0, 1.0)
    return h * ramp * ramp + np.maximum(0.0, v - h), -y * ramp, ((ramp > 0) & (ramp < 1)) / (2 * h)


def _quantile(loss: SmoothLoss, y: Floats, z: Floats) -> tuple[Floats, Floats, Floats]:
    """Pinball loss of level q, its kink a parabola of half-width h."""
    q, h = loss.shape, loss.width
    r = z - y
    ramp = np.clip((r + h) / (2 * h), 0.0, 1.0)
    return h * ramp * ramp + np.maximum(0.0, r - h) - q * r, ramp - q, ((ramp > 0) & (ramp < 1)) / (2 * h)


_KINDS = {"parabola": _parabola, "logistic": _logistic, "hinge": _hinge, "quantile": _quantile}


@dataclass(frozen=True)
class Objective:
    """J, but for the data.

    Attributes
    ----------
    loss : SmoothLoss
    ridge, radius : float
        > 0.
    norm_squared : float
        B^2.
    perturbation : ndarray of shape (m,)
        b.
    perturbation_bound : float
        Public bound on every |b_j|.
    """

    loss: SmoothLoss
    ridge: float
    radius: float
    norm_squared: float
    perturbation: Floats
    perturbation_bound: float

    def smoothness(self, n: int) -> float:
        """Return S for n rows, rounded up."""
        return (self.loss.curvature * n * self.norm_squared + self.ridge) * (1 + 1e-12)


def gradient_error(
    loss: SmoothLoss, ridge: float, radius: float, norm_squared: float, bound: float, rows: int, size: int
) -> float:
    """Return e: S times the L2 error of a computed T(theta), for up to `rows` rows.

    Parameters
    ----------
    loss, ridge, radius, norm_squared
        Of the objective.
    bound : float
        Public bound on every |b_j|.
    rows, size : int
        n at most, and m.

    Notes
    -----
    In units u = 2^-53, to first order, each part with room: a prediction u_i'theta of m terms errs by at most
    (m + 4) u B radius (Higham 2002, eq. 3.5), a derivative by kappa times that and 16 u L for its own
    formula (an exponential and four operations on numbers up to 1, or clipped); a coordinate of a row is at
    most 1; a block of 64 products adds 66 u of its absolute sum, and sums of blocks are added exactly. So a
    coordinate of the sum errs by n u (kappa (m + 4) B radius + 84 L), and the ridge, b and three additions by
    8 u (n L + ridge radius + |b|). The step divides by S, subtracts and projects: 8 u (radius + |grad| / S)
    in each coordinate, times S. What underflows is far below.
    """
    spread = math.sqrt(norm_squared) * radius
    total = rows * loss.slope + ridge * radius + bound
    sums = rows * (loss.curvature * (size + 4) * spread + 84 * loss.slope) + 8 * total
    smooth = loss.curvature * rows * norm_squared + ridge
    step = 8 * (smooth * radius + total)
    return 1.01 * math.sqrt(size) * _UNIT * (sums + step)


def minimise(cells: Floats, y: Floats, objective: Objective, tolerance: float) -> Floats:
    """Return theta within `tolerance` / ridge of the minimiser of J.

    Parameters
    ----------
    cells : ndarray of shape (n, m)
        Rows u_i.
    y : ndarray of shape (n,)
    objective : Objective
    tolerance : float
        E = 4 e.

    Returns
    -------
    ndarray of shape (m,)
    """
    proposed = newton(cells, y, objective, tolerance)
    return proposed if proposed is not None else descend(cells, y, objective, tolerance / 4)


def newton(cells: Floats, y: Floats, objective: Objective, tolerance: float) -> Floats | None:
    """Return a certified point by Newton steps within the ball, or None where they did not arrive."""
    theta = np.zeros(cells.shape[1])
    smooth = objective.smoothness(cells.shape[0])
    for _ in range(_NEWTON_STEPS):
        value, slopes, curvatures = evaluate(cells, y, theta, objective)
        gradient = gradient_of(cells, slopes, theta, objective)
        moved = project(theta - gradient / smooth, objective.radius)
        if smooth * float(np.linalg.norm(theta - moved)) + tolerance / 4 <= tolerance:
            return theta
        hessian = cells.T @ (cells * curvatures[:, None]) + objective.ridge * np.eye(theta.size)
        target = _model_minimiser(hessian, hessian @ theta - gradient, objective.radius)
        theta = _search(cells, y, theta, target, value, float(gradient @ (target - theta)), objective)
    return None


def descend(cells: Floats, y: Floats, objective: Objective, error: float) -> Floats:
    """Return a point within 2 error / ridge of the minimiser by projected gradients: always, but slowly."""
    smooth = objective.smoothness(cells.shape[0])
    ratio = max(2.0, 2 * objective.radius * objective.ridge / error)
    steps = math.ceil(smooth / objective.ridge * math.log(ratio)) + 1
    theta = np.zeros(cells.shape[1])
    for _ in range(steps):
        _, slopes, _ = evaluate(cells, y, theta, objective)
        theta = project(theta - gradient_of(cells, slopes, theta, objective) / smooth, objective.radius)
    return theta


def evaluate(cells: Floats, y: Floats, theta: Floats, objective: Objective) -> tuple[float, Floats, Floats]:
    """Return J(theta), and first and second derivatives of the losses, [n] each."""
    with np.errstate(all="ignore"):
        values, slopes, curvatures = objective.loss.derivatives(y, cells @ theta)
    value = float(values.sum()) + float(objective.perturbation @ theta)
    return value + objective.ridge / 2 * float(theta @ theta), slopes, curvatures


def gradient_of(cells: Floats, slopes: Floats, theta: Floats, objective: Objective) -> Floats:
    """Return grad J(theta), [m]: blocks of 64 rows are summed in float64, their sums exactly."""
    terms = cells * slopes[:, None]
    sums = np.add.reduceat(terms, np.arange(0, len(terms), _BLOCK), axis=0) if len(terms) else terms
    whole = np.array([math.fsum(column) for column in sums.T])
    return whole + objective.ridge * theta + objective.perturbation


def project(theta: Floats, radius: float) -> Floats:
    """Return the nearest point of the ball."""
    norm = float(np.linalg.norm(theta))
    return theta if norm <= radius else theta * (radius / norm)


def _model_minimiser(hessian: Floats, right: Floats, radius: float) -> Floats:
    """Minimise x'Hx / 2 - right'x over the ball: (H + nu I) x = right with the least nu >= 0 that fits."""
    values, vectors = np.linalg.eigh(hessian)
    values = np.maximum(values, 1e-300)
    parts = vectors.T @ right

    def norm(nu: float) -> float:
        return float(np.linalg.norm(parts / (values + nu)))

    if norm(0.0) <= radius:
        return vectors @ (parts / values)
    low, high = 0.0, float(np.linalg.norm(parts)) / radius
    for _ in range(200):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        low, high = (middle, high) if norm(middle) > radius else (low, middle)
    return project(vectors @ (parts / (values + high)), radius)


def _search(
    cells: Floats, y: Floats, theta: Floats, target: Floats, value: float, slope: float, objective: Objective
) -> Floats:
    """Return a point on the way to `target` that lowers J enough, or the target where rounding hides it."""
    noise = 1e-13 * (abs(value) + cells.shape[0] * objective.loss.slope)
    share = 1.0
    for _ in range(30):
        point = theta + share * (target - theta)
        if share == 1.0:
            point = target
        reached, _, _ = evaluate(cells, y, point, objective)
        if reached <= value + 1e-4 * share * slope + noise:
            return point
        share /= 2
    return target
