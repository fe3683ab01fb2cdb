"""Marginal screening: the columns whose products with the label are largest, by the exponential mechanism.

The score of column j is q_j = abs(x_j'y). Sensitivity (proof): a row contributes x_ij y_i, at most b_x b_y in
absolute value. Adding or removing a row moves x_j'y, hence its absolute value, by at most D = b_x b_y;
replacing it (or its private part, or its label) by at most D = 2 b_x b_y. The absolute value may move either
way under every relation, so a round pays for both (`confide.selection.baselines.peeling`).

It answers another question than subset selection: which columns go with the label one by one. Under
correlation the wrong columns win at any epsilon (`benchmarks/results/selection_paper.md`).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from confide.mechanisms.stream import RandomStream
from confide.privacy import Adjacency, Event
from confide.selection.baselines.peeling import peel, peeling_event, peeling_exponent, peeling_law
from confide.selection.problem import SubsetProblem, most_rows

Floats = npt.NDArray[np.float64]
Support = tuple[int, ...]


@dataclass(frozen=True)
class Screening:
    """Marginal screening with `size` rounds of the exponential mechanism; pure epsilon-DP.

    Notes
    -----
    ==============================  ====================================================================
    edge case                       what happens
    ==============================  ====================================================================
    n = 0, zero columns             score 0; all such columns have equal probability
    size = p, p = 1                 all columns
    cells beyond the bounds, NaN    clipped, 0, as the problem reads them
    classes (hinge, logistic)       y is -1 or +1 and b_y is 1
    ==============================  ====================================================================
    """

    name: ClassVar[str] = "screening"

    def scores(self, problem: SubsetProblem) -> Floats:
        """Return abs(X'y) in units of b_x b_y, [p]."""
        return np.abs(problem.products) / (problem.feature_bound * problem.target_bound)

    def exponent(self, problem: SubsetProblem, epsilon: Fraction, adjacency: Adjacency) -> float:
        """Return eta, from public numbers.

        In units of b_x b_y the computed x_j'y is a sum of n products in some order, wrong by at most
        (n + 2) n u with u = 2^-53 (Higham 2002, section 3.1; a hundredth covers the second order); the unit,
        the quotient and eta times it round once more each, by at most n u. n is at most `most_rows`, which is
        public.
        """
        rows = most_rows(problem.size)
        error = (1.01 * (rows + 2) + 4) * rows * 2.0**-53
        width = 1.0 if adjacency is Adjacency.ADD_REMOVE_ONE else 2.0
        return peeling_exponent(epsilon, problem.size, width, error)

    def charge(
        self, problem: SubsetProblem, epsilon: Any, adjacency: Adjacency
    ) -> tuple[Fraction, Event, tuple[str, ...]]:
        """Return epsilon, event and assumptions of one release."""
        return epsilon, peeling_event(epsilon, problem.size), ()

    def draw(
        self, problem: SubsetProblem, epsilon: Any, adjacency: Adjacency, size: int, source: RandomStream
    ) -> list[Support]:
        """Draw `size` supports."""
        eta = self.exponent(problem, epsilon, adjacency)
        return peel(eta * self.scores(problem), problem.size, size, source.child("screening"))

    def law(self, problem: SubsetProblem, epsilon: Any, adjacency: Adjacency) -> dict[Support, float]:
        """Return the probability of every support."""
        return peeling_law(problem, self.exponent(problem, epsilon, adjacency) * self.scores(problem))
