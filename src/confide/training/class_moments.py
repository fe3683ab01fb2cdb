"""Classes under label DP: one private set of moments, then a logistic or softmax fit that is algebra.

For public rows u_i the likelihood of a softmax model with logits v_k'Theta'u depends on the labels through
the moments M = sum w_i u_i v(y_i)' alone, v(k) the corners of a regular simplex in K - 1 dimensions with
edges of length sqrt 2 (two classes: +-1/sqrt 2). So they are released once, and everything else is
post-processing on public rows. No gradient is clipped, no step is tuned, and no budget is split over steps.

Two releases, of which public quantities choose one (`plan_classes`):

``closed_form``          b = sum f_i v(y_i)', f_i as in `confide.training.problem`, with Gaussian noise.
``randomized_response``  a label for each row by K-ary randomised response (`confide.training.labels`); the
                         moments of the drawn labels, over the channel's contrast, are unbiased. Pure epsilon.

Gaussian noise in a direction grows with the number of directions and falls with n; that of randomised
response is as if each label had e^-epsilon more variance, whatever the rows. So the second is for large
epsilon and few rows.

Privacy (proof). A label that changes moves b by ||f_i|| ||v(a) - v(b)|| = sqrt 2 ||f_i||, the labels of one
unit by at most sqrt 2 times its reach; the rest is that of `confide.training.closed_form`, whose bound on
rounding holds for each of the K - 1 columns, as |v| <= 1. Under randomised response each drawn label is
epsilon-DP in its own one, and everything else is a function of the drawn labels and of public rows.

Fit. theta = A^-1 M is the least-squares fit of v(y), with known noise; `shrinkage` takes back what noise and
sampling left in it (the variance of v is public: (K - 1) / K), and the intercept's part is made shares of
classes in [0, 1]. Theta then solves sum w u (E_Theta v - A theta)' = lambda Theta, the equations of penalised
maximum likelihood, lambda = `_RIDGE` k / n: logits with a prior deviation of about 2.6. There is one
solution, by convexity. Rows of `Basis.sample` stand for all (16,384 at most).

============================  ==========================================================================
edge case                     what happens
============================  ==========================================================================
unknown or missing labels     count as the first class, without a word
one class only in the data    the same path: its share is near 1, and a constant is what is learnt
all columns constant          the shares of the classes
rows near 1e308               shortened like any long row
several rows a unit           the reach of a unit; randomised response is then refused (a label is a row's)
epsilon infinite              no noise: penalised maximum likelihood of the labels
============================  ==========================================================================
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from confide.errors import DataError, ParameterError
from confide.mechanisms import RandomStream, Statistic, grid_step, padded_sensitivity, round_toward_zero
from confide.training.choice import Plan
from confide.training.closed_form import _cut_normal_mean, _power_above
from confide.training.design import BLOCK, Basis, public_basis
from confide.training.labels.channel import Channel
from confide.training.problem import LinearProblem, PublicStep, public_step
from confide.training.rounds_geometry import choose_geometry
from confide.training.shrinkage import shrink

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]

#: Before labels are seen, columns explain this part of their variance.
_EXPLAINED = 0.3
#: Randomised response is taken where it leaves less than this part of the other's expected error.
_CLEARLY = 0.8
#: Penalty, times directions over rows: the deviation of a logit is about sqrt(2 / _RIDGE).
_RIDGE = 0.3
#: Noise may be this many steps wide.
_WIDEST = 2.0**50


def simplex(classes: int) -> Floats:
    """Return the corners v of a regular simplex, shape (K, K - 1): centred at 0, edges of length sqrt 2.

    For two classes v = (-1/sqrt 2, 1/sqrt 2): the second class is the positive one.
    """
    K = int(classes)
    corners = np.zeros((K, K - 1))
    for j in range(K - 1):
        # Helmert's contrasts, orthonormal: class j + 1 against those before it.
        root = 1.0 / math.sqrt((j + 1) * (j + 2))
        corners[: j + 1, j] = -root
        corners[j + 1, j] = (j + 1) * root
    return corners


@dataclass(frozen=True)
class ClassProblem:
    """A public design with a secret class for each row.

    Attributes
    ----------
    design : LinearProblem
        Public rows and units; its labels are not read.
    codes : callable
        Yields the secret classes as integers in 0 .. K - 1, in the order of the rows. Only a solver calls it.
    classes : int
        K >= 2.
    """

    design: LinearProblem
    codes: Callable[[], Iterator[Codes]]
    classes: int

    def code_blocks(self) -> Iterator[Codes]:
        """Yield codes in the blocks of `Source.blocks`; anything outside 0 .. K - 1 is 0."""
        for codes in self.codes():
            whole = np.asarray(codes, dtype=np.int64).reshape(-1)
            known = np.where((whole >= 0) & (whole < self.classes), whole, 0)
            for start in range(0, known.shape[0], BLOCK):
                yield known[start : start + BLOCK]


@dataclass(frozen=True)
class ClassPlan:
    """All that is public about one release of classes.

    Attributes
    ----------
    step : PublicStep
        With row weights; the plain one (w = 1) for randomised response.
    corners : ndarray of shape (K, K - 1)
    channel : Channel or None
        None for the Gaussian release.
    multiplier : float
        Noise deviation over sensitivity; 0 without noise.
    grid : float
        Step of the grid.
    sensitivity : float
        L2, padding included.
    noise : ndarray of shape (k, k)
        Covariance of the privacy noise in each column of theta.
    """

    step: PublicStep
    corners: Floats
    channel: Channel | None
    multiplier: float
    grid: float
    sensitivity: float
    noise: Floats

    @property
    def contrast(self) -> float:
        """Probability of the true label beyond that of another one; 1 for the Gaussian release."""
        return 1.0 if self.channel is None else contrast(self.channel)

    @property
    def engine(self) -> str:
        """Name of the release."""
        return "closed_form" if self.channel is None else "randomized_response"


def contrast(channel: Channel) -> float:
    """Return (1 - lie) / (1 + lie (K - 1)): what of v(y) a drawn label keeps in the mean."""
    return (1.0 - channel.lie) / (1.0 + channel.lie * (channel.size - 1))


def plan_classes(
    problem: ClassProblem,
    epsilon: Any,
    multiplier: float,
    engine: str | None = None,
    *,
    conditioned: Callable[[Basis, float], Plan] | None = None,
    leverage: float | None = None,
) -> ClassPlan:
    """Read the public rows and choose a release; what can be refused is refused here.

    Parameters
    ----------
    problem : ClassProblem
        Its labels are not read.
    epsilon : Fraction
        Of randomised response; not used without noise.
    multiplier : float
        Of the Gaussian release; 0 for a fit without noise.
    engine : {None, "closed_form", "randomized_response"}
        None: the one of clearly less expected error, by public quantities.
    conditioned : callable, optional
        (basis, noise) -> plan, of a conditioning that was asked for.
    leverage : float, optional

    Raises
    ------
    ParameterError, DataError
    """
    design, K = problem.design, problem.classes
    basis = public_basis(design.source, intercept=design.intercept)
    prior = _first_prior(basis, K)
    spread = math.sqrt(2.0) * multiplier
    residual = (1.0 - _EXPLAINED) / K
    if basis.size == 0:  # no column varies and there is no intercept: all classes are as likely
        plan, expected = Plan(np.zeros((0, 0)), 0.0, 1.0, math.nan), 0.0
    elif conditioned is not None:
        plan, expected = conditioned(basis, spread / 2.0), math.nan
    else:
        chosen = choose_geometry(
            basis, prior, max(spread, 1e-9), residual, 1.0 if multiplier == 0 else leverage
        )
        plan, expected = chosen.plan, chosen.expected
    single = design.ids is None and design.rows_per_unit == 1
    if engine == "randomized_response" and not single:
        raise ParameterError(
            "Randomised response protects a label, and a unit may have several rows here.",
            "Pass engine='closed_form', whose noise covers all rows of a unit.",
        )
    if multiplier > 0 and engine != "closed_form" and single:
        channel = Channel.of(K, epsilon)
        variance = (1.0 / contrast(channel) ** 2 - 1.0) / K
        N = (variance + residual) * np.eye(basis.size)
        left = float(np.trace(prior) - np.sum(np.linalg.solve(prior + N, prior) * prior))
        if engine == "randomized_response" or left < _CLEARLY * expected:
            # Far longer than any row: nothing is shortened, and w = 1.
            flat = Plan(np.eye(basis.size) * 1e-150, 0.0, 1.0, math.nan)
            step = public_step(design, basis, flat)
            return ClassPlan(step, simplex(K), channel, 0.0, 0.0, 0.0, variance * np.eye(basis.size))
    return _gaussian_plan(problem, basis, plan, multiplier)


def _gaussian_plan(problem: ClassProblem, basis: Basis, plan: Plan, multiplier: float) -> ClassPlan:
    step = public_step(problem.design, basis, plan)
    K = problem.classes
    dimension = max(1, step.basis.size) * (K - 1) * step.touched**2
    moved = math.sqrt(2.0) * (1 + 1e-12) * step.reach
    if multiplier > 0:
        grid = grid_step(
            multiplier * moved, dimension, noise_multiplier=multiplier, rows=1 + step.basis.n // 256
        )
        grid = max(grid, _power_above(step.extent / 2.0**60))
    else:
        grid = _power_above(step.extent / 2.0**53)
    # `PublicStep.rounding` bounds one column of labels in [-1, 1].
    bound = padded_sensitivity(moved, grid, dimension, step.rounding * math.sqrt(K - 1))
    sigma = multiplier * bound
    if not sigma * (1 + 1e-9) <= _WIDEST * grid:
        raise ParameterError(
            f"Noise of {multiplier:.6g} times the sensitivity has no grid that doubles can hold.",
            "Pass a larger epsilon.",
        )
    with np.errstate(all="ignore"):
        inverse = np.linalg.solve(step.plan.factor.T @ step.A, np.eye(step.basis.size))
        noise = np.asarray(sigma**2 * (inverse @ inverse.T), dtype=np.float64)
    if not np.isfinite(noise).all():
        raise DataError("The covariance of the noise is not finite.", "Rescale the public columns.")
    return ClassPlan(step, simplex(K), None, multiplier, grid, bound, noise)


def _first_prior(basis: Basis, classes: int) -> Floats:
    """Return the prior covariance of a column of theta: half of it flat, half as columns lie."""
    n, first = basis.n, int(basis.intercept)
    square = basis.singular_values**2
    shape = 0.5 * square / square.sum() + 0.5 / square.size if square.size else square
    return np.diag(np.concatenate([np.full(first, n / (3.0 * classes)), n * _EXPLAINED / classes * shape]))


@dataclass(frozen=True)
class ClassSolution:
    """What a release tells, in coordinates with U'U = I.

    Attributes
    ----------
    theta : ndarray of shape (k, K)
        Logits are u'theta, those of the mean class 0: each row sums to 0.
    effective : float
        Expected number of directions that the noise has left, over all contrasts.
    residual_variance : float
        Estimated variance of a contrast about its linear fit.
    """

    theta: Floats
    effective: float
    residual_variance: float


def solve(
    problem: ClassProblem, plan: ClassPlan, *, shrinkage: bool = True
) -> Generator[Statistic, Floats, ClassSolution]:
    """Yield the one Gaussian statistic, be sent its private answer, and return the solution.

    Parameters
    ----------
    problem : ClassProblem
        Its labels are read here, once.
    plan : ClassPlan
        Of engine ``closed_form``.
    shrinkage : bool
    """
    step, k, K = plan.step, plan.step.basis.size, problem.classes
    total = np.zeros((k, K - 1), dtype=np.int64)
    for block, codes in zip(problem.design.source.blocks(), problem.code_blocks(), strict=True):
        f, _ = step.plan.rows(step.basis.coordinates(block))
        total += round_toward_zero(f.T @ plan.corners[codes], plan.grid)
    answer = yield Statistic(total.ravel(), plan.grid, plan.sensitivity, "class_moments")
    moments = np.linalg.solve(step.plan.factor.T, answer.reshape(k, K - 1))
    return solution_of(plan, np.asarray(moments, dtype=np.float64), shrinkage=shrinkage)


def respond(
    problem: ClassProblem, plan: ClassPlan, stream: RandomStream, *, shrinkage: bool = True
) -> ClassSolution:
    """Draw a private label for each row, and return what the drawn labels tell (post-processing)."""
    assert plan.channel is not None
    step, K = plan.step, problem.classes
    moments = np.zeros((step.basis.size, K - 1))
    blocks = zip(problem.design.source.blocks(), problem.code_blocks(), strict=True)
    for number, (block, codes) in enumerate(blocks):
        drawn = plan.channel.draw(codes, stream.child(f"label channel/{number}"))
        moments += step.basis.coordinates(block).T @ plan.corners[drawn]
    return solution_of(plan, moments / plan.contrast, shrinkage=shrinkage)


def solution_of(plan: ClassPlan, moments: Floats, *, shrinkage: bool = True) -> ClassSolution:
    """Turn private moments sum w u v' into logits: post-processing, without a branch on private data."""
    step, basis, K = plan.step, plan.step.basis, plan.corners.shape[0]
    k, n, contrasts = basis.size, basis.n, K - 1
    theta = np.asarray(np.linalg.solve(step.A, moments), dtype=np.float64)
    inverse = np.linalg.solve(step.A, np.eye(k))
    told = float(np.sum(theta * (step.A @ theta))) / contrasts - float(np.sum(step.A * plan.noise))
    share = 1.0 / K  # the variance of a contrast, of any labels about 0, in the mean over contrasts
    variance = min(max(share - told / max(step.mass, 1e-300), 1e-3 * share), share)
    noise = plan.noise + variance * (inverse @ step.B @ inverse.T)
    first, effective = int(basis.intercept), float(k * contrasts)
    if shrinkage and (plan.multiplier > 0 or plan.channel is not None):
        effective, root = 0.0, math.sqrt(share)
        for c in range(contrasts):
            shrunk = shrink(theta[:, c] / root, noise / share, basis.singular_values, float(n), fixed=first)
            theta[:, c] = root * shrunk.mean
            effective += shrunk.effective
    if first:
        theta[0] = _shares(
            plan.corners, theta[0] / math.sqrt(n), math.sqrt(float(noise[0, 0]) / n)
        ) * math.sqrt(n)
    return ClassSolution(_maximum_likelihood(plan, theta), effective, variance)


