"""Mechanisms that draw from proven lists: `top_r` and `mistakes`, without enumeration.

Scores are computed ones, F^_S on a public grid, with F_S <= F^_S + delta <= F_S + tau for the true F_S,
centred (`confide.selection.problem`). One record added moves each of them by a number in [l, u] = [-tau, M +
tau]; one record replaced, by a number in [-M - tau, M + tau]; u - l is at most the range that `exponent`
divides epsilon by.

**top_r.** g_S = min(F^_S, F^_(R)), F^_(R) the R-th least of all computed scores; P(S) ~ exp(-eta g_S).

*Proof of epsilon.* Let every F^_S move by a number in [l, u]. An order statistic is monotone in each of its
arguments and moves by c when all of them do; so F^_(R) lies between its value with l added to all and with u
added to all, and moves by a number in [l, u]. So does the minimum of two numbers that do. The log-ratio at S
is -eta (g'_S - g_S) plus a constant that is the same for every S: its values lie in an interval of length
eta (u - l) <= epsilon, which holds 0 since both laws sum to 1. That is epsilon-DP, and a range bounded by
epsilon: the zCDP cost epsilon^2/8 of the exponential mechanism (Cesar & Rogers 2021, lemma 3.4). Ties need
nothing: g does not depend on which of equal scores is the R-th, and R is public.

*What is proven of a list.* The sampler needs F^_(R), and every S with F^_S < F^_(R) with its score. That is a
list of R supports whose largest computed score no computed score outside it is below (`Ranking.certified`). A
missing one would weigh exp(-eta F^_(R)) here and its own score on a neighbouring table: a leak without bound.
It is not enough that the list is best for the true scores, nor that a solver calls it optimal.

**mistakes.** With S* the best support (of equal ones the one that `best_supports` lists) and t the columns
of S outside S*, g_S = least F^ among the supports with as many. It draws t with weight
C(p - s, t) C(s, t) exp(-eta F^_t), then uniformly among the supports with t mistakes. The guarantee is
conditional: see `confide.selection.gap`.

==================================  =====================================================================
edge case                           what happens
==================================  =====================================================================
R = 1                               uniform over all supports
R >= C(p, s)                        the exponential mechanism, by enumeration
ties at the R-th score              the same law whichever is listed
s = p                               the one support
n = 0                               uniform: all scores are 0
C(p, s) beyond 2^63                 Python integers; every support is reachable, with its probability
C(p, s) - R small                   the tail is ranked, never waited for
==================================  =====================================================================
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from confide.errors import ParameterError
from confide.mechanisms.choice import uniform_integers, weighted_choice
from confide.mechanisms.stream import RandomStream
from confide.selection.problem import SubsetProblem

Support = tuple[int, ...]
Columns = npt.NDArray[np.int64]

#: Supports that `top_r` lists at most.
MOST_LISTED = 10**6


def top_of(mechanism: str, top: Any, p: int | None, size: int) -> int | None:
    """Return R for `top_r`, and None for every other mechanism, or where p is None: not known yet.

    Raises
    ------
    ParameterError
        Unless `top` is None or an integer in [1, 10^6], for `top_r`; None for the others.
    """
    if mechanism != "top_r":
        if top is not None:
            raise ParameterError(
                f"The 'top' parameter is {top!r:.80} with mechanism {mechanism!r}.",
                "Leave it out, or pass mechanism='top_r'.",
            )
        return None
    if top is not None and (
        isinstance(top, bool) or not isinstance(top, int | np.integer) or not 1 <= top <= MOST_LISTED
    ):
        raise ParameterError(
            f"The 'top' parameter is {top!r:.80}.", f"Pass None, or an integer from 1 to {MOST_LISTED:,}."
        )
    if p is None:
        return None
    wanted = 2 + (p - size) * size if top is None else int(top)
    return min(wanted, MOST_LISTED, math.comb(p, size))


def draw_top_r(
    problem: SubsetProblem, eta: float, top: int, size: int, source: RandomStream
) -> list[Support]:
    """Draw `size` supports from `top_r` with R = `top` <= C(p, s)."""
    if size == 0:
        return []
    listed, scores = proven(problem, top)
    rest = math.comb(problem.p, problem.size) - top
    logs = -eta * (scores - scores.min())
    if rest:
        logs = np.append(logs, math.log(rest) + logs.min())
    chosen = weighted_choice(log_weights=logs, size=size, stream=source.child("list"))
    result = [tuple(row) for row in listed[np.minimum(chosen, top - 1)].tolist()]
    outside = np.flatnonzero(chosen == top)
    if outside.size:
        drawn = unlisted(listed, problem.p, outside.size, source.child("tail"))
        for place, support in zip(outside.tolist(), drawn, strict=True):
            result[place] = support
    return result


def draw_mistakes(problem: SubsetProblem, eta: float, size: int, source: RandomStream) -> list[Support]:
    """Draw `size` supports from `mistakes`: a level by weight, then uniformly inside it."""
    if size == 0:
        return []
    best, scores = levels(problem)
    s, others = problem.size, np.setdiff1d(np.arange(problem.p), best)
    logs = [
        math.log(math.comb(others.size, t)) + math.log(math.comb(s, t)) - eta * (score - scores[0])
        for t, score in enumerate(scores.tolist())
    ]
    drawn = weighted_choice(log_weights=np.array(logs), size=size, stream=source.child("level"))
    kept, added = source.child("kept"), source.child("added")
    result: list[Support] = []
    for t in drawn.tolist():
        inside = best[list(_uniform_subset(s, s - t, kept))]
        outside = others[list(_uniform_subset(others.size, t, added))]
        result.append(tuple(sorted((*inside.tolist(), *outside.tolist()))))
    return result


def levels(problem: SubsetProblem) -> tuple[Columns, npt.NDArray[np.float64]]:
    """Return S* and the least computed score (centred) with t mistakes, t = 0 .. min(s, p - s)."""
    from confide.selection.ranking import best_by_mistakes

    (best,), _ = proven(problem, 1)
    ranking = best_by_mistakes(problem, optimum=best.tolist())
    _require(ranking.certified)
    return best, problem.known_scores(ranking.columns)


def proven(problem: SubsetProblem, count: int) -> tuple[Columns, npt.NDArray[np.float64]]:
    """Return the `count` best supports and their computed scores, centred.

    `Ranking.scores` hold the part in y too, which may round them by more than tau: it cancels here.
    """
    from confide.selection.ranking import best_supports

    ranking = best_supports(problem, count)
    _require(ranking.certified and len(ranking.columns) == count)
    return ranking.columns, problem.known_scores(ranking.columns)


def _require(proven: bool) -> None:
    if not proven:
        from confide.selection.envelope import EnvelopeError

        raise EnvelopeError("A search without a limit ended without a proof.")


def unlisted(listed: Columns, p: int, count: int, stream: RandomStream) -> list[Support]:
    """Draw `count` supports uniformly from those that are not listed, exactly.

    Parameters
    ----------
    listed : int64 array [R, size]
        Distinct sorted supports, R < C(p, size).
    p, count : int
    stream : RandomStream

    Notes
    -----
    With r_0 < r_1 < ... the ranks of the listed, r_i - i unlisted ones come before the i-th listed: the k-th
    unlisted support has rank k + #{i: r_i - i <= k}. One uniform integer a draw, however few are left.
    """
    size = listed.shape[1]
    total = math.comb(p, size)
    ranks = np.sort(_ranks(listed, p))
    before = ranks - np.arange(len(ranks))
    result: list[Support] = []
    for k in map(int, uniform_integers(total - len(ranks), count, stream)):
        result.append(_subset(k + int(np.searchsorted(before, k, side="right")), p, size))
    return result


def _ranks(supports: Columns, p: int) -> npt.NDArray[Any]:
    """Return the place of each sorted support in colexicographic order: sum of C(c_i, i + 1), [m].

    int64 where C(p, size) fits, else Python integers. Columns c of C(c, i + 1) are sums of the column before;
    only c <= p - size + i occurs, for which no entry passes C(p, size).
    """
    size = supports.shape[1]
    fits = math.comb(p, size) < 2**63
    column = np.array(list(range(p - size + 1)), dtype=np.int64 if fits else object)
    total = column[supports[:, 0]]
    for i in range(1, size):
        # C(c, i + 1) = sum over c' < c of C(c', i): zero up to c = i.
        column = np.concatenate([column[:1] * 0, np.cumsum(column)])
        total = total + column[supports[:, i]]
    return total


def _subset(rank: int, p: int, size: int) -> Support:
    """Return the subset of {0 .. p - 1} at a place of the colexicographic order: the inverse of `_ranks`."""
    result = [0] * size
    high = p
    for i in range(size, 0, -1):
        low = i - 1  # C(i - 1, i) = 0 <= rank; find the largest c below `high` with C(c, i) <= rank
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if math.comb(middle, i) <= rank else (low, middle)
        result[i - 1] = low
        rank -= math.comb(low, i)
        high = low
    return tuple(result)


def _uniform_subset(count: int, size: int, stream: RandomStream) -> Support:
    """Draw a sorted subset of {0 .. count - 1} uniformly, exactly."""
    (rank,) = uniform_integers(math.comb(count, size), 1, stream)
    return _subset(int(rank), count, size)
