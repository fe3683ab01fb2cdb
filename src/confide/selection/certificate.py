"""Bounds of buckets for every loss, from multipliers of the records (dual certificates).

For any alpha inside the boxes, any nu >= 0 and L = lambda + nu > 0, weak duality gives for every S = I + T

    F_S >= sum -conjugate(y_i, alpha_i) - nu r^2 / 2 - sum over I and T of u_j^2 / (2 L),

u = X'alpha: additive in T, whatever alpha is. The log-weight of the bucket is convex in alpha, and at its
minimum alpha belongs to beta_j = pi_j u_j / L, pi_j the probability that j is in T. So, given
pi, alpha is the dual solution of one regression on I and the few columns with mass, in which column j has the
ridge L / pi_j; then nu by a one-dimensional search without a pass over X; then pi again.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from confide.selection.bounds import ALLOWANCE, LARGEST, Bound, candidates, symmetric
from confide.selection.interior import solve_ball
from confide.selection.problem import SubsetProblem
from confide.selection.symmetric import marginals

Floats = npt.NDArray[np.float64]
Columns = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_LEAST_SHARE = 0.01


class CertificateBounder:
    """Bounds for losses without curvature, and for any other.

    Parameters
    ----------
    problem : SubsetProblem
    eta : float
    allowance : float
    """

    def __init__(self, problem: SubsetProblem, eta: float, allowance: float = ALLOWANCE) -> None:
        self.problem, self.eta = problem, eta
        self.allowance = allowance * problem.rounding
        self.longest = math.sqrt(float(problem.columns.squares.max(initial=0.0)))
        self.tiny = 1e-7 * (float(problem.columns.squares.mean()) + problem.feature_bound**2)

    def bound(self, pinned: Columns, free: Mask, left: int, guess: Bound | None) -> Bound:
        """Return a bound: multipliers and marginals improved from those of `guess`."""
        problem = self.problem
        best: Bound | None = None
        if guess is not None and guess.helpers.size:
            keep = free[guess.helpers]
            helpers, shares, nu = guess.helpers[keep], guess.shares[keep], guess.nu
            total = float(shares.sum())
            shares = np.clip(shares * (left / total if total > left else 1.0), _LEAST_SHARE, 1.0)
        else:
            # The multipliers at coefficients 0 rank the columns.
            alpha = -problem.loss.derivative(problem.y, np.zeros(problem.n))
            u = problem.columns.correlations(alpha)
            # Start where the ball would be full of the best columns.
            largest = np.sort(np.partition(-np.abs(u), min(left, u.size) - 1)[: min(left, u.size)])
            nu = max(float(np.linalg.norm(largest)) / problem.radius - problem.ridge, 0.0)
            helpers, shares = self._shares(
                np.where(free, self.eta * u * u / (2 * self._L(nu)), -np.inf), left
            )
        for _ in range(10 if guess is None else 3):
            trial = self._evaluate(pinned, free, left, nu, helpers, shares)
            gained = math.inf if best is None else best.mass - trial.mass
            if best is None or gained > 0:
                best = trial
            if gained < 1e-2:
                break
            # Half a step: whole steps swing where columns compete.
            mixed = np.zeros(problem.p)
            mixed[helpers] = shares / 2
            mixed[trial.helpers] += trial.shares / 2
            helpers = np.flatnonzero(mixed > _LEAST_SHARE / 2)
            shares, nu = mixed[helpers], trial.nu
        assert best is not None
        return best

    def screen(self, supports: npt.NDArray[np.int64], nus: Floats) -> None:
        """Return None: a bound on one support costs as much as its score."""

    def _L(self, nu: float) -> float:
        return max(self.problem.ridge + nu, self.tiny)

    def _shares(self, logs: Floats, left: int) -> tuple[Columns, Floats]:
        chosen = candidates(logs, 3 * left + 8)
        shares = np.empty(chosen.size)
        marginals(logs, left, chosen, shares)
        shares = np.where(np.isfinite(shares), shares, left / chosen.size)
        keep = shares >= _LEAST_SHARE
        return chosen[keep], shares[keep]

    def _evaluate(
        self, pinned: Columns, free: Mask, left: int, nu: float, helpers: Columns, shares: Floats
    ) -> Bound:
        problem, eta = self.problem, self.eta
        L = self._L(nu)
        members = np.concatenate([pinned, helpers])
        alpha = np.zeros(problem.n)
        beta = np.zeros(members.size)
        if members.size:
            ridge = np.concatenate([np.full(pinned.size, L), L / shares])
            solve_ball(
                problem.columns.take(members), problem.y, problem.loss.code, problem.loss.shape, ridge,
                math.inf, 0.02 / eta, 60, beta, alpha,
            )  # fmt: skip
        else:
            alpha = -problem.loss.derivative(problem.y, np.zeros(problem.n))
        # The solver's multipliers lie in their boxes up to a rounding: put them there.
        low, high = problem.loss.box(problem.y)
        alpha = np.clip(alpha, low, high)
        terms = -problem.loss.conjugate(problem.y, alpha) - problem.loss.value(problem.y, np.zeros(problem.n))
        dual = math.fsum(terms)
        u = problem.columns.correlations(alpha)
        squares = u * u / 2
        own = float(squares[pinned].sum())
        free_squares = np.where(free, squares, -np.inf)
        nu = self._multiplier(dual, own, free_squares, left, nu)
        # No log-weight may be too large for the rounding that is paid for.
        least = eta * float(free_squares.max()) / (LARGEST / 2 * eta * problem.record_range)
        L = max(self._L(nu), least)
        nu = L - problem.ridge
        logs = np.where(free, eta * (squares / L) * (1 + 1e-12), -np.inf)
        r = problem.radius
        base = (
            dual - own / L * (1 + 1e-12) - nu * r * r / 2 - self._margin(alpha, pinned, left, dual, own / L)
        )
        found, weights = self._shares(logs, left)
        # What a typical member loses: the variance of the coefficients, seen by the curvature there is.
        excess = weights * (1 - weights) * 2 * squares[found] / (L * L) * problem.columns.squares[found]
        split = int(found[np.argmax(excess + 1e-12 * logs[found])]) if found.size else int(np.argmax(logs))
        mass = -eta * base + symmetric(logs, left)
        loose = eta * min(float(excess.sum()) / 8, problem.record_range * problem.n) + 0.05
        return Bound(base, logs, mass, nu, found, weights, loose, split)

    def _multiplier(self, dual: float, own: float, squares: Floats, left: int, nu: float) -> float:
        """Minimise the log-weight over nu, for these multipliers of the records."""
        problem, eta = self.problem, self.eta
        half = problem.radius**2 / 2

        def mass(x: float) -> float:
            L = math.exp(x)
            return -eta * (dual - own / L - (L - problem.ridge) * half) + symmetric(eta / L * squares, left)

        least = math.log(self._L(0.0))
        x = max(math.log(self._L(nu)), least)
        value, step = mass(x), 0.5
        for _ in range(24):
            moved = False
            for y in (x + step, max(x - step, least)):
                if y != x and (trial := mass(y)) < value:
                    x, value, moved = y, trial, True
                    break
            if not moved:
                step /= 3
                if step < 0.02:
                    break
        return max(math.exp(x) - problem.ridge, 0.0)

    def _margin(self, alpha: Floats, pinned: Columns, left: int, dual: float, own: float) -> float:
        """Return what rounding can move the bound by: entries of u within (n + 64) units of their norms.

        On the ball, sum |beta_j| ||x_j|| is at most radius times the root of the sum of squares over S.
        """
        problem = self.problem
        unit = (problem.n + 64) * 2.0**-53
        reach = problem.radius * math.sqrt(
            float(problem.columns.squares[pinned].sum()) + left * self.longest**2
        )
        length = math.sqrt(float(alpha @ alpha))
        # The terms of `dual` carry a few units of the largest loss or entropy each.
        terms = 16 * 2.0**-53 * problem.n * (1.0 + problem.target_bound + problem.record_range)
        return 2 * unit * length * reach + terms + 1e-12 * (abs(dual) + own) + self.allowance
