"""Engine `closed_form`: one noisy linear statistic, then everything is algebra.

Round: b = sum_i f_i (y_i - centre), f_i public with ||f_i|| <= 1 (`confide.training.choice`), and a second
moment of the label that costs no sensitivity (`confide.training.problem`), released together, once, with
exactly rounded Gaussian noise. theta = A^-1 L^-T b is unbiased for the weighted least-squares fit, its
noise covariance sigma^2 A^-1 M^-1 A^-1 is public; the second moment gives the residual variance, hence
sampling errors; shrinkage reads nothing but these.

Floating point. Each public block of rows is summed in float64 (error at most e a coordinate block, bounded
publicly by `PublicStep.rounding`) and rounded toward zero to the grid; block sums are added as integers. A
unit's rows lie in at most `touched` blocks, the others are identical, so the released integer vector moves
by at most D + 2e + touched h sqrt(k) in L2.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from confide.mechanisms import Statistic, grid_step, padded_sensitivity, round_toward_zero
from confide.training.problem import LinearProblem, PublicStep
from confide.training.shrinkage import shrink

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Solution:
    """What one release tells, in coordinates with U'U = I.

    Attributes
    ----------
    unbiased : ndarray of shape (k,)
        Weighted least squares plus noise of covariance `noise`.
    estimate : ndarray of shape (k,)
        After shrinkage; equal to `unbiased` without.
    noise : ndarray of shape (k, k)
        Public covariance of the privacy noise in `unbiased`.
    sampling : ndarray of shape (k, k)
        Estimated covariance of the noiseless fit about the population's: residual variance times
        A^-1 B A^-1, for residuals of equal variance.
    posterior : ndarray of shape (k, k)
        Empirical-Bayes covariance of `estimate` about the population's coefficients.
    residual_variance : float
        Of the label about its linear fit, estimated from the release; > 0, at most R^2 / 4.
    effective : float
        Expected number of directions that the noise has left.
    sensitivity : float
        L2 sensitivity of the released statistic, padding included.
    """

    unbiased: Floats
    estimate: Floats
    noise: Floats
    sampling: Floats
    posterior: Floats
    residual_variance: float
    effective: float
    sensitivity: float


def sensitivity(problem: LinearProblem, step: PublicStep, grid: float) -> float:
    """Return the L2 sensitivity of the released integer statistic times the grid step, padding included."""
    # One rounding to the grid for each block that holds rows of the unit: h sqrt(k + 1) each.
    return padded_sensitivity(
        problem.label_range * step.reach,
        grid,
        (step.basis.size + 1) * step.touched**2,
        step.rounding * problem.radius,
    )


def noise_covariance(step: PublicStep, sigma: float) -> Floats:
    """Return sigma^2 A^-1 M^-1 A^-1."""
    inverse = np.linalg.solve(step.plan.factor.T @ step.A, np.eye(step.basis.size))
    return np.asarray(sigma**2 * (inverse @ inverse.T), dtype=np.float64)


def solve(
    problem: LinearProblem, step: PublicStep, noise_multiplier: float, *, shrinkage: bool = True
) -> Generator[Statistic, Floats, Solution]:
    """Yield the one statistic of this engine, be sent its private answer, and return the solution.

    Parameters
    ----------
    problem : LinearProblem
        Its labels are read here, once, and nowhere else.
    step : PublicStep
    noise_multiplier : float
        Noise deviation over sensitivity; 0 for a non-private fit.
    shrinkage : bool
        Whether to shrink by the known noise.
    """
    k = step.basis.size
    scale = problem.label_range * max(step.reach, 1e-300)
    # Without noise the grid only has to resolve the sum, whose public bound is n R.
    grid = (
        grid_step(
            noise_multiplier * scale,
            (k + 1) * step.touched**2,
            noise_multiplier=noise_multiplier,
            rows=1 + step.basis.n // 256,
        )
        if noise_multiplier > 0
        else 2.0 ** math.floor(math.log2(scale * step.basis.n) - 52)
    )
    square = step.kappa * 4.0 / problem.label_range
    total = np.zeros(k + 1, dtype=np.int64)
    for block, y in zip(problem.source.blocks(), problem.label_blocks(), strict=True):
        f, w = step.plan.rows(step.basis.coordinates(block))
        centred = y - (problem.middle - problem.centre)
        second = square * (w @ (centred * centred))
        total += round_toward_zero(np.append(f.T @ y, second), grid)
    bound = sensitivity(problem, step, grid)
    answer = yield Statistic(total, grid, bound, "closed_form")
    # The same steps for every value of the answer: no branch below depends on private data.
    sigma = noise_multiplier * bound
    unbiased = np.asarray(np.linalg.solve(step.plan.factor.T @ step.A, answer[:k]), dtype=np.float64)
    noise = noise_covariance(step, sigma)
    variance = _residual_variance(problem, step, unbiased, noise, answer[k] / square, sigma / square)
    inverse = np.linalg.solve(step.A, np.eye(k))
    sampling = np.asarray(variance * (inverse @ step.B @ inverse.T), dtype=np.float64)
    if sigma == 0 or not shrinkage:
        return Solution(unbiased, unbiased, noise, sampling, noise + sampling, variance, float(k), bound)
    posterior = shrink(
        unbiased,
        noise + sampling,
        step.basis.singular_values,
        step.basis.n * problem.radius**2,
        fixed=int(step.basis.intercept),
    )
    return Solution(
        unbiased,
        posterior.mean,
        noise,
        sampling,
        posterior.covariance,
        variance,
        posterior.effective,
        bound,
    )


def _residual_variance(
    problem: LinearProblem, step: PublicStep, theta: Floats, noise: Floats, second: float, deviation: float
) -> float:
    """Estimate the residual variance from sum w_i m_i^2, released with a known deviation.

    With an intercept, sum w_i m_i^2 - theta' A theta is the weighted residual sum of squares at the noiseless
    fit, whose mean is s^2 (sum w_i - tr A^-1 B); without one, centre and middle differ and this holds on
    average. The square of a noisy theta is too large by tr(A noise), which is taken back. What is left may
    be negative where noise rules; the mean of a normal law cut to [0, R^2/4] is positive and smooth.
    """
    shift = problem.centre - problem.middle
    explained = float(theta @ step.A @ theta + 2 * shift * (step.mean_row @ theta) + shift**2 * step.mass)
    explained -= float(np.sum(step.A * noise))
    freedom = step.mass - float(np.trace(np.linalg.solve(step.A, step.B)))
    largest = (problem.upper - problem.lower) ** 2 / 4.0
    # A saturated fit (as many coordinates as rows) leaves no residual: then any variance up to the bound.
    freedom = max(freedom, 1e-3 * step.mass, 1e-300)
    # theta enters squared: its noise adds about 2 |A theta| in the linear part and tr((A noise)^2) beyond.
    gradient = 2 * (step.A @ theta + shift * step.mean_row)
    image = step.A @ noise
    spread = math.sqrt(deviation**2 + float(gradient @ noise @ gradient) + 2 * float(np.sum(image * image.T)))
    return _cut_normal_mean((second - explained) / freedom, spread / freedom, largest)


def _cut_normal_mean(mean: float, deviation: float, largest: float) -> float:
    """Return the mean of N(mean, deviation^2) restricted to [0, largest]."""
    if deviation < 1e-9 * largest:
        return min(max(mean, 1e-12 * largest), largest)
    # Three meshes: the whole interval, the bulk of the law, and, for a mean below 0, its tail at 0.
    bulk = np.clip(np.linspace(mean - 9 * deviation, mean + 9 * deviation, 2001), 0.0, largest)
    x = np.unique(
        np.concatenate([np.linspace(0.0, largest, 2001), bulk, largest * np.geomspace(1e-12, 1.0, 2001)])
    )
    logs = -0.5 * ((x - mean) / deviation) ** 2
    density = np.exp(logs - logs.max())
    return float(np.trapezoid(x * density, x) / np.trapezoid(density, x))
