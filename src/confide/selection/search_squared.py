"""Best-first branch and bound for the squared loss, from rows of X'X.

All inner products are computed by the operations that scores are computed with, so that a score is the value
of one quadratic function at a point of the ball, and a bound only has to allow for the few hundred operations
of its own.

A node pins I and may add t columns of a list. At a multiplier nu >= 0 of the ball, with L = lambda + nu, K =
G + L, residual correlations u, Schur diagonals d and base = -c_I' K_II^-1 c_I / 2, every T has

    F_{I+T} >= base - nu r^2 / 2 - sum over T of u_j^2 / (2 mu_j)

wherever diag(mu_T) lies below the Schur complement K_TT - K_TI K_II^-1 K_IT. Two choices; the better counts:

1. Gershgorin. Scaled by d, an entry of the Schur complement is g_ij / sqrt(d_i d_j), and e_j^2 = K_jj / d_j
   gives

       abs(g_ij) / sqrt(d_i d_j) <= e_i e_j abs(G_ij) / sqrt(K_ii K_jj) + sqrt(e_i^2 - 1) sqrt(e_j^2 - 1),

   because what I explains of i and j has norms sqrt(K_jj - d_j). Sums over at most t - 1 others come from the
   largest scaled entries of each column at the least L (at L they are smaller by the factor sqrt((G_ii +
   least) / (G_ii + L)) and the same for j, at most that of the largest G_ii), the largest e of the list and
   its largest e^2 - 1: mu_j = d_j (1 - sum). Dominance holds for every T, row by row; a column with a sum
   of 1 or more has no bound, never a clipped one.
2. A diagonal h >= 0 with G - diag(h) positive semidefinite, found once: mu_j = L + h_j. Schur complements of
   a matrix above a diagonal lie above it.

With one column left d_j is exact; with two, every pair of the list that passes is eliminated exactly. What
passes is scored.

Rounding. Computed u, d and base are those of Cholesky's method on K + dK and c + dc, with abs(dK_ij) <= (s +
8) units of sqrt(K_ii K_jj) and abs(dc_j) <= as many of sqrt(K_jj) ||y|| (Higham 2002, 10.3; Cauchy-Schwarz).
On the ball, sum abs(beta_j) sqrt(K_jj) <= R = r sqrt(s max K), so that the function moves by (s + 8) units of
R (R + ||y||). At nu = 0 < lambda it also moves by s max K / lambda times as many units of the value itself:
then y = 0 loses nothing. The kernels allow 64 times that (`rounding`); the same covers the evaluation of the
score. All of it is relative to sizes that underflow where columns or y almost vanish; so every bound, that of
the root included, is lowered by delta too (`SubsetProblem.rounding`), an absolute number far above whatever
underflow takes.

Ties. Scores lie on a grid of q, so a bound above T - q proves a score of T or more. With T the count-th best
score known, nothing that ties with it has to be visited: the list is the supports that were found below T,
filled up with known ones at T. Any of them may be listed.

No outcome is an exception. Guesses below T have to be found again; one that is not would show a bound above
a score. Then the search starts anew with a larger allowance, in the end one that rules out nothing.
"""

from __future__ import annotations

import math
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from confide.selection.kernels import ball_quadratic
from confide.selection.problem import SubsetProblem
from confide.selection.products import Products
from confide.selection.ranking import Floats, Supports
from confide.selection.search import Found, Quota, Watch

if TYPE_CHECKING:
    from confide.selection.search_state import State

#: Products of cells up to which all scaled entries of X'X are looked at for their largest.
_MOST_WORK = 2**40
#: Bytes of a path.
_MOST_PATH = 2**31
#: Columns up to which the diagonal h is found.
_MOST_SPREAD = 2048
#: Cells that are read at once.
_BLOCK = 1 << 24
#: Nodes that wait at most, and the bytes for them; past it the search goes depth first.
_MOST_NODES = 1 << 18
_BYTES = 1 << 28
#: Supports that are scored between looks at the clock.
_CHUNK = 1 << 13
#: What the allowance grows by where a bound lay above a score, which has not been seen.
_MORE = 2.0**20
#: Least scaled row sum from which the diagonal h is worth finding.
_CROWDED = 0.5


def suits(problem: SubsetProblem) -> bool:
    """Return whether this engine searches the problem."""
    return problem.loss.name == "squared" and 8 * problem.size**2 * problem.p <= _MOST_PATH


