"""The two ends of the scale: the exponential mechanism by enumeration, and the best subset, not private."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from confide.mechanisms import weighted_choice
from confide.mechanisms.stream import RandomStream
from confide.privacy import Adjacency, Event
from confide.privacy.guarantee import NONPRIVATE
from confide.selection.enumeration import LIMIT, all_supports, law
from confide.selection.exponent import exponent
from confide.selection.problem import SubsetProblem

Support = tuple[int, ...]

_CHUNK = 1 << 16


@dataclass(frozen=True)
class Enumeration:
    """The exponential mechanism over all supports, listed; pure epsilon-DP, and the oracle of `draw`.

    Notes
    -----
    ==============================  ====================================================================
    edge case                       what happens
    ==============================  ====================================================================
    more than 200,000 supports      UnsupportedError, before a score is computed
    size = p, p = 1                 the one support
    n = 0, equal scores             uniform
    ==============================  ====================================================================
    """

    name: ClassVar[str] = "enumeration"

    def charge(
        self, problem: SubsetProblem, epsilon: Any, adjacency: Adjacency
    ) -> tuple[Fraction, Event, tuple[str, ...]]:
        """Return epsilon, event and assumptions of one release."""
        exponent(problem, "exponential", epsilon, adjacency)
        if math.comb(problem.p, problem.size) > LIMIT:
            all_supports(problem)  # refuses
        return epsilon, Event.of("exponential", epsilon=str(epsilon)), ()

    def draw(
        self, problem: SubsetProblem, epsilon: Any, adjacency: Adjacency, size: int, source: RandomStream
    ) -> list[Support]:
        """Draw `size` supports."""
        eta = exponent(problem, "exponential", epsilon, adjacency)
        supports = all_supports(problem)
        scores = np.concatenate(
            [problem.centred_scores(supports[i : i + _CHUNK]) for i in range(0, len(supports), _CHUNK)]
        )
        logs = -eta * (scores - scores.min())
        places = weighted_choice(log_weights=logs, size=size, stream=source.child("enumeration"))
        return list(map(tuple, supports[places].tolist()))

    def law(self, problem: SubsetProblem, epsilon: Any, adjacency: Adjacency) -> dict[Support, float]:
        """Return the probability of every support."""
        return law(problem, "exponential", epsilon, adjacency)


@dataclass(frozen=True)
class BestSubset:
    """The support of the least score: no privacy at all. Ties go to the first in lexicographic order."""

    name: ClassVar[str] = "best_subset"

    def charge(
        self, problem: SubsetProblem, epsilon: Any, adjacency: Adjacency
    ) -> tuple[float, Event, tuple[str, ...]]:
        """Return an infinite epsilon, marked as no guarantee."""
        return math.inf, Event.of("best_subset"), (NONPRIVATE,)

    def draw(
        self, problem: SubsetProblem, epsilon: Any, adjacency: Adjacency, size: int, source: RandomStream
    ) -> list[Support]:
        """Return the best support, `size` times."""
        return [_best(problem)] * size

    def law(self, problem: SubsetProblem, epsilon: Any, adjacency: Adjacency) -> dict[Support, float]:
        """Return probability 1 for the best support, 0 for the others."""
        best = _best(problem)
        return {s: float(s == best) for s in map(tuple, all_supports(problem).tolist())}


def _best(problem: SubsetProblem) -> Support:
    from confide.selection.ranking import best_supports

    return tuple(best_supports(problem, 1).supports[0].columns)
