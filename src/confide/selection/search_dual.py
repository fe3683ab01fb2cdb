"""Branch and bound on the bounds of buckets (`certificate`, `curved`): any loss, any number of columns.

A bucket (I, O) with t free columns has F >= base - (the t largest w_j): its best member. Buckets are
split best first; one free column left, and the members that pass the bound are scored.
"""

from __future__ import annotations

import heapq
import math
from typing import NamedTuple

import numpy as np

from confide.selection.bounds import Bound, Bounder
from confide.selection.problem import SubsetProblem
from confide.selection.ranking import Floats, Supports
from confide.selection.search import Found, Quota, Watch

#: Nats over the range of scores at which bounds weigh the members of a bucket: only the best count.
_NATS = 300.0


class _Node(NamedTuple):
    low: float
    serial: int
    pinned: tuple[int, ...]
    excluded: tuple[int, ...]
    bound: Bound


class _Kept:
    """The `count` best of the supports scored so far."""

    def __init__(self, problem: SubsetProblem, count: int) -> None:
        self.problem, self.count = problem, count
        self.scores: dict[tuple[int, ...], float] = {}
        self._worst: list[float] = []

    @property
    def threshold(self) -> float:
        """Score to beat."""
        return -self._worst[0] if len(self._worst) == self.count else math.inf

    def add(self, supports: list[tuple[int, ...]]) -> None:
        """Score those that are new."""
        fresh = [S for S in dict.fromkeys(supports) if S not in self.scores]
        if not fresh:
            return
        for S, score in zip(fresh, self.problem.known_scores(np.array(fresh)).tolist(), strict=True):
            self.scores[S] = score
            if len(self._worst) < self.count:
                heapq.heappush(self._worst, -score)
            elif score < -self._worst[0]:
                heapq.heapreplace(self._worst, -score)

    def best(self) -> tuple[Supports, Floats]:
        """Return the best supports and scores."""
        order = sorted(self.scores.items(), key=lambda item: (item[1], item[0]))[: self.count]
        return np.array([S for S, _ in order], dtype=np.int64), np.array([score for _, score in order])


class DualSearch:
    """Searches the supports of one problem.

    Parameters
    ----------
    problem : SubsetProblem
    """

    def __init__(self, problem: SubsetProblem) -> None:
        self.problem = problem
        self.nodes = 0
        self.eta = _NATS / (problem.record_range * max(problem.n, 1) ** 0.5)

    def find(self, count: int, quota: Quota | None, watch: Watch, what: str) -> Found:
        """Return the `count` best supports under a quota, and the smallest open bound."""
        problem = self.problem
        marked = np.zeros(problem.p, dtype=np.bool_) if quota is None else quota.marked
        kept = 0 if quota is None else quota.kept
        total = math.comb(int(marked.sum()), kept) * math.comb(int((~marked).sum()), problem.size - kept)
        best = _Kept(problem, min(count, total))
        bounder = self._bounder()
        heap: list[_Node] = []
        self._push(heap, bounder, best, marked, kept, (), (), None)
        while heap and heap[0].low < best.threshold:
            if watch.left <= 0:
                return Found(*best.best(), heap[0].low)
            watch.show(what, best.threshold - heap[0].low, self.nodes)
            node = heapq.heappop(heap)
            j = node.bound.split
            self._push(heap, bounder, best, marked, kept, (*node.pinned, j), node.excluded, node.bound)
            self._push(heap, bounder, best, marked, kept, node.pinned, (*node.excluded, j), node.bound)
        return Found(*best.best(), best.threshold)

    def _bounder(self) -> Bounder:
        from confide.selection.draws import make_bounder

        return make_bounder(self.problem, self.eta)

    def _push(
        self,
        heap: list[_Node],
        bounder: Bounder,
        best: _Kept,
        marked: np.ndarray,
        kept: int,
        pinned: tuple[int, ...],
        excluded: tuple[int, ...],
        guess: Bound | None,
    ) -> None:
        """Bound a bucket: score its members if they are few, else keep it unless the bound rules it out."""
        problem = self.problem
        self.nodes += 1
        free = np.ones(problem.p, dtype=np.bool_)
        free[[*pinned, *excluded]] = False
        first = kept - int(marked[list(pinned)].sum())
        second = problem.size - kept - int((~marked[list(pinned)]).sum())
        if first < 0 or second < 0:
            return
        if first == 0:
            free &= ~marked
        if second == 0:
            free &= marked
        groups = [(np.flatnonzero(free & marked), first), (np.flatnonzero(free & ~marked), second)]
        if any(group.size < wanted for group, wanted in groups):
            return
        # A group that is wanted whole leaves no choice.
        forced = [j for group, wanted in groups if 0 < wanted == group.size for j in group.tolist()]
        if forced:
            self._push(heap, bounder, best, marked, kept, (*pinned, *forced), excluded, guess)
            return
        left = first + second
        if left == 0:
            best.add([tuple(sorted(pinned))])
            return
        bound = bounder.bound(np.array(pinned, dtype=np.int64), free, left, guess)
        gains = np.where(free, bound.logs, -np.inf) / self.eta * (1 + 1e-12)
        low, top = bound.base, []
        for group, wanted in groups:
            if wanted:
                chosen = group[np.argsort(-gains[group], kind="stable")[:wanted]]
                low -= float(gains[chosen].sum())
                top += chosen.tolist()
        low -= 1e-13 * (abs(bound.base) + abs(low))
        if low >= best.threshold:
            return
        if left == 1:
            passing = np.flatnonzero(free & (bound.base - gains * (1 + 1e-13) < best.threshold))
            best.add([tuple(sorted((*pinned, j))) for j in passing.tolist()])
            return
        best.add([tuple(sorted((*pinned, *top)))])
        if not free[bound.split]:
            bound.split = top[0]
        heapq.heappush(heap, _Node(low, self.nodes, pinned, excluded, bound))