class SquaredSearch:
    """Searches the supports of one problem.

    Parameters
    ----------
    problem : SubsetProblem

    Attributes
    ----------
    nodes : int
        So far.
    """

    def __init__(self, problem: SubsetProblem) -> None:
        self.problem = problem
        self.nodes = 0
        self.products = Products(problem)
        self.length = float(np.linalg.norm(problem.y))
        #: A ridge that no pivot vanishes at: 1e-7 of a column costs 1e-7 r^2 of a score.
        self.tiny = 1e-7 * (float(self.products.diagonal.mean()) + problem.feature_bound**2)
        #: The same for supports one by one: pivots survive 64 columns of the largest diagonal (above).
        self.small = 1e-11 * (float(self.products.diagonal.max()) + problem.feature_bound**2)
        self._sums: Floats | None = None
        self._h: Floats | None = None

    def find(self, count: int, quota: Quota | None, watch: Watch, what: str) -> Found:
        """Return the `count` best supports under a quota, and the smallest open bound."""
        problem = self.problem
        group = np.zeros(problem.p, dtype=np.uint8)
        if quota is not None:
            group[quota.marked] = 1
        kept = 0 if quota is None else quota.kept
        wanted = np.array([problem.size - kept, kept])
        sizes = np.array([int((group == 0).sum()), int(group.sum())])
        count = min(
            count, math.comb(int(sizes[0]), int(wanted[0])) * math.comb(int(sizes[1]), int(wanted[1]))
        )
        columns, scores, nu = self._guesses(count, group, wanted, watch)
        slack = problem.rounding
        while True:
            found = self._searched(count, group, wanted, columns, scores, nu, slack, watch, what)
            if found is not None:
                return found
            slack *= _MORE

    def _searched(
        self, count: int, group: np.ndarray, wanted: np.ndarray, columns: Supports, scores: Floats, nu: float,
        slack: float, watch: Watch, what: str,
    ) -> Found | None:  # fmt: skip
        """Return what a search from these guesses finds; None where it shows a bound above a score."""
        from confide.selection.search_state import ASKED, BEAT, FOUND, HEAP, LEVEL, NODES, ROOT
        from confide.selection.search_tree import advance

        problem = self.problem
        lowest = -(self.length**2) - slack
        threshold = float(scores[count - 1]) if len(scores) >= count else math.inf
        state = self._state(count, group, wanted, nu, threshold, lowest, slack, watch)
        if state is None:
            return Found(columns[:count], scores[:count], problem.on_grid(lowest))
        budget, before = 1 << 20, watch.seconds
        over = False
        while not over and watch.left > 0:
            over = advance(state, budget)
            if state.counts[ASKED]:
                self.products.ensure(state.asked[: state.counts[ASKED]])
                state = state._replace(G=self.products.rows)
            now = watch.seconds
            if now - before < 0.02:
                budget = min(2 * budget, 1 << 28)
            elif now - before > 0.08:
                budget = max(budget // 2, 1 << 16)
            before = now
            if not over:
                open_ = float(state.numbers[ROOT]) if state.counts[LEVEL] >= 0 else float(state.heap_low[0])
                watch.show(what, float(state.numbers[BEAT]) - open_, int(state.counts[NODES]))
        self.nodes += int(state.counts[NODES])
        found, beat = int(state.counts[FOUND]), float(state.numbers[BEAT])
        met = state.best_columns[:found][state.best[:found] < beat]
        known = columns[scores < beat]
        if over and len(np.unique(np.concatenate([met, known]), axis=0)) > len(met):
            return None
        columns = np.concatenate([state.best_columns[:found], columns])
        scores = np.concatenate([state.best[:found], scores])
        columns, first = np.unique(columns, axis=0, return_index=True)
        order = np.argsort(scores[first], kind="stable")[:count]
        columns, scores = columns[order], scores[first][order]
        if over:
            return Found(columns, scores, float(scores[-1])) if len(scores) == count else None
        lows = [float(state.heap_low[0])] if state.counts[HEAP] else []
        lows += [float(state.numbers[ROOT])] if state.counts[LEVEL] >= 0 else []
        return Found(columns, scores, min(problem.on_grid(min(lows, default=math.inf)), float(scores[-1])))

    def _scores(self, supports: Supports, watch: Watch) -> Floats:
        """Return scores of the first rows: of all, unless the time is over."""
        from confide.selection.search_state import scores_of

        out, own = np.empty(len(supports)), self.products
        ridge, radius, step = self.problem.ridge, self.problem.radius, self.problem.step
        for start in range(0, len(supports), _CHUNK):
            here = slice(start, start + _CHUNK)
            scores_of(own.rows, own.slot, own.diagonal, own.c, supports[here], ridge, radius, step, out[here])
            if watch.left <= 0:
                return out[: start + _CHUNK]
        return out

    def _guesses(
        self, count: int, group: np.ndarray, wanted: np.ndarray, watch: Watch
    ) -> tuple[Supports, Floats, float]:
        """Return good supports with their scores, `count` of them at least without a quota; and nu."""
        from confide.selection.climb import climb, greedy

        problem, own = self.problem, self.products
        p = problem.p
        nu, beta = 0.0, np.empty(problem.size)
        S = greedy(own.near, own.diagonal, own.c, max(problem.ridge, self.tiny), group, wanted)
        values = np.empty(0)
        for _ in range(4):
            L = max(problem.ridge + nu, self.tiny)
            S, values = climb(own.near, own.diagonal, own.c, L, group, S)
            before = nu
            block = np.ascontiguousarray(own.near(S)[:, S])
            nu = ball_quadratic(block, own.c[S], problem.ridge, problem.radius, beta)
            if abs(nu - before) <= 0.01 * L:
                break
        supports = [np.sort(S)[None]]
        if count > 1:
            near = np.flatnonzero(np.isfinite(values.reshape(-1)))
            near = near[np.argsort(values.reshape(-1)[near], kind="stable")[: count + 8]]
            swapped = np.repeat(S[None], near.size, axis=0)
            swapped[np.arange(near.size), near // p] = near % p
            supports += [np.sort(swapped, axis=1), self._pool(S, values, count)]
        own.ensure(S)
        columns = np.unique(np.concatenate(supports), axis=0)
        scores = self._scores(columns, watch)
        order = np.argsort(scores, kind="stable")
        return columns[order], scores[order], nu

    def _pool(self, S: np.ndarray, values: Floats, count: int) -> Supports:
        """Return all supports of the few best columns, so that there are `count` of them with the swaps."""
        p, s = self.problem.p, self.problem.size
        rank = values.min(axis=0)
        rank[S] = -math.inf
        m = s
        while m < p and math.comb(m, s) - s * (m - s) + s * (p - s) < count + 8:
            m += 1
        chosen = np.argsort(rank, kind="stable")[: min(p, max(m, s + 2))]
        self.products.ensure(chosen)
        total = math.comb(chosen.size, s)
        flat = (j for T in combinations(chosen.tolist(), s) for j in T)
        return np.sort(np.fromiter(flat, dtype=np.int64, count=total * s).reshape(total, s), axis=1)

    def _state(
        self, count: int, group: np.ndarray, wanted: np.ndarray, nu: float, threshold: float, lowest: float,
        slack: float, watch: Watch,
    ) -> State | None:  # fmt: skip
        """Return the arrays of a search that starts at the root; None where there is no time."""
        from confide.selection.search_state import State, push

        problem, own = self.problem, self.products
        p, s, ridge = problem.p, problem.size, problem.ridge
        least = max(ridge, self.tiny)
        nu = max(nu, least - ridge)
        sums = self._row_sums(least, watch)
        if sums is None:
            return None
        words = (p + 63) // 64
        room = min(_MOST_NODES, _BYTES // (8 * (s + words + 5)))
        numbers = np.array(
            [
                problem.limit(threshold),
                ridge,
                problem.radius,
                least,
                self.length,
                float(own.diagonal.max()),
                -math.inf,
                float(own.diagonal.mean()) / 4,
                threshold,
                problem.step,
                slack,
                self.small,
            ]
        )
        counts = np.array([0, room - 1, -1, 0, 0, 0, 0, int(nu > least - ridge), 0], dtype=np.int64)

        def ints(*shape: int) -> np.ndarray:
            return np.empty(shape, dtype=np.int64)

        state = State(
            own.rows, own.slot, own.diagonal, own.c, ints(p), group, sums,
            self._spread(sums, watch), numbers, counts,
            wanted[::-1].astype(np.int64).copy(), np.empty(room), ints(room), np.arange(room)[::-1].copy(),
            ints(room, s), ints(room), np.empty((room, words), dtype=np.uint64), np.empty(room), ints(s),
            ints(s + 1, p), np.empty((s + 1, p)), np.empty((s + 1, p)), np.empty((s + 1, p)),
            np.empty((s + 1, s, p)), ints(s + 1), ints(s + 1), ints(s + 1), ints(s + 1, 2), np.empty(s + 1),
            np.empty(s + 1), np.empty((4, p)), ints(p), np.empty(count), ints(count, s),
        )  # fmt: skip
        state.node_count[0] = 0
        state.node_nu[0] = nu
        state.node_list[0] = ~np.uint64(0)
        push(state, lowest, 0)
        return state

    def _row_sums(self, least: float, watch: Watch) -> Floats | None:
        """Return sums [p, s] of the k = 0, 1, ... largest scaled entries of K's rows, at the least L."""
        if self._sums is None:
            p, s = self.problem.p, self.problem.size
            sums = np.full((p, s), math.inf)
            sums[:, 0] = 0.0
            if s > 1 and p * p * self.problem.n <= _MOST_WORK:
                top = self.products.largest_entries(least, min(s, p) - 1, lambda: watch.left > 0)
                if top is None:
                    return None
                sums[:, 1:] = np.cumsum(top, axis=1)
            self._sums = sums
        return self._sums

    def _spread(self, sums: Floats, watch: Watch) -> Floats:
        """Return h >= 0 with G above diag(h)."""
        p, s = self.problem.p, self.problem.size
        if self._h is not None:
            return self._h
        crowded = s > 2 and sums[:, -1].max(initial=0.0) >= _CROWDED
        # An eigenvalue takes about a second at p = 1,000.
        if not crowded or p > _MOST_SPREAD or watch.left < (p / 1000) ** 3:
            return np.zeros(p)
        self._h = self.products.spread(s)
        return self._h
