"""Subsample and aggregate: the Lasso on disjoint blocks of rows, and a vote (Kifer, Smith & Thakurta 2012).

Row i belongs to block i mod `blocks`, a public rule. Each block follows the Lasso path of its own rows until
`size` columns are active (where the path passes over `size`, the largest coefficients count) and votes for
them; a block whose path ends earlier casts fewer votes. The columns are released from the counts of votes by
`confide.selection.baselines.peeling`.

Sensitivity (proof). Replacing a row, or a part of it, changes the cells of one block, hence the votes of one
block, whatever the solver does with them: a column that it voted for may lose one vote, another may gain one.
So every count moves by a number in [-1, 1], D = 1, and the counts together by at most 2 size in L1. Under
ADD_REMOVE_ONE the rows that follow a removed one would change their blocks, and all votes with them: refused.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from confide.errors import ParameterError, UnsupportedError
from confide.mechanisms.stream import RandomStream
from confide.privacy import Adjacency, Event
from confide.selection.baselines.peeling import peel, peeling_event, peeling_exponent, peeling_law
from confide.selection.columns import Columns
from confide.selection.problem import SubsetProblem

Floats = npt.NDArray[np.float64]
Support = tuple[int, ...]


@dataclass(frozen=True)
class LassoVotes:
    """Votes of the Lasso over blocks of rows; pure epsilon-DP under replacement.

    Parameters
    ----------
    blocks : int, optional
        Public. Default: the square root of the number of rows, rounded, as in the source.

    Notes
    -----
    ==============================  ====================================================================
    edge case                       what happens
    ==============================  ====================================================================
    n = 0, blocks > n               blocks without rows cast no vote
    y = 0, zero columns             the path is empty: no vote
    equal, collinear columns        the path takes one of them; the others get no vote
    size = p, p = 1                 all columns
    cells beyond the bounds, NaN    clipped, 0, as the problem reads them
    a solver that fails             no vote of that block
    ADD_REMOVE_ONE                  UnsupportedError
    bounds by column, Parquet       UnsupportedError: blocks of rows of those cannot be read
    ==============================  ====================================================================
    """

    blocks: int | None = None
    name: ClassVar[str] = "lasso_votes"

    def __post_init__(self) -> None:
        if self.blocks is None:
            return
        if (
            isinstance(self.blocks, bool)
            or not isinstance(self.blocks, int | np.integer)
            or not 1 <= self.blocks <= 1 << 20
        ):
            raise ParameterError(
                f"The 'blocks' parameter is {self.blocks!r:.80}.", "Pass an integer from 1 to 2^20."
            )

    def scores(self, problem: SubsetProblem) -> Floats:
        """Return the number of votes for each column, [p]."""
        count = self._count(problem)
        votes = np.zeros(problem.p)
        for k in range(min(count, problem.n)):
            X = _rows(problem.columns, k, count)
            votes[lasso_support(X, problem.y[k::count] / problem.target_bound, problem.size)] += 1
        return votes

    def _count(self, problem: SubsetProblem) -> int:
        return max(1, round(math.sqrt(problem.n))) if self.blocks is None else int(self.blocks)

    def exponent(self, problem: SubsetProblem, epsilon: Fraction, adjacency: Adjacency) -> float:
        """Return eta, from public numbers; counts are exact, and eta times one rounds once."""
        return peeling_exponent(epsilon, problem.size, 1.0, self._count(problem) * 2.0**-52)

    def charge(
        self, problem: SubsetProblem, epsilon: Any, adjacency: Adjacency
    ) -> tuple[Fraction, Event, tuple[str, ...]]:
        """Return epsilon, event and assumptions of one release.

        Raises
        ------
        UnsupportedError
        """
        if adjacency is Adjacency.ADD_REMOVE_ONE:
            raise UnsupportedError(
                "Blocks of rows go by position, which a removed row shifts for all that follow.",
                "Use a relation under which the number of rows is public: 'replace_one'.",
            )
        if type(problem.columns) is not Columns:
            raise UnsupportedError(
                "Blocks of rows are read from an array or CSR matrix within one symmetric bound.",
                "Pass the encoded matrix itself.",
            )
        return epsilon, peeling_event(epsilon, problem.size), ()

    def draw(
        self, problem: SubsetProblem, epsilon: Any, adjacency: Adjacency, size: int, source: RandomStream
    ) -> list[Support]:
        """Draw `size` supports."""
        eta = self.exponent(problem, epsilon, adjacency)
        return peel(eta * self.scores(problem), problem.size, size, source.child("votes"))

    def law(self, problem: SubsetProblem, epsilon: Any, adjacency: Adjacency) -> dict[Support, float]:
        """Return the probability of every support."""
        return peeling_law(problem, self.exponent(problem, epsilon, adjacency) * self.scores(problem))


def lasso_support(X: Floats, y: Floats, size: int) -> npt.NDArray[np.int64]:
    """Return at most `size` columns, the first that the Lasso path of these rows takes up.

    Total: every table of finite cells has an answer, and no exception or warning tells tables apart.

    Parameters
    ----------
    X : float64 array [m, p]
    y : float64 array [m]
    size : int
    """
    from sklearn.linear_model import lars_path

    nothing = np.zeros(0, dtype=np.int64)
    if not X.any() or not y.any():
        return nothing
    coefficients = np.zeros((X.shape[1], 1))
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        # A path may drop columns on its way: only then more steps are needed.
        for steps in (size, 4 * size):
            try:
                _, _, path = lars_path(X, y, Gram=None, max_iter=steps, method="lasso")
            except (ValueError, ArithmeticError, IndexError, np.linalg.LinAlgError):
                return nothing
            coefficients = np.nan_to_num(path)
            active = (coefficients != 0).sum(axis=0)
            if active.max() >= size:
                break
    enough = np.flatnonzero(active >= size)
    at = np.abs(coefficients[:, enough[0] if enough.size else int(active.argmax())])
    best = np.argsort(-at, kind="stable")[:size]
    return best[at[best] > 0]


def _rows(columns: Columns, start: int, step: int) -> Floats:
    """Return rows start, start + step, ..., clipped and divided by the bound, [m, p]."""
    rows = columns.X[start::step]
    cells = np.array(rows.toarray() if columns.sparse else rows, dtype=np.float64, order="F")
    b = columns.bound
    np.nan_to_num(cells, copy=False, nan=0.0, posinf=b, neginf=-b)
    return np.clip(cells, -b, b, out=cells) / b
