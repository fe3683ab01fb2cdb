"""Best-first branch and bound: the search behind `best_supports` and `best_by_mistakes`.

A question (`Quota`) asks for the best supports among all, or among those with exactly `kept` of some
columns. Engines answer it: `search_squared` for the squared loss, `search_dual` for every other.
"""

from __future__ import annotations

import math
import time
import weakref
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from confide.selection.problem import SubsetProblem
from confide.selection.ranking import Floats, Ranking, Supports

#: Seconds after which a bar appears.
_QUIET = 2.0


@dataclass(frozen=True)
class Quota:
    """Exactly `kept` of the columns marked, the rest of the others; all supports where nothing is marked.

    Attributes
    ----------
    marked : bool array [p]
    kept : int
    """

    marked: npt.NDArray[np.bool_]
    kept: int


class Found(NamedTuple):
    """Supports [m, size] with centred scores [m], and a number that no other support's score is below."""

    columns: Supports
    scores: Floats
    bound: float


class Watch:
    """The clock of a search: when to stop, and the bar.

    Parameters
    ----------
    limit : float, optional
        Seconds from now.
    progress : bool
    """

    def __init__(self, limit: float | None, progress: bool) -> None:
        self.start = time.perf_counter()
        self.last = self.end = math.inf if limit is None else self.start + limit
        self.progress = progress
        self._bar: Any = None
        self._task: Any = None
        self._first: float | None = None

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self.start

    @property
    def left(self) -> float:
        """Seconds until the limit."""
        return self.end - time.perf_counter()

    def divide(self, parts: int) -> None:
        """Let the next of `parts` pieces of work end within its share of what is left."""
        self.end = min(self.last, time.perf_counter() + max(self.last - time.perf_counter(), 0.0) / parts)

    def show(self, what: str, gap: float, nodes: int) -> None:
        """Show the gap, once the search has taken two seconds."""
        if not self.progress or self.seconds < _QUIET:
            return
        if self._bar is None:
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

            columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
            self._bar = Progress(*columns, transient=True)
            self._task = self._bar.add_task(what, total=1.0)
            self._bar.start()
        if math.isfinite(gap):
            # The gap closes unevenly: its logarithm moves more like time.
            self._first = max(gap, self._first or 1e-300)
            done = 1 - math.log1p(gap) / math.log1p(self._first) if self._first > 0 else 1.0
            self._bar.update(self._task, completed=done)
        self._bar.update(self._task, description=f"{what}: gap {gap:.3g}, {nodes:,} nodes")

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


class Engine(Protocol):
    """Answers questions about one problem's supports."""

    nodes: int

    def find(self, count: int, quota: Quota | None, watch: Watch, what: str) -> Found:
        """Return the `count` best supports under a quota, and a bound on all others."""
        ...


_SQUARED: WeakKeyDictionary[SubsetProblem, Engine] = WeakKeyDictionary()


def engine_of(problem: SubsetProblem) -> Engine:
    """Return what searches this problem's supports; with its products kept as long as the problem."""
    from confide.selection import search_dual, search_squared

    if not search_squared.suits(problem):
        return search_dual.DualSearch(problem)
    if problem not in _SQUARED:
        # A strong reference from the value would keep the key alive.
        _SQUARED[problem] = search_squared.SquaredSearch(weakref.proxy(problem))
    return _SQUARED[problem]


def best_supports_search(
    problem: SubsetProblem, count: int, time_limit: float | None, progress: bool
) -> Ranking:
    """See `confide.selection.best_supports`."""
    watch = Watch(time_limit, progress)
    engine = engine_of(problem)
    before = engine.nodes
    try:
        found = engine.find(count, None, watch, "best supports")
    finally:
        watch.close()
    # Adding the part in y may round different centred scores to ties.
    scores = found.scores + problem.origin
    order = np.lexsort((*found.columns.T[::-1], scores))
    last = float(found.scores.max())
    complete = scores.size == math.comb(problem.p, problem.size)
    proven = complete or (scores.size == count and found.bound >= last)
    bounds = np.full(scores.size, (last if proven else found.bound) + problem.origin)
    nodes = engine.nodes - before
    return Ranking(found.columns[order], scores[order], bounds, bool(proven), watch.seconds, nodes)


def best_by_mistakes_search(
    problem: SubsetProblem, optimum: tuple[int, ...] | None, time_limit: float | None, progress: bool
) -> Ranking:
    """See `confide.selection.best_by_mistakes`."""
    watch = Watch(time_limit, progress)
    engine = engine_of(problem)
    before = engine.nodes
    certified = True
    try:
        if optimum is None:
            first = engine.find(1, None, watch, "best support")
            certified = bool(first.bound >= first.scores[0])
            optimum = tuple(first.columns[0].tolist())
        marked = np.zeros(problem.p, dtype=np.bool_)
        marked[list(optimum)] = True
        own = problem.centred_score(optimum)
        rows = [Found(np.array([optimum], dtype=np.int64), np.array([own]), own)]
        levels = min(problem.size, problem.p - problem.size)
        rows += [Found(rows[0].columns, np.full(1, math.inf), -math.inf)] * levels
        # Twice: what quick levels leave of the limit goes to the others.
        for _ in range(2):
            open_levels = [t for t in range(1, levels + 1) if rows[t].bound < rows[t].scores[0]]
            for k, t in enumerate(open_levels):
                if math.isfinite(rows[t].scores[0]) and watch.last <= time.perf_counter():
                    break
                watch.divide(len(open_levels) - k)
                again = engine.find(1, Quota(marked, problem.size - t), watch, f"{t} mistakes")
                better = min(again, rows[t], key=lambda found: float(found.scores[0]))
                rows[t] = better._replace(bound=max(again.bound, rows[t].bound))
    finally:
        watch.close()
    scores = np.array([row.scores[0] for row in rows])
    bounds = np.array([min(row.bound, row.scores[0]) for row in rows])
    certified = certified and bool(np.all(bounds >= scores))
    columns = np.concatenate([row.columns[:1] for row in rows])
    origin = problem.origin
    nodes = engine.nodes - before
    return Ranking(columns, scores + origin, bounds + origin, certified, watch.seconds, nodes)
