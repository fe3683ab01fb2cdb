"""Objective perturbation on secret columns, private for what is really computed.

Kifer, Smith & Thakurta, "Private convex empirical risk minimization and high-dimensional regression" (COLT
2012), algorithm 1 and theorem 2: minimise the empirical objective plus a ridge plus a random linear term.
Rows are u = (1, x), |u_j| <= 1, ||u|| <= B; losses have slope at most L and a kappa-Lipschitz derivative; the
minimum is over a ball of public radius (their theorem 1). What follows is proved for this code's relations.

Exact minimiser. J(theta) = sum loss(y_i, u_i'theta) + (ridge/2) ||theta||^2 + b'theta. First without the
ball: b = -grad J_0(theta) is a bijection between noise and minimisers, Lipschitz both ways, so that theta has
the density q(b(theta)) |det H(theta)| for almost every theta, q the density of b, H = sum loss'' u u' + ridge
I. For neighbours D, D' two factors are to be bounded, at every theta:

- H. One row added: det ratio 1 + loss'' u'H^-1 u, between 1 and 1 + kappa B^2 / ridge. One row replaced: A +
  s u u' against A + s' v v' with A >= ridge I, the same bound. So this factor costs
  e_H = log(1 + kappa B^2 / ridge).
- q. b - b' = loss'(u) u, or loss'(u) u - loss'(v) v: a vector g(theta) of the segment {a u}, or of the
  parallelogram {a u - c v}, with |a|, |c| <= L.

Pure epsilon. q(b) proportional to exp(-beta ||b||_inf), the K-norm mechanism of the box (Hardt & Talwar 2010;
in objective perturbation: Awan & Slavkovic 2021) in place of the L2 norm of KST: ||g||_inf <= L, or 2 L, so
epsilon = e_H + beta L, or e_H + 2 beta L. In a box it needs less noise than the L2 norm: E ||b|| is about
sqrt(m) (m + 1) / sqrt 3 times L / epsilon against m sqrt(m), 0.72 of it at m = 5.

Gaussian, b ~ N(0, sigma^2 I). g depends on theta and so on b, which a bound for fixed g overlooks. The log of
q(b) / q(b - g) is (||g||^2 - 2 b'g) / (2 sigma^2), convex in g, hence at most its largest value over the
corners of the set: +-L u, or +-L (u + v), +-L (u - v). Each corner is a fixed vector of length at most L B,
or 2 L B. With x -> (1 - e^(E - x))_+ increasing and a maximum of numbers >= 0 at most their sum,

    delta(e_H + E) <= k delta_G(E; sigma / length),    k = 2, length L B;  or  k = 4, length 2 L B,

delta_G the curve of the Gaussian mechanism (Balle & Wang 2018). (Redberg, Koskela & Wang 2023 have the factor
2 for adding and removing.) KST's constant 8 log(2/delta) + 4 epsilon is not used.

The ball. Add k (||theta|| - radius)_+^2 to J: it has a Lipschitz gradient and a Hessian >= 0 that the data do
not touch, so every step above holds for each k, and for k to infinity its minimisers converge, for each b, to
that over the ball. A guarantee passes to the limit in law (KST theorem 1).

Computed minimiser (approximate minima perturbation, Iyengar, Near, Song, Thakkar, Thakurta & Wang 2019, by
another route). Let theta* be the exact minimiser for the exact noise. What the solver returns is within
D = E / ridge of it (`confide.training.objective_solver`: certified, or reached by a fixed number of steps,
for every table), where the rounding of b is part of E. Given theta*, two tables' computed points lie within 2
D of each other, whatever random bits led to theta*; rounded to a grid and released with noise for 2 D + h
sqrt(m) they are (e_out, d_out)-DP given theta* (convexity of indistinguishability in the pair). Of the grid's
step h this asks that it is public, no more: rounding moves two points apart by less than h a coordinate. So h
may be coarser than D, and is at least 2^-60 of the radius: theta is then within the range of the grid. The
pair (theta*, what is released) is an adaptive composition, and the second is all that leaves: epsilon = e_H +
E + e_out, delta likewise. e_out and d_out are 1/64 of the budget. The output lies on a public grid with noise
on it: no bit pattern tells tables apart.

The exact noise. Gaussian: what is used is round(b / h) h, exactly, so that |b - used| <= h / 2. K-norm: b = R
V / beta, R the sum of m + 1 exponentials, V uniform in [-1, 1]^m. An exponential is half the sum of two
squared normals, which are rounded exactly, |Z| < 76; so |b - used| <= (m + 1) 2^-36 / beta.

===================================  ===================================================================
edge case                            what happens
===================================  ===================================================================
cells of 1e308, infinite, NaN        clipped, clipped, 0
n = 0, one class, constant columns   a minimiser all the same: the ridge
more than 2^20 rows                  UnsupportedError where n is public, else a public precondition
several rows a unit                  the group bound: epsilon over their number, and delta for it
a Newton method that does not end    projected gradient steps: slower, the same bound
n = 1 at epsilon 1e4: D of 1e-20     a grid of 2^-60 of the radius, coarser than the noise needs
epsilon of 1e-12                     noise, shortened to the ball; far smaller: ParameterError
===================================  ===================================================================
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from confide.errors import ParameterError, UnsupportedError
from confide.mechanisms import (
    RandomStream,
    Statistic,
    gaussian_release,
    grid_step,
    laplace_release,
    padded_sensitivity,
    round_toward_zero,
    rounded_gaussian,
)
from confide.mechanisms.stream import stream as random_stream
from confide.privacy import Event, gaussian_sigma, round_up
from confide.privacy.guarantee import group_amounts
from confide.training.coefficients import Coefficients, Floats, Rows, Shape, check_budget, number, rescaled
from confide.training.objective_solver import Objective, SmoothLoss, gradient_error, minimise, project
from confide.training.release import Answer, drive

METHOD = "objective"
#: Rows that the rounding bounds cover.
MOST_ROWS = 1 << 20
#: Noise may be this many steps of the grid wide.
_WIDEST = 2.0**49
#: The noise of the objective is wider than this, and narrower than one over it.
_NARROWEST = 2.0**-400
#: Part of the budget that pays for the distance to the exact minimiser.
_OUTPUT = Fraction(1, 64)
#: Part of epsilon that pays for the determinant: it sets the ridge.
DETERMINANT = Fraction(1, 4)
#: A normal number that a 4096-bit uniform can tell is below this: sqrt(2 * 4096 log 2) = 75.4.
_LARGEST_NORMAL = 76.0
#: Largest prediction in the default ball. The slope of squared loss grows with it; the others' does not.
_REACH = {"squared": 1.0, "huber": 3.0, "quantile": 3.0, "logistic": 24.0, "hinge": 24.0}


def make_loss(name: Any, *, shape: float | None = None, reach: float = 1.0) -> SmoothLoss:
    """Return a smooth convex loss for targets in [-1, 1].

    Parameters
    ----------
    name : {"squared", "huber", "quantile", "logistic", "hinge"}
        Squared loss is a parabola of width 1 + `reach`: itself wherever predictions are within the reach.
        Hinge and quantile loss have their kinks rounded, within 1/2 and 1/8.
    shape : float, optional
        Huber's width, in [1e-6, 1e6] (1/2 by default), or the level of the quantile (1/2).
    reach : float
        Largest prediction in the ball.

    Raises
    ------
    ParameterError
    """
    if name == "squared":
        return SmoothLoss("squared", "parabola", (1 + reach) * (1 + 1e-12), 1.0, (1 + reach) * (1 + 1e-12))
    if name == "huber":
        width = 0.5 if shape is None else number(shape, "loss_shape", 1e-6, 1e6)
        return SmoothLoss("huber", "parabola", width, 1.0, width)
    if name == "quantile":
        level, h = 0.5 if shape is None else number(shape, "loss_shape", 1e-9, 1 - 1e-9), 0.125
        return SmoothLoss("quantile", "quantile", max(level, 1 - level), 1 / (2 * h), level, h)
    if name == "logistic":
        return SmoothLoss("logistic", "logistic", 1.0, 0.25, labels=True)
    if name == "hinge":
        return SmoothLoss("hinge", "hinge", 1.0, 1.0, width=0.5, labels=True)
    raise ParameterError(
        f"The 'loss' parameter is {name!r:.80} with shape {shape!r:.80}.",
        "Pass 'squared', 'huber', 'quantile', 'logistic' or 'hinge'.",
    )


@dataclass(frozen=True)
class Plan:
    """What is public about a perturbed fit.

    Attributes
    ----------
    shape : Shape
    loss : SmoothLoss
    epsilon, delta : Fraction
        Of a unit.
    event : Event
    ridge, radius : float
    scale : float
        sigma of the Gaussian, or 1 / beta of the K-norm noise.
    output : float or Fraction
        Noise multiplier, or epsilon, of the output's noise.
    rows : int
        n at most.
    """

    shape: Shape
    loss: SmoothLoss
    epsilon: Fraction
    delta: Fraction
    event: Event
    ridge: float
    radius: float
    scale: float
    output: Any
    rows: int = MOST_ROWS

    @property
    def pure(self) -> bool:
        """Whether delta is 0."""
        return self.delta == 0

    @property
    def spread(self) -> float:
        """Deviation of each b_j: what plans are compared by."""
        size = self.shape.size
        return self.scale * (math.sqrt((size + 1) * (size + 2) / 3) if self.pure else 1.0)

    @property
    def noise_step(self) -> float:
        """Grid of the normal numbers behind b."""
        return 2.0 ** (math.floor(math.log2(self.scale)) - 40)

    @property
    def noise_bound(self) -> float:
        """Bound on every |b_j|."""
        if self.pure:
            return self.scale * (self.shape.size + 1) * _LARGEST_NORMAL**2
        return self.scale * _LARGEST_NORMAL

    @property
    def noise_error(self) -> float:
        """L2 distance of the noise used to the exact noise."""
        size = self.shape.size
        each = self.scale * (size + 1) * 2.0**-36 if self.pure else self.noise_step / 2
        return math.sqrt(size) * each * (1 + 1e-12)

    @property
    def tolerance(self) -> float:
        """E: ridge times the distance of what the solver returns to its own exact minimiser."""
        return 4 * gradient_error(
            self.loss, self.ridge, self.radius, self.shape.norm_squared, self.noise_bound, self.rows,
            self.shape.size,
        )  # fmt: skip

    @property
    def distance(self) -> float:
        """D: to the exact minimiser for the exact noise."""
        return (self.tolerance + self.noise_error) / self.ridge * (1 + 1e-12)

    @property
    def output_sensitivity(self) -> float:
        """Of the output on its grid; L1 in the pure case."""
        size, norm = self.shape.size, 1 if self.pure else 2
        moved = 2 * self.distance * (math.sqrt(size) * (1 + 1e-12) if self.pure else 1.0)
        return padded_sensitivity(moved, self.output_step, size, norm=norm)

    @property
    def output_step(self) -> float:
        """Of the output's grid: fine against the noise, but no finer than 2^-60 of the radius.

        The ball then spans at most 2^60 steps a side, and `round_toward_zero` cuts nothing off. Where D is so
        small that this decides, the padding of `output_sensitivity` pays for the grid, and the noise is some
        steps wide: 2^-59 of the radius times its multiplier.
        """
        spread = 2 * self.distance / float(self.output) if self.pure else 2 * self.distance * self.output
        fine = grid_step(
            spread, self.shape.size, noise_multiplier=max(1.0, 1.0 if self.pure else self.output)
        )
        return max(fine, 2.0 ** (math.ceil(math.log2(self.radius)) - 60))


def default_radius(loss: Any, size: int) -> float:
    """Return the public radius of the ball, by the largest prediction in it: see `_REACH`."""
    return _REACH.get(str(loss), 1.0) / math.sqrt(size)


def make_plan(
    shape: Shape,
    epsilon: Any,
    delta: Any,
    loss: Any,
    *,
    loss_shape: float | None = None,
    radius: float | None = None,
    ridge: float | None = None,
    rows: int | None = None,
) -> Plan:
    """Fix everything but the data: what can be refused is refused here, before any charge.

    Parameters
    ----------
    shape : Shape
    epsilon, delta : amount
        delta = 0 means pure epsilon.
    loss, loss_shape
        See `make_loss`.
    radius : float, optional
        Of the ball, public.
    ridge : float, optional
        Public, at least what the determinant needs; by default e_H = epsilon / 4 decides.
    rows : int, optional
        n, where it is public: the rounding bounds are then its own.

    Raises
    ------
    ParameterError, UnsupportedError
    """
    amount, share = check_budget(epsilon, delta)
    row_amount, row_share = _of_a_row(amount, share, shape.rows_per_unit)
    radius_ = default_radius(loss, shape.size) if radius is None else number(radius, "radius", 1e-6, 1e6)
    norm = math.sqrt(shape.norm_squared)
    smooth = make_loss(loss, shape=loss_shape, reach=radius_ * norm)
    if rows is not None and rows > MOST_ROWS:
        raise UnsupportedError(
            f"The table has {rows:,} rows; the rounding bounds cover {MOST_ROWS:,}.",
            "Take fewer rows by a public rule, or coefficients='sufficient_statistics'.",
        )
    most = MOST_ROWS if rows is None or not shape.rows_are_public else max(1, int(rows))
    factor = math.expm1(min(700.0, float(row_amount * DETERMINANT)))
    least = smooth.curvature * shape.norm_squared / factor * (1 + 1e-9)
    ridge_ = max(least, 1e-3) if ridge is None else number(ridge, "ridge", 0.0, 1e12)
    if ridge_ < least:
        raise ParameterError(
            f"The 'ridge' parameter is {ridge!r:.80}.", f"Pass at least {least:.6g}, which epsilon needs."
        )
    spent = round_up(math.log1p(smooth.curvature * shape.norm_squared / ridge_) * (1 + 1e-12))
    output_amount, output_share = row_amount * _OUTPUT, row_share * _OUTPUT
    left = row_amount - output_amount - spent
    replaced = shape.rows_are_public
    if share == 0:
        scale = smooth.slope * (2.0 if replaced else 1.0) / float(left) * (1 + 1e-12)
        output: Any = output_amount
        parts = (
            Event.of("pure", epsilon=str(row_amount - output_amount)),
            Event.of("discrete_laplace", epsilon=str(output_amount)),
        )
    else:
        corners = 4 if replaced else 2
        length = smooth.slope * norm * (2.0 if replaced else 1.0) * (1 + 1e-12)
        scale = gaussian_sigma(left, (row_share - output_share) / corners, length)
        output = gaussian_sigma(output_amount, output_share, 1.0)
        parts = (
            Event.of(
                "approximate", epsilon=str(row_amount - output_amount), delta=str(row_share - output_share)
            ),
            Event.of("gaussian", noise_multiplier=output),
        )
    event = Event.sequence(parts)
    if shape.rows_per_unit > 1:
        event = event.group(shape.rows_per_unit)
    plan = Plan(shape, smooth, amount, share, event, ridge_, radius_, scale, output, most)
    if not _NARROWEST < scale < 1 / _NARROWEST:
        raise ParameterError(
            f"The 'epsilon' parameter is {epsilon!r:.80}: the noise of the objective is {scale:g} wide.",
            "Pass an epsilon nearer to 1.",
        )
    if not _output_deviation(plan) < _WIDEST * plan.output_step:
        raise ParameterError(
            f"The 'epsilon' parameter is {epsilon!r}: its noise has no grid that 64-bit integers can hold.",
            "Pass a larger epsilon.",
        )
    return plan


def _of_a_row(epsilon: Fraction, delta: Fraction, count: int) -> tuple[Fraction, Fraction]:
    """Return (epsilon, delta) of a row whose group bound for `count` rows is within the totals."""
    each = epsilon / count
    if delta == 0 or count == 1:
        return each, delta
    factor = group_amounts(each, Fraction(1, 10**60), count)[1] * 10**60
    return each, delta / factor


def solve(rows: Rows, plan: Plan) -> Generator[Statistic, Floats, Coefficients]:
    """Yield a statistic of zeros, be sent b; yield the computed minimiser, be sent its private copy.

    Parameters
    ----------
    rows : Rows
    plan : Plan
    """
    size = plan.shape.size
    zeros = np.zeros(size, dtype=np.int64)
    b = yield Statistic(zeros, plan.noise_step, plan.scale, "perturbation")
    cells, y = gathered(rows, plan)
    objective = Objective(plan.loss, plan.ridge, plan.radius, plan.shape.norm_squared, b, plan.noise_bound)
    theta = minimise(cells, y, objective, plan.tolerance)
    step = plan.output_step
    answer = yield Statistic(round_toward_zero(theta, step), step, plan.output_sensitivity, "coefficients")
    # Shortening what was released to the ball is post-processing.
    told = project(answer, plan.radius)
    intercept, values, _ = rescaled(plan.shape, told, None, rows.feature_bound, rows.target_bound)
    facts = {
        "ridge": plan.ridge,
        "radius": plan.radius,
        "noise_objective": plan.scale,
        "noise_output": _output_deviation(plan),
        "distance": plan.distance,
        "slope": plan.loss.slope,
        "curvature": plan.loss.curvature,
        "row_norm": math.sqrt(plan.shape.norm_squared),
    }
    return Coefficients(
        intercept, values, METHOD, plan.loss.name, plan.epsilon, plan.delta, plan.event, tuple(facts.items())
    )


def gathered(rows: Rows, plan: Plan) -> tuple[Floats, Floats]:
    """Return all rows [n, m] and their targets [n]; of classes, +1 where y > 0 and else -1."""
    blocks = list(rows.blocks(plan.shape.size))
    cells = np.concatenate([cells for cells, _ in blocks]) if blocks else np.zeros((0, plan.shape.size))
    y = np.concatenate([y for _, y in blocks]) if blocks else np.zeros(0)
    return cells, np.where(y > 0, 1.0, -1.0) if plan.loss.labels else y


def _output_deviation(plan: Plan) -> float:
    if plan.pure:
        return math.sqrt(2.0) * plan.output_sensitivity / float(plan.output)
    return plan.output * plan.output_sensitivity


def release(rows: Rows, plan: Plan, *, stream: RandomStream | None = None) -> Coefficients:
    """Return private coefficients; the caller has charged `plan.event`.

    Parameters
    ----------
    rows : Rows
        At most `plan.rows`.
    plan : Plan
    stream : RandomStream, optional
        None: the operating system's.
    """
    return drive(solve(rows, plan), answers(plan, random_stream(stream)))


def answers(plan: Plan, stream: RandomStream) -> Answer:
    """Return what answers the two statistics of `solve`."""

    def answer(statistic: Statistic) -> Floats:
        child = stream.child(statistic.name)
        if statistic.name == "perturbation":
            return box_noise(plan, child) if plan.pure else gaussian_noise(plan, child)
        if plan.pure:
            return laplace_release(statistic, plan.output, l1_sensitivity=statistic.sensitivity, stream=child)
        return gaussian_release(statistic, plan.output, stream=child)

    return answer


def gaussian_noise(plan: Plan, stream: RandomStream) -> Floats:
    """Return b of shape (m,): N(0, sigma^2), each exactly rounded to `Plan.noise_step`."""
    units = rounded_gaussian(plan.scale, plan.noise_step, plan.shape.size, stream=stream)
    return units.astype(np.float64) * plan.noise_step


def box_noise(plan: Plan, stream: RandomStream) -> Floats:
    """Return b of shape (m,) within `Plan.noise_error` of a draw from exp(-beta ||b||_inf).

    Notes
    -----
    The norm of such a draw has the Gamma law of shape m, and R V with R of shape m + 1 and V uniform in the
    box has that law (Hardt & Talwar 2010, remark 4.2). Rounding, in units of m + 1: 2 (m + 1) normal
    numbers err by 2^-47, half their squares by 76 2^-47 each, 2^-39.7 in all; V errs by 2^-53, R V by 76^2
    times that, 2^-40.4; squares, sum and products in float64 by 4 2^-53 of 76^2: 2^-38.4. Less than 2^-36.
    """
    size, step = plan.shape.size, 2.0**-46
    normals = rounded_gaussian(1, step, 2 * (size + 1), stream=stream.child("norm")) * step
    radius = math.fsum(normals * normals) / 2
    words = stream.child("direction").bits(size)
    uniform = (words >> np.uint64(11)).astype(np.float64) * 2.0**-52 - 1.0 + 2.0**-53
    return plan.scale * radius * uniform
