"""A Metropolis chain on supports that walks towards the exponential mechanism (Roy & Tewari 2024).

Start at a uniform support; each step names one of its columns and any column of the table, both uniformly,
and swaps them with probability min(1, exp(-eta (F_new - F_old))); it stays where the column is in the support
already. The proposal is symmetric, so the exponential mechanism's law exp(-eta F_S) is stationary.

Label: approximate. A finite chain has not the stationary law, and how far it is from it depends on the
private scores: no epsilon is certified for any number of steps. Not even the stationary one: supports on the
two sides of a barrier keep the shares that a few early steps gave them (a test has scores of five columns for
which 30 steps lose 1.8 epsilon). The guarantee is that of the stationary law and says so in its assumption.
`confide.selection.draw` draws from that law exactly.

The exponent. The source uses exp(epsilon u / D) for a score u that a replaced row moves by at most D either
way, as here M; that is the exponential mechanism of 2 epsilon under replacement. "corrected", the default,
has eta = epsilon / (2 M); "published" keeps theirs, and the guarantee states 2 epsilon. Under ADD_REMOVE_ONE
the score is monotone and both are epsilon / M. The score here is F_S of `SubsetProblem`, an L2 ball in place
of their L1 ball, so that all methods answer one question.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from confide.errors import ParameterError, UnsupportedError
from confide.mechanisms.choice import uniform_integers
from confide.mechanisms.discrete import bernoulli_log
from confide.mechanisms.stream import RandomStream
from confide.privacy import Adjacency, Event
from confide.selection.baselines.front import MIXED
from confide.selection.enumeration import all_supports
from confide.selection.exponent import exponent
from confide.selection.gram import Gram
from confide.selection.problem import SubsetProblem

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Support = tuple[int, ...]

EXPONENTS = ("corrected", "published")
#: Supports whose chain is written down as a matrix.
LIMIT = 2_000
_BATCH = (8, 2048)


@dataclass(frozen=True)
class MarkovChain:
    """Metropolis chain of swaps; approximate.

    Parameters
    ----------
    steps : int, optional
        Proposals of one chain. Default 10 size p: each swap is then proposed ten times on average, and
        missed with probability e^-10.
    exponent : {"corrected", "published"}

    Notes
    -----
    ==============================  ====================================================================
    edge case                       what happens
    ==============================  ====================================================================
    size = p, p = 1                 every step stays
    n = 0, equal scores             every swap is accepted
    steps = 1                       one proposal, far from the stationary law
    ==============================  ====================================================================
    """

    steps: int | None = None
    exponent: str = "corrected"
    name: ClassVar[str] = "markov_chain"

    def __post_init__(self) -> None:
        steps = self.steps
        if steps is not None and (
            isinstance(steps, bool) or not isinstance(steps, int | np.integer) or not 1 <= steps <= 10**9
        ):
            raise ParameterError(
                f"The 'steps' parameter is {steps!r:.80}.", "Pass an integer from 1 to 10^9."
            )
        if self.exponent not in EXPONENTS:
            raise ParameterError(
                f"The 'exponent' parameter is {self.exponent!r:.80}.",
                f"Pass one of {', '.join(map(repr, EXPONENTS))}.",
            )

    def charge(
        self, problem: SubsetProblem, epsilon: Any, adjacency: Adjacency
    ) -> tuple[Fraction, Event, tuple[str, ...]]:
        """Return epsilon, event and assumptions of one release: what the stationary law costs."""
        self.eta(problem, epsilon, adjacency)
        cost = epsilon * self._factor(adjacency)
        return cost, Event.of("exponential", epsilon=str(cost)), (MIXED,)

    def _factor(self, adjacency: Adjacency) -> int:
        return 2 if self.exponent == "published" and adjacency is not Adjacency.ADD_REMOVE_ONE else 1

    def eta(self, problem: SubsetProblem, epsilon: Any, adjacency: Adjacency) -> float:
        """Return the exponent per unit of score."""
        return self._factor(adjacency) * exponent(problem, "exponential", epsilon, adjacency)

    def length(self, problem: SubsetProblem) -> int:
        """Return the number of steps."""
        return 10 * problem.size * problem.p if self.steps is None else int(self.steps)

    def draw(
        self, problem: SubsetProblem, epsilon: Any, adjacency: Adjacency, size: int, source: RandomStream
    ) -> list[Support]:
        """Return where `size` independent chains end."""
        eta, steps, scores = self.eta(problem, epsilon, adjacency), self.length(problem), scorer(problem)
        return [walk(problem, eta, steps, source.child("chain"), scores) for _ in range(size)]

    def law(self, problem: SubsetProblem, epsilon: Any, adjacency: Adjacency) -> dict[Support, float]:
        """Return the law of the chain's end, finite as it is; refuses past 2,000 supports."""
        return chain_law(problem, self.eta(problem, epsilon, adjacency), self.length(problem))


