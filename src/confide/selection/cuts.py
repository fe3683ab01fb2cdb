"""Cuts of the outer approximation: affine minorants of the score of a support in its indicator z.

Theorem. Let d >= 0 with X'X above diag(d) on every set of `width` columns (d = 0 is always valid), kappa a
curvature of the loss on the ball, b a vector on at most width - size columns, z any records' predictions,
nu >= 0. With alpha_i = -loss'(y_i, z_i), or any multipliers inside their boxes where kappa = 0, u = X'alpha,
v = u + kappa d b and L = ridge + nu, every support S satisfies

    F_S >= C - sum over j in S of v_j^2 / (2 (L + kappa d_j)),
    C = sum_i (loss(y_i, z_i) + alpha_i z_i) + kappa / 2 sum_j d_j b_j^2 - nu r^2 / 2.

Proof. For beta on S in the ball, zeta = X beta, convexity with curvature gives sum loss(y, zeta) >= sum
loss(y, z) - alpha'(zeta - z) + kappa/2 ||zeta - z||^2, and ||zeta - z||^2 = ||X(beta - b)||^2 >= sum d_j
(beta_j - b_j)^2 for z = X b. The ball's multiplier nu moves (nu/2)(||beta||^2 - r^2) <= 0 into the objective;
what is left is separable: columns outside S give kappa d_j b_j^2 / 2, those inside at least that less
v_j^2 / (2 (L + kappa d_j)). Where kappa = 0, loss(y, z) + alpha z becomes -conjugate(y, alpha). QED.

So a cut holds whatever b, alpha, nu are: no solver has to be exact. It is Danskin's (the minorant that
touches) where they solve the perspective problem at a point z* in [0, 1]^p: one regression on the columns
sqrt(z*_j) x_j with the ridge ridge + kappa d_j (1 - z*_j), in the same ball.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from confide.selection.gram import Gram
from confide.selection.kernels import ball_quadratic
from confide.selection.problem import SubsetProblem

Floats = npt.NDArray[np.float64]
Supports = npt.NDArray[np.int64]

_UNIT = 2.0**-53
#: Columns with a smaller share do not enter the point of a cut; nor do more columns than this.
_LEAST_SHARE = 1e-4
_MOST_MEMBERS = 96
#: Largest block for which `Gram.theta` looks at whole rows.
_WIDEST = 64


class Cut(NamedTuple):
    """F_S >= constant - sum of weights over S, for every support S (centred scores)."""

    constant: float
    weights: Floats


class Cutter:
    """Makes cuts of one problem.

    Parameters
    ----------
    problem : SubsetProblem

    Notes
    -----
    ===============================  ==================================================================
    edge case                        what happens
    ===============================  ==================================================================
    multipliers of a solver that     a weaker cut, still valid
    stopped early, or left the box
    ridge = 0, no curvature          nu is raised until ridge + nu is 1e-7 of a column's mean square
    zero columns                     weight 0
    equal columns                    no curvature in d: cuts by ridge + nu alone
    no rows, y = 0, squared loss     scores are all the same, and some cut says so within a step
    with no column but 0
    ===============================  ==================================================================
    """

    def __init__(self, problem: SubsetProblem) -> None:
        self.problem = problem
        self.gram = Gram(problem.columns)
        self.kappa = problem.loss.curvature(problem.reach)
        squares = problem.columns.squares
        self.longest = math.sqrt(float(squares.max(initial=0.0)))
        self.mean = float(squares.mean()) + problem.feature_bound**2
        self.origins = problem.loss.value(problem.y, np.zeros(problem.n))
        #: At least ||X beta|| on the ball, for every support.
        self.reach = problem.radius * math.sqrt(problem.size) * self.longest * (1 + 1e-12)

    def cut(self, z: Floats) -> Cut:
        """Return the cut that touches at z, [p] in [0, 1] with sum `size`."""
        problem = self.problem
        members = np.flatnonzero(z > _LEAST_SHARE)
        if members.size > _MOST_MEMBERS:
            members = np.sort(members[np.argsort(-z[members], kind="stable")[:_MOST_MEMBERS]])
        shares = np.minimum(z[members], 1.0)
        d = self._curvature(members.size)
        roots = np.sqrt(shares)
        ridge = problem.ridge + d[members] * (1 - shares)
        A = problem.columns.take(members)
        whole = bool((shares == 1.0).all())
        point, alpha = self._solve(A if whole else A * roots, ridge, whole)
        return self._cut_at(A, members, roots * point, alpha, d, z)

    def trivial(self) -> Cut:
        """Return the cut of losses that are at least 0: constant, and all there is where y = 0 or n = 0."""
        lost = 1e-12 * self.problem.origin + 2 * self.problem.rounding
        return Cut(-self.problem.origin - lost, np.zeros(self.problem.p))

    def _curvature(self, members: int) -> Floats:
        """Return kappa d for blocks of `members` + size columns, [p]."""
        width = members + self.problem.size
        if self.kappa == 0.0:
            return np.zeros(self.problem.p)
        # Rows of the whole matrix when the block is wider than what `theta` keeps of each row.
        theta = self.gram.theta(width if width <= _WIDEST else self.problem.p)
        if width > _WIDEST and self.problem.p > _WIDEST:
            theta = min(theta, self._least())
        return self.kappa * theta * (1 - 1e-12) * self.gram.diagonal

    def _least(self) -> float:
        """Return a lower bound on the smallest eigenvalue of the whole scaled X'X; 0 where unknown."""
        return self.gram._smallest if self.gram.whole else 0.0

    def _solve(self, A: Floats, ridge: Floats, whole: bool) -> tuple[Floats, Floats]:
        """Return coefficients and multipliers of the regression on A in the ball."""
        problem = self.problem
        point, alpha = np.zeros(A.shape[1]), np.zeros(problem.n)
        if problem.loss.name == "squared":
            ball_quadratic(A.T @ A + np.diag(ridge), A.T @ problem.y, 0.0, problem.radius, point)
            return point, alpha
        from confide.selection.interior import solve_ball

        tolerance = problem.tau / 4 if whole else 1e-6 * (problem.record_range + abs(problem.origin))
        solve_ball(
            np.asfortranarray(A), problem.y, problem.loss.code, problem.loss.shape, ridge, problem.radius,
            tolerance, 200 if whole else 60, point, alpha,
        )  # fmt: skip
        return point, alpha

    def _cut_at(self, A: Floats, members: Supports, b: Floats, alpha: Floats, d: Floats, z: Floats) -> Cut:
        problem, loss, y = self.problem, self.problem.loss, self.problem.y
        lost, exact = 0.0, np.zeros(problem.n, dtype=np.bool_)
        if self.kappa:
            fit = A @ b
            largest = float(np.abs(fit).max(initial=0.0))
            if largest > problem.reach and loss.name != "squared":
                # The curvature holds on the ball's predictions alone; any b is a point.
                b = b * (problem.reach / largest * (1 - 1e-12))
                fit = fit * (problem.reach / largest * (1 - 1e-12))
            alpha, exact = -loss.derivative(y, fit), fit == 0.0
            terms = loss.value(y, fit) + alpha * fit
            # What A @ b and alpha are off by, seen by the distance of any zeta to the fit.
            far = self.reach + float(np.linalg.norm(fit))
            wrong = (members.size + 4) * _UNIT * float(np.abs(b).sum()) * self.longest
            lost = far * (self.kappa * wrong + 16 * _UNIT * float(np.linalg.norm(alpha)))
        else:
            low, high = loss.box(y)
            alpha = np.clip(alpha, low, high)
            terms = -loss.conjugate(y, alpha)
        v = problem.columns.correlations(alpha)
        v[members] += d[members] * b
        nu, mu = self._multiplier(v, d, z)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
            weights = np.where(v != 0.0, v * v / (2 * mu), 0.0) * (1 + 1e-12)
        r = problem.radius
        constant = math.fsum(terms - self.origins) + float((d[members] * b * b).sum()) / 2 - nu * r * r / 2
        # Entries of X'alpha are within (n + 64) units of their norms (`certificate`); sums of a few units.
        unit = (problem.n + 64) * _UNIT
        lost += 2 * unit * float(np.linalg.norm(alpha)) * self.reach
        # Each term is a few units off the numbers it is made of, but where the fit is 0 it is 0.
        sizes = np.where(exact, 0.0, np.abs(terms) + np.abs(alpha * y) + self.origins)
        lost += 16 * _UNIT * float(sizes.sum())
        lost += 1e-13 * (abs(constant) + nu * r * r + float((d[members] * b * b).sum()))
        # A computed score may lie delta below the true one; and what underflow takes is far below delta.
        return Cut(constant - lost - 2 * problem.rounding, weights)

    def _multiplier(self, v: Floats, d: Floats, z: Floats) -> tuple[float, Floats]:
        """Return the best multiplier of the ball for the point z, and ridge + nu + kappa d, [p].

        The cut at z is concave in nu, with derivative (sum z v^2 / mu^2 - r^2) / 2: Newton on 1 / norm,
        from the left, which does not pass the root; any nu >= 0 is valid.
        """
        problem = self.problem
        floor = 1e-12 if d.any() else 1e-7
        nu = max(0.0, floor * self.mean - problem.ridge)
        used = np.flatnonzero((z > 0) & (v != 0))
        squares, own = z[used] * v[used] ** 2, d[used]
        # Left of the root: no single term may exceed the ball.
        nu = max(nu, float((np.sqrt(squares) / problem.radius - own - problem.ridge).max(initial=0.0)))
        for _ in range(60):
            mu = problem.ridge + nu + own
            norm = math.sqrt(float((squares / mu**2).sum()))
            if norm <= problem.radius * (1 + 1e-12):
                break
            pull = float((squares / mu**3).sum())
            if not pull > 0.0:
                break
            nu += (norm / problem.radius - 1) * norm * norm / pull
        return nu, problem.ridge + nu + d


