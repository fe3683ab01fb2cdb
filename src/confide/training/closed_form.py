"""Engine `closed_form`: one noisy linear statistic, then everything is algebra.

Round: b = sum_i f_i t_i, t_i in [-1, 1] the label in half-widths of its bounds about their middle, f_i public
with ||f_i|| <= 1 (`confide.training.choice`), and a second moment of the label that costs no sensitivity
(`confide.training.problem`), released together, once, with exactly rounded Gaussian noise.
theta = A^-1 L^-T b is unbiased for the weighted least-squares fit of t, its noise covariance
sigma^2 A^-1 M^-1 A^-1 is public; the second moment gives the residual variance, hence sampling errors;
shrinkage reads nothing but these. All of it happens in units of t; half-widths and the middle, which are
public, come back at the end.

Floating point. Each public block of rows is summed in float64 (error at most e a coordinate block, bounded
publicly by `PublicStep.rounding`) and rounded toward zero to the grid; block sums are added as integers. A
unit's rows lie in at most `touched` blocks, the others are identical, so the released integer vector moves
by at most D + 2e + touched h sqrt(k) in L2. No integer sum can leave +-2^61, nor can a block be clipped
there: the step h is at least the public bound `PublicStep.extent` over 2^60.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from confide.errors import DataError, ParameterError
from confide.mechanisms import Statistic, grid_step, padded_sensitivity, round_toward_zero
from confide.training.problem import LinearProblem, PublicStep
from confide.training.shrinkage import shrink

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Solution:
    """What one release tells, in coordinates with U'U = I and in units of the label.

    Coefficients are of y - middle where there is an intercept, of y itself where there is none.

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
        L2 sensitivity of the released statistic in units of the label, padding included.
    """

    unbiased: Floats
    estimate: Floats
    noise: Floats
    sampling: Floats
    posterior: Floats
    residual_variance: float
    effective: float
    sensitivity: float


#: Noise may be this many steps wide: the limit of exactly rounded noise (`confide.mechanisms`).
_WIDEST = 2.0**50


@dataclass(frozen=True)
class Release:
    """What is public about the one statistic, for labels in [-1, 1].

    Attributes
    ----------
    grid : float
        Step of the grid, a power of two.
    sensitivity : float
        L2, padding included.
    noise : ndarray of shape (k, k)
        Covariance of the privacy noise in theta.
    """

    grid: float
    sensitivity: float
    noise: Floats


def prepare(step: PublicStep, noise_multiplier: float) -> Release:
    """Fix grid, sensitivity and noise: all that can be refused is refused here, before any charge.

    Raises
    ------
    ParameterError
        If the noise is too wide or too narrow for a grid of doubles.
    DataError
        If the covariance of the noise is not finite.
    """
    k = step.basis.size
    # One rounding to the grid for each block that holds rows of the unit: h sqrt(k + 1) each.
    dimension = (k + 1) * step.touched**2
    if noise_multiplier > 0:
        grid = grid_step(
            noise_multiplier * 2.0 * step.reach,
            dimension,
            noise_multiplier=noise_multiplier,
            rows=1 + step.basis.n // 256,
        )
        # A coarser grid is paid for by its padding; int64 that wraps around would not be.
        grid = max(grid, _power_above(step.extent / 2.0**60))
    else:
        # Without noise the grid only has to resolve the sum.
        grid = _power_above(step.extent / 2.0**53)
    bound = padded_sensitivity(2.0 * step.reach, grid, dimension, step.rounding)
    sigma = noise_multiplier * bound
    if not sigma * (1 + 1e-9) <= _WIDEST * grid:
        raise ParameterError(
            f"Noise of {noise_multiplier:.6g} times the sensitivity has no grid that doubles can hold.",
            "Pass a larger epsilon.",
        )
    with np.errstate(all="ignore"):
        noise = noise_covariance(step, sigma)
    if not np.isfinite(noise).all():
        raise DataError("The covariance of the noise is not finite.", "Rescale the public columns.")
    return Release(grid, bound, noise)


def _power_above(value: float) -> float:
    """Return a power of two >= value, and at least 2^-900."""
    return 2.0 ** math.ceil(math.log2(max(value, 2.0**-900)))


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
        Whether to shrink by the known noise. Without an intercept the coefficients shrink towards the fit
        of a label that is the middle of its bounds throughout.
    """
    k = step.basis.size
    release = prepare(step, noise_multiplier)
    square = 2.0 * step.kappa
    total = np.zeros(k + 1, dtype=np.int64)
    for block, t in zip(problem.source.blocks(), problem.label_blocks(), strict=True):
        f, w = step.plan.rows(step.basis.coordinates(block))
        with np.errstate(all="ignore"):  # tiny products may underflow, and no warning may depend on a label
            sums = np.append(f.T @ t, square * (w @ (t * t)))
        total += round_toward_zero(sums, release.grid)
    answer = yield Statistic(total, release.grid, release.sensitivity, "closed_form")
    # The same steps for every value of the answer: no branch below depends on private data.
    sigma = noise_multiplier * release.sensitivity
    theta = np.asarray(np.linalg.solve(step.plan.factor.T @ step.A, answer[:k]), dtype=np.float64)
    shift = 0.0 if problem.intercept else problem.middle / problem.half
    fit_of_one = np.linalg.solve(step.A, step.mean_row)
    misfit = max(0.0, step.mass - float(fit_of_one @ step.mean_row))
    if misfit <= 1e-10 * step.mass:  # a constant within the span, up to rounding that shift^2 would blow up
        misfit = 0.0
    variance = _residual_variance(
        step, theta, release.noise, answer[k] / square, sigma / square, shift**2 * misfit
    )
    inverse = np.linalg.solve(step.A, np.eye(k))
    sampling = np.asarray(variance * (inverse @ step.B @ inverse.T), dtype=np.float64)
    if sigma == 0 or not shrinkage:
        estimate, posterior, effective = theta, release.noise + sampling, float(k)
    else:
        shrunk = shrink(
            theta,
            release.noise + sampling,
            step.basis.singular_values,
            float(step.basis.n),
            fixed=int(step.basis.intercept),
        )
        estimate, posterior, effective = shrunk.mean, shrunk.covariance, shrunk.effective
    half = problem.half
    # Public: X'y = (R/2) X't + middle X'1.
    constant = np.zeros(k) if problem.intercept else problem.middle * fit_of_one
    return Solution(
        half * theta + constant,
        half * estimate + constant,
        half**2 * release.noise,
        half**2 * sampling,
        half**2 * posterior,
        half**2 * variance,
        effective,
        half * release.sensitivity,
    )


