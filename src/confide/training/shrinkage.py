"""Empirical-Bayes shrinkage of a noisy estimate by its known noise covariance: post-processing only.

theta_hat ~ N(theta, N) with N public. Priors theta ~ N(0, t D) are compared by their marginal likelihood
at theta_hat, over a grid of scales t and of shapes D in spectral coordinates: s^(2p) (p = 0: every
direction explains as much; p = 1: coefficients of equal size), and flat on the leading 1, 2, 4, ...
directions. The estimate is the posterior mean averaged over all of them by marginal likelihood, which
moves smoothly from "predict the mean" (t = 0 is on the grid) to no shrinkage at all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

_POWERS = (0.0, 0.5, 1.0, 1.5)
_SCALES = 2.0 ** np.arange(-20.0, 1.0)
#: Prior over scales: half the mass on "nothing but the mean", the rest even in log scale, falling off
#: where the explained variance would exceed R^2 / 80 (labels seldom fill their declared bounds).
_LOG_PRIOR = -np.log1p((20.0 * _SCALES) ** 2)
_LOG_PRIOR -= np.log(np.exp(_LOG_PRIOR).sum())


@dataclass(frozen=True)
class Posterior:
    """Posterior mean (k,), covariance (k, k), and the expected number of directions that survive."""

    mean: Floats
    covariance: Floats
    effective: float


def shrink(
    estimate: Floats, noise: Floats, singular_values: Floats, energy: float, *, fixed: int
) -> Posterior:
    """Average posterior means over prior shapes and scales.

    Parameters
    ----------
    estimate : ndarray of shape (k,)
        Released estimate in coordinates with U'U = I, of a label centred at the middle of its bounds.
    noise : ndarray of shape (k, k)
        Its known noise covariance, positive definite.
    singular_values : ndarray of shape (k - fixed,)
        Public spectrum, descending.
    energy : float
        A public bound on ||theta||^2, n R^2 / 4: the largest prior scale.
    fixed : int
        Leading coordinates (the intercept) that have a wide prior of their own and are hardly shrunk.
    """
    import scipy.linalg

    k, r = estimate.size, singular_values.size
    base = np.zeros(k)
    base[:fixed] = energy / 3.0  # a label spread evenly over its bounds
    lower: Floats = np.linalg.cholesky(noise + np.diag(base)).astype(np.float64)
    z = scipy.linalg.solve_triangular(lower, estimate, lower=True)
    if r == 0:
        return _mixture([(0.0, np.zeros(k), 0.0)], lower, z, base, estimate)
    shapes = _shapes(singular_values)
    components = [(_log_evidence(z, np.zeros(k)) + np.log(len(shapes)), np.zeros(k), 0.0)]
    for shape in shapes:
        prior = np.concatenate([np.zeros(fixed), shape])
        root = scipy.linalg.solve_triangular(lower, np.diag(np.sqrt(prior)), lower=True)
        values, vectors = np.linalg.eigh(root @ root.T)
        values = np.maximum(values, 0.0)
        image = vectors.T @ z
        for scale, weight in zip(_SCALES * energy, _LOG_PRIOR, strict=True):
            excess = scale * values
            evidence = _log_evidence(image, excess) + float(weight)
            components.append((evidence, scale * prior, float(np.sum(excess / (1.0 + excess)))))
    return _mixture(components, lower, z, base, estimate)


def _shapes(s: Floats) -> list[Floats]:
    relative = s / s[0]
    shapes = [relative ** (2 * p) for p in _POWERS]
    top = 1
    while top < s.size:
        shapes.append((np.arange(s.size) < top).astype(float))
        top *= 2
    # A twentieth of every prior is flat: no direction is ruled out, so that no error is claimed to be 0.
    return [0.95 * shape / shape.sum() + 0.05 / s.size for shape in shapes]


def _log_evidence(image: Floats, excess: Floats) -> float:
    """Log marginal likelihood of whitened data with variances 1 + excess, up to a common constant."""
    return float(-0.5 * np.sum(np.log1p(excess) + image**2 / (1.0 + excess)))


def _mixture(
    components: list[tuple[float, Floats, float]], lower: Floats, z: Floats, base: Floats, estimate: Floats
) -> Posterior:
    import scipy.linalg

    logs = np.array([component[0] for component in components])
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    # Components below a thousandth of the mass cannot matter and each costs k^3.
    chosen = np.argsort(-weights)[:24]
    chosen = chosen[weights[chosen] > 1e-3]
    weights = weights / weights[chosen].sum()
    noisy = lower @ lower.T
    k = z.size
    mean, second, effective = np.zeros(k), np.zeros((k, k)), 0.0
    for i in chosen:
        prior = base + components[i][1]
        factor = scipy.linalg.cho_factor(noisy + np.diag(components[i][1]), lower=True)
        m = prior * scipy.linalg.cho_solve(factor, estimate)
        V = np.diag(prior) - prior[:, None] * scipy.linalg.cho_solve(factor, np.diag(prior))
        mean += weights[i] * m
        second += weights[i] * (V + np.outer(m, m))
        effective += weights[i] * components[i][2]
    covariance = second - np.outer(mean, mean)
    return Posterior(mean, (covariance + covariance.T) / 2, float(effective))
