"""Engine `closed_form`: one noisy linear statistic, then everything is algebra.

Round: b = sum_i f_i (y_i - mid), f_i public with ||f_i|| <= 1 (`confide.training.choice`), released once
with exactly rounded Gaussian noise. theta = A^-1 L^-T b is unbiased for the weighted least-squares fit,
its noise covariance sigma^2 A^-1 M^-1 A^-1 is public, and shrinkage reads nothing but b.

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
    posterior : ndarray of shape (k, k)
        Empirical-Bayes covariance of `estimate` about the noiseless fit.
    effective : float
        Expected number of directions that the noise has left.
    """

    unbiased: Floats
    estimate: Floats
    noise: Floats
    posterior: Floats
    effective: float


def sensitivity(problem: LinearProblem, step: PublicStep, grid: float) -> float:
    """Return the L2 sensitivity of the released integer statistic times the grid step, padding included."""
    # One rounding to the grid for each block that holds rows of the unit.
    return padded_sensitivity(
        problem.label_range * step.reach,
        grid * step.touched,
        step.basis.size,
        step.rounding * problem.radius,
    )


def noise_covariance(step: PublicStep, sigma: float) -> Floats:
    """Return sigma^2 A^-1 M^-1 A^-1."""
    inverse = np.linalg.solve(step.plan.factor.T @ step.A, np.eye(step.basis.size))
    return sigma**2 * (inverse @ inverse.T)


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
        grid_step(noise_multiplier * scale, k)
        if noise_multiplier > 0
        else 2.0 ** math.floor(math.log2(scale * step.basis.n) - 52)
    )
    total = np.zeros(k, dtype=np.int64)
    for block, y in zip(problem.source.blocks(), problem.label_blocks(), strict=True):
        f, _ = step.plan.rows(step.basis.coordinates(block))
        total += round_toward_zero(f.T @ y, grid)
    bound = sensitivity(problem, step, grid)
    answer = yield Statistic(total, grid, bound, "closed_form")
    # The same numbers for every value of the answer: no branch below depends on private data.
    unbiased = np.linalg.solve(step.plan.factor.T @ step.A, answer)
    sigma = noise_multiplier * bound
    noise = noise_covariance(step, sigma)
    if sigma == 0 or not shrinkage:
        return Solution(unbiased, unbiased, noise, noise, float(k))
    posterior = shrink(
        unbiased,
        noise,
        step.basis.singular_values,
        step.basis.n * problem.radius**2,
        fixed=int(step.basis.intercept),
    )
    return Solution(unbiased, posterior.mean, noise, posterior.covariance, posterior.effective)