class Pool:
    """Cuts of one problem, and what they say of supports.

    Attributes
    ----------
    constants : float64 array [K]
    weights : float64 array [K, p]
    """

    def __init__(self, p: int, size: int) -> None:
        self.p, self.size = p, size
        self._constants: list[float] = []
        self._weights: list[Floats] = []
        self._stacked: tuple[Floats, Floats] | None = None

    def __len__(self) -> int:
        return len(self._constants)

    def add(self, cut: Cut) -> None:
        """Add a cut; one that is not finite says nothing and is left out."""
        if not (math.isfinite(cut.constant) and np.isfinite(cut.weights).all()):
            return
        self._constants.append(cut.constant)
        self._weights.append(cut.weights)
        self._stacked = None

    @property
    def arrays(self) -> tuple[Floats, Floats]:
        """Constants [K] and weights [K, p], less what sums of size + 1 of them lose to rounding."""
        if self._stacked is None:
            W = np.array(self._weights)
            C = np.array(self._constants)
            lost = 4 * (self.size + 2) * _UNIT * (np.abs(C) + self.size * W.max(axis=1, initial=0.0))
            self._stacked = C - lost, W
        return self._stacked

    def combine(self, shares: Floats) -> Cut:
        """Return the convex combination of the first cuts with `shares` [k] >= 0, as valid as they are."""
        C, W = self.arrays
        C, W = C[: shares.size], W[: shares.size]
        shares = np.maximum(shares, 0.0)
        total = float(shares.sum())
        if not 0 < total < math.inf:  # not a solution: any combination is valid
            shares, total = np.ones(shares.size), float(shares.size)
        shares = shares / total
        used = np.flatnonzero(shares)
        weights = shares[used] @ W[used] * (1 + 4 * used.size * _UNIT)
        terms = shares[used] * C[used]
        return Cut(math.fsum(terms) - 4 * used.size * _UNIT * float(np.abs(terms).sum()), weights)

    def values(self, supports: Supports) -> Floats:
        """Return the largest of the cuts at each support, a lower bound on its score, [m]."""
        return self.tight(supports)[0]

    def tight(self, supports: Supports, chosen: Supports | slice = slice(None)) -> tuple[Floats, Supports]:
        """Return the largest of the (chosen) cuts at each support, and which it is, [m] each."""
        C, W = self.arrays
        C, W = C[chosen], W[chosen]
        out, which = np.empty(len(supports)), np.empty(len(supports), dtype=np.int64)
        turned = np.ascontiguousarray(W.T)
        height = max(1, (1 << 21) // max(1, len(C)))
        for i in range(0, len(supports), height):
            part = supports[i : i + height]
            total = turned[part[:, 0]].copy()
            for k in range(1, part.shape[1]):
                total += turned[part[:, k]]
            total = C - total
            which[i : i + height] = total.argmax(axis=1)
            out[i : i + height] = np.take_along_axis(total, which[i : i + height, None], axis=1)[:, 0]
        return out, which

    def values_at(self, z: Floats) -> Floats:
        """Return each cut's value at a point z [p], [K]."""
        C, W = self.arrays
        return C - W @ z

    def floor(self, groups: list[tuple[Supports, int]]) -> float:
        """Return a lower bound on every score: supports take so many columns of each group."""
        C, W = self.arrays
        least = C.copy()
        for columns, number in groups:
            if number:
                part = W[:, columns]
                least -= -np.partition(-part, number - 1, axis=1)[:, :number].sum(axis=1)
        return float(least.max())