def _shares(corners: Floats, mean: Floats, deviation: float) -> Floats:
    """Return the mean of v for class shares in [0, 1], from a noisy one."""
    K = corners.shape[0]
    own = math.sqrt((K - 1) / K) * deviation
    shares = np.array([_cut_normal_mean(float(p), own, 1.0) for p in 1.0 / K + corners @ mean])
    return np.asarray(corners.T @ (shares / shares.sum()), dtype=np.float64)


def _maximum_likelihood(plan: ClassPlan, theta: Floats) -> Floats:
    """Return logit coefficients (k, K) whose expected moments are those of the least-squares fit theta."""
    import scipy.optimize

    basis, V = plan.step.basis, plan.corners
    rows, n = basis.sample, basis.n
    _, weights = plan.step.plan.rows(rows)
    weights = weights / weights.mean() * (n / rows.shape[0])
    A = (rows * weights[:, None]).T @ rows
    target, k = A @ theta, basis.size
    if k == 0:
        return np.zeros((0, V.shape[0]))
    penalty = np.full((k, 1), _RIDGE * k / n)
    penalty[: int(basis.intercept)] *= 1e-2

    def objective(flat: Floats) -> tuple[float, Floats]:
        T = flat.reshape(k, -1)
        logits = (rows @ T) @ V.T
        top = logits.max(axis=1)
        e = np.exp(logits - top[:, None])
        total = e.sum(axis=1)
        value = weights @ (top + np.log(total)) - np.sum(target * T) + np.sum(penalty * T * T) / 2
        gradient = rows.T @ ((e / total[:, None]) @ V * weights[:, None]) - target + penalty * T
        return float(value) / n, (gradient / n).ravel()

    options = {"maxiter": 500, "ftol": 1e-13, "gtol": 1e-8}
    found = scipy.optimize.minimize(
        objective, np.zeros(k * V.shape[1]), jac=True, method="L-BFGS-B", options=options
    )
    return np.asarray(found.x.reshape(k, -1) @ V.T, dtype=np.float64)
