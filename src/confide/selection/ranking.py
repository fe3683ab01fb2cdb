"""Proven lists of supports: the best few, and the best for each number of mistakes.

Both are functions of private data: parts for mechanisms and for charged or public data, never a release.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from confide.errors import ParameterError
from confide.selection.problem import SubsetProblem

Floats = npt.NDArray[np.float64]
Supports = npt.NDArray[np.int64]

#: Supports that a list holds at most.
MOST = 10**6


class Support(NamedTuple):
    """Columns, sorted, and the computed score."""

    columns: tuple[int, ...]
    score: float


@dataclass(frozen=True)
class Ranking:
    """Supports with their scores, and what is proven about all others.

    A computed score lies above the true F_S less a rounding that the bounds below allow for, and on a public
    grid (`SubsetProblem.on_grid`), so that a bound proves statements about computed scores, ties included.

    Attributes
    ----------
    columns : int64 array [m, size]
        Rows sorted. `best_supports`: by score, ties by columns. `best_by_mistakes`: row t has exactly t
        columns outside row 0.
    scores : float64 array [m]
        As `SubsetProblem.score`.
    bounds : float64 array [m]
        No computed score of a support that is not in the list is below (`best_supports`: one number,
        repeated); or none of a support with t mistakes.
    certified : bool
        `best_supports`: no support outside the list has a computed score below the last one.
        `best_by_mistakes`: each row is the best of its level.
    seconds : float
    nodes : int
        Nodes of the search; 0 where a solver does not count them.
    """

    columns: Supports
    scores: Floats
    bounds: Floats
    certified: bool
    seconds: float
    nodes: int = 0

    @property
    def supports(self) -> list[Support]:
        """The rows as `Support(columns, score)`."""
        rows = map(tuple, self.columns.tolist())
        return [Support(row, score) for row, score in zip(rows, self.scores.tolist(), strict=True)]

    @property
    def gap(self) -> float:
        """How far the last score, or that of a level, may be above what is proven; 0 when certified."""
        if self.certified:
            return 0.0
        return float(np.maximum(self.scores - self.bounds, 0.0).max(initial=0.0))

    @property
    def levels_certified(self) -> npt.NDArray[np.bool_]:
        """Whether each row is proven: the best of its level, or in its place of the list; bool array [m]."""
        return self.scores <= self.bounds


def best_supports(
    problem: SubsetProblem,
    count: int,
    *,
    solver: str = "search",
    time_limit: float | None = None,
    progress: bool = False,
) -> Ranking:
    """Return the `count` supports of least score, with a proof that no other is better than the last.

    Parameters
    ----------
    problem : SubsetProblem
    count : int
        R, between 1 and 10^6; all C(p, size) supports where there are fewer.
    solver : {"search", "mip", "gurobi"}
        Branch and bound of this room; or outer approximation on HiGHS, or Gurobi where installed.
    time_limit : float, optional
        Seconds. What is found by then comes back, perhaps fewer rows, with `certified` False and what is
        proven in `bounds`. For people who look at public data: a mechanism passes none.
    progress : bool
        Show a bar with the gap on work past two seconds.

    Returns
    -------
    Ranking
        By score; ties by columns. Among supports that tie with the last score, any may be listed.

    Raises
    ------
    ParameterError
    KeyboardInterrupt
        Leaves nothing half-done.

    Notes
    -----
    =============================  ===================================================
    edge case                      what happens
    =============================  ===================================================
    count >= C(p, size)            all of them, certified
    size = p                       one support
    n = 0, y = 0                   all scores are 0: any `count` supports, certified
    equal columns                  equal scores, ties by columns
    time_limit = 0                 what a local search finds, not certified: the few passes over
                                   X that scores need are never cut short
    =============================  ===================================================
    """
    if isinstance(count, bool) or not isinstance(count, int | np.integer) or not 1 <= count <= MOST:
        raise ParameterError(
            f"The 'count' parameter is {count!r:.80}.", f"Pass an integer from 1 to {MOST:,}."
        )
    _check_problem(problem)
    limit = _limit(time_limit)
    count = min(int(count), math.comb(problem.p, problem.size))
    return _solver(solver, 0)(problem, count, limit, progress)


def best_by_mistakes(
    problem: SubsetProblem,
    *,
    optimum: Iterable[int] | None = None,
    solver: str = "search",
    time_limit: float | None = None,
    progress: bool = False,
) -> Ranking:
    """Return the best support for each number of mistakes against the best support.

    Parameters
    ----------
    problem : SubsetProblem
    optimum : iterable of int, optional
        Support that mistakes are counted against; the best one by default.
    solver, time_limit, progress
        As for `best_supports`; the limit is for all levels together.

    Returns
    -------
    Ranking
        Row t is the best support with exactly t columns outside `optimum`, t = 0 to min(size, p - size).

    Raises
    ------
    ParameterError
    KeyboardInterrupt
    """
    _check_problem(problem)
    limit = _limit(time_limit)
    against = None if optimum is None else problem.check_support(_numbers(optimum))
    return _solver(solver, 1)(problem, against, limit, progress)


def _check_problem(problem: Any) -> None:
    if not isinstance(problem, SubsetProblem):
        raise ParameterError(
            f"The problem is a {type(problem).__name__}.",
            "Pass a SubsetProblem(X, y, size, feature_bound=..., target_bound=...).",
        )


def _numbers(support: Any) -> list[int]:
    """Return the column numbers of a support; names are none."""
    columns = np.asarray(list(support) if isinstance(support, Iterable) else support)
    if columns.ndim != 1 or columns.dtype.kind not in "iu":
        raise ParameterError(
            f"The 'optimum' parameter is {support!r:.80}.", "Pass column numbers, counted from 0."
        )
    return columns.tolist()


def _limit(value: float | None) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not value >= 0:
        raise ParameterError(f"The 'time_limit' parameter is {value!r:.80}.", "Pass seconds, >= 0, or None.")
    return float(value)


def _solver(name: Any, which: int) -> Callable[..., Ranking]:
    """Return the functions for best supports (0) or by mistakes (1) of a solver."""
    if name == "search":
        from confide.selection import search

        return (search.best_supports_search, search.best_by_mistakes_search)[which]
    if name in ("mip", "gurobi"):
        from functools import partial

        from confide.selection import outer

        found = (outer.best_supports_mip, outer.best_by_mistakes_mip)[which]
        return found if name == "mip" else partial(found, solver="gurobi")
    raise ParameterError(f"The 'solver' parameter is {name!r:.80}.", "Pass one of 'search', 'mip', 'gurobi'.")