def _residual_variance(
    step: PublicStep, theta: Floats, noise: Floats, second: float, deviation: float, apart: float
) -> float:
    """Estimate the residual variance of t from sum w_i t_i^2, released with a known deviation.

    sum w_i t_i^2 - theta' A theta is the weighted residual sum of squares at the noiseless fit of t, whose
    mean is s^2 (sum w_i - tr A^-1 B). Without an intercept t is y less the middle, and `apart`, the weighted
    sum of squares of that constant about its own fit, is in it too if y is linear in the columns. The square
    of a noisy theta is too large by tr(A noise), which is taken back. What is left may be negative where
    noise rules; the mean of a normal law cut to [0, 1] is positive and smooth.
    """
    explained = float(theta @ step.A @ theta) + apart - float(np.sum(step.A * noise))
    freedom = step.mass - float(np.trace(np.linalg.solve(step.A, step.B)))
    # A saturated fit (as many coordinates as rows) leaves no residual: then any variance up to the bound.
    freedom = max(freedom, 1e-3 * step.mass, 1e-300)
    # theta enters squared: its noise adds about 2 |A theta| in the linear part and tr((A noise)^2) beyond.
    gradient = 2 * (step.A @ theta)
    image = step.A @ noise
    spread = math.sqrt(deviation**2 + float(gradient @ noise @ gradient) + 2 * float(np.sum(image * image.T)))
    return _cut_normal_mean((second - explained) / freedom, spread / freedom, 1.0)


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
