"""When `mistakes` is private: the gap condition, and a check of it for charged or public data.

`mistakes` scores S by g_S = F_t, t the number of its columns outside the best support S*, F_t the least
computed score among supports with t of them (`confide.selection.listed`).

*The gap condition* of a table, for a neighbouring relation under which two computed scores can move apart by
at most W (M + 2 tau for ADD_REMOVE_ONE, 2 (M + 2 tau) for a replacement; m times that for units of m rows):

    F_(2) - F_(1) > W,    the best computed score is ahead of the second best by more than W.

*Proof.* On any neighbour of such a table S* is still ahead of every other support: both have the same S*, and
each level holds the same supports. The minimum over fixed supports moves by a number in [l, u] when all of
them do, so -eta (g'_S - g_S) lies in an interval of length eta (u - l) <= epsilon, and so does the log-ratio
(as for `top_r`). That is epsilon-DP, and a range bounded by epsilon, for every pair of neighbours of which
one has the gap. Nothing else is assumed, and the neighbour need not have it.

*What it does not say.* The pair is what counts: read for a wider relation (a replacement as a removal and an
addition, a group of k units) the guarantee needs the gap for the W of that relation. And whether a table has
the gap is a fact about the table: it may be told of public data, or be released with noise, as below.

*Why nothing weaker that looks at one table alone.* Where S* can flip, S has t mistakes on one table and t' on
the other, and F_t and F_t' may be any distance apart. The condition of the paper (F_2, the best with two
mistakes, is no better than the worst with one) does not prevent that even if both tables satisfy it: let x_2
and x_3 explain y almost equally well beside x_1, and let all other columns be zero. The best support flips
from {1, 2} to {1, 3} with one record. {2, 4} has one mistake on the first table, and the score of {1, 3}; two
on the second, and the score of {2} alone, worse by an amount that grows with n. Both tables satisfy the
paper's condition, and the log-ratio at {2, 4} is 5.0, 19.8, 79.5 for n = 100, 400, 1,600 at epsilon = 1
(tests/selection/test_gap.py; the golden pair, which flips too, violates the paper's condition: 5.45).

Returning the best support of the level, as the public code does, is not private for any epsilon, gap or no
gap: at most min(s, p - s) + 1 supports have positive probability, and which ones is a fact about the table.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from confide.errors import ParameterError
from confide.privacy import SEEDED, UNRECORDED, Adjacency, Event, Guarantee, exact
from confide.selection.problem import SubsetProblem
from confide.selection.request import PUBLIC_DATA, seed_of

_CHUNK = 1 << 14


@dataclass(frozen=True)
class GapCheck:
    """Whether a table has the gap condition.

    Attributes
    ----------
    holds : bool
        Exact for public data. Otherwise: the noisy gap is so large that a table without the gap would show it
        with probability `failure` at most.
    gap : float
        F_(2) - F_(1), noisy for a charged check; infinite where there is one support.
    needed : float
        W: public.
    guarantee : Guarantee or None
        Of a charged check; None for public data, where there is nothing to protect.
    failure : float
        0 for public data.
    paper : bool or None
        For public data: whether the best score with two mistakes is at least the worst with one, the
        condition of the paper, which is neither needed nor enough.
    """

    holds: bool
    gap: float
    needed: float
    guarantee: Guarantee | None
    failure: float = 0.0
    paper: bool | None = None


def gap_condition(
    problem: SubsetProblem,
    adjacency: Adjacency | str = "replace_one",
    *,
    diagnostics: str | None = None,
    epsilon: Any = None,
    failure: float = 1e-6,
    ledger: Any = None,
    rows_per_unit: int = 1,
    unit: str = "row",
    analyst: str | None = None,
    label: str = "gap condition",
    random_state: int | None = None,
) -> GapCheck:
    """Tell whether the gap condition of `mistakes` holds, for public data or at a charge.

    Parameters
    ----------
    problem : SubsetProblem
    adjacency : Adjacency or str
        The relation that the guarantee of `mistakes` will be read for.
    diagnostics : {None, "public data"}
        Declares that nothing in the table is secret: the check is exact and free.
    epsilon : amount, optional
        For secret data: the gap is released with discrete Laplace noise, epsilon-DP without any assumption
        (two order statistics move apart by at most W). Give this or `diagnostics`.
    failure : float
        In (0, 1/2), public: the largest probability that a charged check holds without the gap.
    ledger : Ledger or str, optional
        Charged before any score is computed. None marks the guarantee ``"unrecorded"``.
    rows_per_unit : int
        Most rows that one unit may have.
    unit : str
        Of the guarantee of a charged check.
    analyst, label : str
        Passed on to the ledger.
    random_state : int, optional
        For tests; marks the guarantee ``"seeded"``.

    Returns
    -------
    GapCheck

    Raises
    ------
    ParameterError
        Unless exactly one of `diagnostics` and `epsilon` is given.
    RefusedError
        From the ledger, before any score is computed.

    Notes
    -----
    That a check held at failure beta does not make a later draw of `mistakes` unconditional: together they
    are (epsilon + epsilon', beta)-DP (propose, test, release: Dwork & Lei 2009) if `mistakes` is run only
    where the check holds.

    ============================  ====================================================================
    edge case                     what happens
    ============================  ====================================================================
    one support (size = p)        holds, with an infinite gap: a public fact, nothing is charged
    two best supports             the gap is 0: does not hold
    n = 0                         the same
    a gap of exactly W            does not hold
    ============================  ====================================================================
    """
    relation = Adjacency.parse(adjacency)
    if (diagnostics is None) == (epsilon is None):
        raise ParameterError(
            "Whether the gap condition holds is a fact about the rows.",
            f"Pass diagnostics={PUBLIC_DATA!r} to declare them public, or an 'epsilon' to be charged.",
        )
    if diagnostics is not None and diagnostics != PUBLIC_DATA:
        raise ParameterError(
            f"The 'diagnostics' parameter is {diagnostics!r:.80}.", f"Pass None, or {PUBLIC_DATA!r}."
        )
    if isinstance(rows_per_unit, bool) or not isinstance(rows_per_unit, int) or rows_per_unit < 1:
        raise ParameterError(f"The 'rows_per_unit' parameter is {rows_per_unit!r:.80}.", "Pass an int >= 1.")
    if not (isinstance(failure, float | int) and 0 < failure < 0.5):
        raise ParameterError(f"The 'failure' parameter is {failure!r:.80}.", "Pass a number in (0, 0.5).")
    seed = seed_of(random_state)
    needed = width(problem, relation) * rows_per_unit
    guarantee = None
    if epsilon is not None:
        amount = exact(epsilon, "epsilon")
        if amount == 0:
            raise ParameterError("The 'epsilon' parameter is 0.", "Pass a positive epsilon.")
        assumptions = () if ledger is not None else (UNRECORDED,)
        assumptions += () if seed is None else (SEEDED,)
        event = Event.of("discrete_laplace", epsilon=str(amount))
        guarantee = Guarantee(amount, 0, relation, unit, event, assumptions)
    if problem.p == problem.size:
        return GapCheck(True, math.inf, float(needed), None, paper=True if guarantee is None else None)
    if guarantee is None:
        gap = best_gap(problem)
        return GapCheck(gap > needed, float(gap), float(needed), None, paper=paper_condition(problem))

    from confide.ledger import charged

    with charged(ledger, guarantee, analyst=analyst, label=label):
        noisy = _noisy(best_gap(problem), needed, guarantee.epsilon, seed)
    # Noise of scale W / epsilon passes that times log(1 / (2 failure)) with probability `failure`; 2^-16 is
    # far more than the grid, the padding and the discreteness of the noise add.
    scale = float(needed) / float(guarantee.epsilon) * (1 + 2.0**-16)
    margin = scale * (math.log(1 / (2 * failure)) + 2.0**-16)
    return GapCheck(noisy > float(needed) + margin, noisy, float(needed), guarantee, float(failure))


def width(problem: SubsetProblem, adjacency: Adjacency) -> Fraction:
    """Return W: what one record can move two computed scores apart by."""
    factor = 1 if adjacency is Adjacency.ADD_REMOVE_ONE else 2
    return factor * (Fraction(problem.record_range) + 2 * Fraction(problem.tau))


def best_gap(problem: SubsetProblem) -> Fraction:
    """Return F_(2) - F_(1) of the computed scores, exactly; p > size."""
    from confide.selection.listed import proven

    _, scores = proven(problem, 2)
    first, second = (Fraction(score) for score in sorted(scores.tolist()))
    return second - first


def paper_condition(problem: SubsetProblem) -> bool:
    """Return whether the best computed score with two mistakes is at least the worst with one."""
    from confide.selection.listed import levels

    best, scores = levels(problem)
    if scores.size < 3:
        return True
    rest = np.setdiff1d(np.arange(problem.p), best)
    swaps = np.array(
        [sorted({*best.tolist(), j} - {i}) for i in best.tolist() for j in rest.tolist()], dtype=np.int64
    )
    worst = max(
        float(problem.centred_scores(swaps[k : k + _CHUNK]).max()) for k in range(0, len(swaps), _CHUNK)
    )
    return bool(scores[2] >= worst)


def _noisy(gap: Fraction, needed: Fraction, epsilon: Any, seed: int | None) -> float:
    """Release the gap on a public grid with discrete Laplace noise."""
    from confide.mechanisms import Statistic, grid_step, laplace_release, padded_sensitivity
    from confide.mechanisms.grid import LARGEST_VALUE
    from confide.mechanisms.stream import stream

    step = grid_step(needed / max(epsilon, Fraction(1)), 1)
    units = min(int(gap / Fraction(step)), LARGEST_VALUE)  # cut exactly: the fractions are exact
    statistic = Statistic(np.array(units), step, padded_sensitivity(needed, step, 1, norm=1), "gap")
    return float(laplace_release(statistic, epsilon, stream=stream(seed)))
