"""Branch and bound on the bounds of buckets (`certificate`, `curved`): any loss, any number of columns.

A bucket (I, O) with t free columns has F >= base - (the t largest w_j): its best member. Buckets are
split best first; one free column left, and the members that pass the bound are scored.
"""

from __future__ import annotations

import heapq
import math
from typing import NamedTuple

import numpy as np

from confide.selection.bounds import Bound, Bounder, Columns
from confide.selection.draws import make_bounder
from confide.selection.problem import SubsetProblem
from confide.selection.ranking import Floats, Supports
from confide.selection.search import Found, Quota, Watch

#: Nats over the range of scores at which bounds weigh the members of a bucket: only the best count.
_NATS = 300.0


class _Node(NamedTuple):
    """A bucket that waits, with the bound that its parent left it."""

    low: float
    serial: int
    pinned: tuple[int, ...]
    excluded: tuple[int, ...]
    guess: Bound | None


class _Choice(NamedTuple):
    """What a bucket still has to choose: groups of free columns, and how many of each."""

    pinned: tuple[int, ...]
    groups: list[tuple[Columns, int]]

    @property
    def left(self) -> int:
        return sum(wanted for _, wanted in self.groups)

    def best(self, gains: Floats, without: int = -1, taken: int = 0) -> tuple[float, list[int]]:
        """Return the largest sum of gains and its columns, one column left out or (`taken` = 1) taken."""
        total, top = 0.0, []
        for group, wanted in self.groups:
            inside = bool(np.any(group == without))
            kept = group[group != without]
            number = wanted - taken if inside else wanted
            if kept.size < number:
                return -math.inf, []
            if number > 0:
                chosen = kept[np.argsort(-gains[kept], kind="stable")[:number]]
                total += float(gains[chosen].sum())
                top += chosen.tolist()
        return total + (float(gains[without]) if taken else 0.0), top


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

    @property
    def limit(self) -> float:
        """Least bound that proves a score of `threshold` or more: ties need not be visited."""
        return self.problem.limit(self.threshold)

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
        if quota is None:
            quota = Quota(np.zeros(problem.p, dtype=np.bool_), 0)
        sizes = int(quota.marked.sum()), int((~quota.marked).sum())
        total = math.comb(sizes[0], quota.kept) * math.comb(sizes[1], problem.size - quota.kept)
        best = _Kept(problem, min(count, total))
        bounder = make_bounder(problem, self.eta)
        heap = [_Node(-math.inf, 0, (), (), None)]
        while heap and heap[0].low < best.limit and (watch.left > 0 or not best.scores):
            node = heapq.heappop(heap)
            self.nodes += 1
            for child in self._split(node, bounder, best, quota):
                heapq.heappush(heap, child)
            if self.nodes % 16 == 0 and heap:
                watch.show(what, best.threshold - heap[0].low, self.nodes)
        proven = min(problem.on_grid(heap[0].low) if heap else math.inf, best.threshold)
        columns, scores = best.best()
        return Found(columns, scores, proven)

    def _choice(self, node: _Node, quota: Quota) -> _Choice | None:
        """Return what is left to choose, None where no support fits."""
        pinned, marked = list(node.pinned), quota.marked
        free = np.ones(self.problem.p, dtype=np.bool_)
        free[[*node.pinned, *node.excluded]] = False
        first = quota.kept - int(marked[pinned].sum())
        rest = self.problem.size - quota.kept - int((~marked[pinned]).sum())
        groups = []
        for mask, wanted in ((marked, first), (~marked, rest)):
            group = np.flatnonzero(free & mask)
            if wanted < 0 or group.size < wanted:
                return None
            if wanted == group.size:
                # No choice.
                pinned += group.tolist()
            elif wanted > 0:
                groups.append((group, wanted))
        return _Choice(tuple(pinned), groups)

    def _split(self, node: _Node, bounder: Bounder, best: _Kept, quota: Quota) -> list[_Node]:
        """Bound a bucket: score its members if they are few, else return the halves that may pass."""
        choice = self._choice(node, quota)
        if choice is None:
            return []
        if choice.left == 0:
            best.add([tuple(sorted(choice.pinned))])
            return []
        free = np.zeros(self.problem.p, dtype=np.bool_)
        for group, _ in choice.groups:
            free[group] = True
        bound = bounder.bound(np.array(choice.pinned, dtype=np.int64), free, choice.left, node.guess)
        gains = np.where(free, bound.logs, -np.inf) / self.eta * (1 + 1e-12)

        def low(gain: float) -> float:
            return bound.base - gain * (1 + 1e-13) - 1e-15 * abs(bound.base)

        total, top = choice.best(gains)
        if low(total) >= best.limit:
            return []
        if choice.left == 1:
            passing = [j for j in np.flatnonzero(free).tolist() if low(float(gains[j])) < best.limit]
            best.add([tuple(sorted((*choice.pinned, j))) for j in passing])
            return []
        best.add([tuple(sorted((*choice.pinned, *top)))])
        if node.guess is None:
            self._look_around(best, quota, gains)
        j = bound.split if free[bound.split] else top[0]
        children = []
        for taken, pinned, excluded in (
            (1, (*choice.pinned, j), node.excluded),
            (0, choice.pinned, (*node.excluded, j)),
        ):
            gain, _ = choice.best(gains, j, taken)
            known = max(low(gain), node.low)
            if gain > -math.inf and known < best.limit:
                serial = 2 * self.nodes + taken
                children.append(_Node(known, serial, pinned, excluded, bound))
        return children

    def _look_around(self, best: _Kept, quota: Quota, gains: Floats) -> None:
        """Score neighbours of the best support, most promising first, as many as a list of them needs."""
        if best.count == 1:
            return
        for _ in range(3):
            S = min(best.scores, key=lambda key: best.scores[key])
            pairs = [
                (gains[j] - gains[x], x, j)
                for x in S
                for j in np.flatnonzero(quota.marked == quota.marked[x]).tolist()
                if j not in S
            ]
            pairs.sort(key=lambda item: (-item[0], item[1:]))
            best.add([tuple(sorted({*S, j} - {x})) for _, x, j in pairs[: best.count]])
            if min(best.scores, key=lambda key: best.scores[key]) == S:
                return
