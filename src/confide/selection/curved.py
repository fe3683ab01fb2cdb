"""Bounds for losses with curvature on the ball (logistic): a quadratic minorant, moved to where the mass is.

With kappa <= loss'' wherever abs(z) <= a, and any point beta0 with z = X beta0 inside +-a, every beta in
the ball has

    sum loss(y_i, x_i'beta) >= C - c'beta + kappa beta'X'X beta / 2,     c = X'(alpha + kappa z),
    C = sum (loss(y_i, z_i) + alpha_i z_i + kappa z_i^2 / 2),            alpha = -loss'(y, z),

so that all bounds of the squared loss hold with kappa X'X (`quadratic`). The best beta0 is again the mean
of the coefficients in the bucket: each bucket starts from its parent's and moves it once or more, a pass
over X each.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from confide.selection.bounds import ALLOWANCE, Bound, Columns, Floats, Mask, Minorant, QuadraticBounder
from confide.selection.certificate import CertificateBounder
from confide.selection.gram import Gram
from confide.selection.problem import SubsetProblem


class CurvedBounder(QuadraticBounder):
    """Bounds by quadratic minorants, or by plain dual certificates where those are better.

    Parameters
    ----------
    problem : SubsetProblem
    eta : float
    gram : Gram
    allowance : float
    """

    def __init__(self, problem: SubsetProblem, eta: float, gram: Gram, allowance: float = ALLOWANCE) -> None:
        super().__init__(problem, eta, gram, allowance)
        self.exact_one = False
        self.plain = CertificateBounder(problem, eta, allowance)
        self.first = self._at(np.zeros(0, dtype=np.int64), np.zeros(0))

    def bound(self, pinned: Columns, free: Mask, left: int, guess: Bound | None) -> Bound:
        """Return the best bound found while the minorant follows the bucket's mean."""
        self.minorant = self.first if guess is None or guess.minorant is None else guess.minorant
        best = self._here(pinned, free, left, guess)
        for _ in range(5 if guess is None else 2):
            self.minorant = self._at(np.concatenate([pinned, best.helpers]), best.point)
            trial = self._here(pinned, free, left, best)
            gained = best.mass - trial.mass
            if gained > 0:
                best = trial
            if gained < 0.01:
                break
        if left == 1:
            # One free column: exact Schur complements, at the same minorant.
            assert best.minorant is not None
            self.minorant, self.exact_one = best.minorant, True
            trial = self._here(pinned, free, left, None)
            self.exact_one = False
            if trial.mass < best.mass:
                best = trial
        if guess is None:
            plain = self.plain.bound(pinned, free, left, None)
            if plain.mass < best.mass:
                best = plain
        return best

    def screen(self, supports: npt.NDArray[np.int64], nus: Floats) -> None:
        """Return None: the minorant differs from bucket to bucket."""

    def _here(self, pinned: Columns, free: Mask, left: int, guess: Bound | None) -> Bound:
        bound = super().bound(pinned, free, left, guess)
        bound.minorant = self.minorant
        return bound

    def _at(self, members: Columns, beta: np.ndarray) -> Minorant:
        """Return the minorant that touches at `beta` on `members`, shortened where it leaves +-a."""
        problem = self.problem
        z = problem.columns.take(members) @ beta if members.size else np.zeros(problem.n)
        largest = float(np.abs(z).max(initial=0.0))
        if largest > problem.reach:
            z *= problem.reach / largest * (1 - 1e-12)
        kappa = problem.loss.curvature(problem.reach)
        alpha = -problem.loss.derivative(problem.y, z)
        terms = problem.loss.value(problem.y, z) - problem.loss.value(problem.y, np.zeros(problem.n))
        constant = math.fsum(terms + alpha * z + kappa / 2 * z * z)
        constant -= 32 * 2.0**-53 * problem.n * (1 + problem.reach) ** 2
        v = alpha + kappa * z
        return Minorant(constant, problem.columns.correlations(v), kappa, math.sqrt(float(v @ v)))