def scorer(problem: SubsetProblem) -> Callable[[Integers], Floats]:
    """Return what scores supports [m, size]: from X'X where it is small enough to be kept, else from columns.

    Products of X'X are not compensated; a chain that is approximate can live with that.
    """
    gram = Gram(problem.columns)
    if problem.loss.name != "squared" or not gram.whole:
        return problem.centred_scores
    from confide.selection.kernels import squared_scores

    gram.fill()

    def scores(supports: Integers) -> Floats:
        out = np.empty(len(supports))
        squared_scores(gram.rows, problem.products, supports, problem.ridge, problem.radius, out)
        return out

    return scores


def walk(
    problem: SubsetProblem,
    eta: float,
    steps: int,
    source: RandomStream,
    scores_of: Callable[[Integers], Floats],
) -> Support:
    """Return where one chain is after `steps` steps.

    Proposals are made in batches from the present support. Those after the first accepted one are thrown
    away unseen: the next batch is made anew, so the chain's law does not know of batches.
    """
    state = _uniform_support(problem, source)
    current = float(scores_of(state[None, :])[0])
    done, batch = 0, _BATCH[0]
    while done < steps:
        count = min(batch, steps - done)
        places = np.asarray(uniform_integers(problem.size, count, source), dtype=np.int64)
        entering = np.asarray(uniform_integers(problem.p, count, source), dtype=np.int64)
        moves = np.flatnonzero(~np.isin(entering, state))
        proposals = np.repeat(state[None, :], moves.size, axis=0)
        proposals[np.arange(moves.size), places[moves]] = entering[moves]
        proposals.sort(axis=1)
        scores = scores_of(proposals) if moves.size else np.zeros(0)
        accepted = np.flatnonzero(bernoulli_log(np.minimum(-eta * (scores - current), 0.0), stream=source))
        if accepted.size == 0:
            done += count
            batch = min(2 * batch, _BATCH[1])
            continue
        first = int(accepted[0])
        done += int(moves[first]) + 1
        state, current = proposals[first], float(scores[first])
        batch = max(batch // 2, _BATCH[0])
    return tuple(state.tolist())


def _uniform_support(problem: SubsetProblem, source: RandomStream) -> Integers:
    left = list(range(problem.p))
    for i in range(problem.size):
        j = i + int(uniform_integers(problem.p - i, 1, source)[0])
        left[i], left[j] = left[j], left[i]
    return np.array(sorted(left[: problem.size]), dtype=np.int64)


def chain_law(problem: SubsetProblem, eta: float, steps: int) -> dict[Support, float]:
    """Return the law of a chain after `steps` steps, by powers of its matrix.

    Raises
    ------
    UnsupportedError
        Past 2,000 supports.
    """
    if math.comb(problem.p, problem.size) > LIMIT:
        raise UnsupportedError(
            f"There are C({problem.p}, {problem.size}) supports; the matrix of a chain takes {LIMIT}.",
            "Use `baseline`, which runs the chain.",
        )
    supports = all_supports(problem)
    law = scores_law(problem.centred_scores(supports), supports, problem.p, eta, steps)
    return {tuple(map(int, s)): float(v) for s, v in zip(supports, law, strict=True)}


def scores_law(scores: Floats, supports: Integers, p: int, eta: float, steps: int) -> Floats:
    """Return the law of a chain over all supports [m, size] with given scores [m], from a uniform start."""
    size = supports.shape[1]
    inside = np.zeros((len(supports), p))
    np.put_along_axis(inside, supports, 1.0, axis=1)
    swaps = inside @ inside.T == size - 1
    rates = np.exp(np.minimum(-eta * (scores[None, :] - scores[:, None]), 0.0))
    matrix = np.where(swaps, rates / (size * p), 0.0)
    np.fill_diagonal(matrix, 1 - matrix.sum(axis=1))
    return np.full(len(supports), 1 / len(supports)) @ np.linalg.matrix_power(matrix, steps)
