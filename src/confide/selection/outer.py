"""Outer approximation: a master problem of cuts, solved as a MILP, proposes supports until none is better.

A round asks the master for supports outside those already scored whose cuts lie below the score to beat (the
count-th best so far), scores them, adds the cuts that touch there, and excludes them (no-good rows). It ends
when the solver finds none. The level of t mistakes is the same master with one more row: the sum over the
best support is size - t. Cuts serve all levels.

What `certified` means. A MILP solver's optimum holds up to its tolerances: a row may be violated by 1e-9, an
integer be off by as much, so a support may lie below the cutoff by `_allowance` times the unit of the master,
whatever its status says; and it works in doubles without directed rounding. So neither its status nor its
dual bound enters a proof. Both decide when the rounds stop; then our own walk (`cutproof`) goes through all
supports with the same cuts and sums that rounding is paid for, and scores what the cuts leave a step of the
grid or more below the score to beat: others tie with it or are worse (`SubsetProblem.limit`). `certified` is
that this walk has ended; a support that the solver overlooked is found there.
A walk cut short by the time limit leaves the least of the cuts over all supports as the bound.

Coefficients. Where ridge + nu is small and the loss has no curvature, weights v^2 / (2 (ridge + nu)) of
columns outside the support are huge and plain cuts diverge. With a proven lower bound B of all scores, a
weight may be lowered to max(C - B, 0): where a column's z is 1, the lowered cut then says B or less, which
holds; elsewhere nothing changed. So a master's numbers are of the order of its gap, and as every support that
was proposed is scored and excluded, rounds are finitely many whatever the cuts are.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from confide.selection.cutproof import Walk
from confide.selection.cuts import Cutter, Pool
from confide.selection.masters import TOLERANCE, Maker, Master, maker_of
from confide.selection.problem import SubsetProblem
from confide.selection.ranking import Ranking
from confide.selection.search import Watch

Floats = npt.NDArray[np.float64]
Supports = npt.NDArray[np.int64]
Support = tuple[int, ...]
#: Columns and how many of them a support takes.
Groups = list[tuple[Supports, int]]

#: Rounds on the continuous relaxation, before integers.
_RELAXED = 80
#: They end when the relaxation is within this share of its value at the last point.
_CLOSE = 1e-3
#: Share of a limited time that is kept for the proof.
_PROOF = 0.25
#: Cuts that a master starts with, and new ones of a round.
_START = 150
_NEW = 8
#: Nodes of the walk between looks at the clock.
_NODES = 1 << 20
#: Longest run of a solver, in seconds: a larger limit is the same.
_LONG = 1e6


def best_supports_mip(
    problem: SubsetProblem, count: int, time_limit: float | None, progress: bool, *, solver: str = "mip"
) -> Ranking:
    """See `confide.selection.best_supports`."""
    maker = maker_of(solver)
    watch = Watch(time_limit, progress)
    try:
        search = _Search(problem, maker, watch)
        proven, bound = search.run(count, _everything(problem), None, "best supports")
        columns, scores = search.best(count, None)
    finally:
        watch.close()
    bound = float(scores[-1]) if proven and scores.size else float(problem.on_grid(bound))
    bounds = np.full(scores.size, bound + problem.origin)
    return Ranking(columns, scores + problem.origin, bounds, proven, watch.seconds)


def best_by_mistakes_mip(
    problem: SubsetProblem,
    optimum: Support | None,
    time_limit: float | None,
    progress: bool,
    *,
    solver: str = "mip",
) -> Ranking:
    """See `confide.selection.best_by_mistakes`."""
    maker = maker_of(solver)
    watch = Watch(time_limit, progress)
    levels = min(problem.size, problem.p - problem.size)
    certified = True
    try:
        search = _Search(problem, maker, watch)
        if optimum is None:
            watch.divide(levels + 1)
            certified, _ = search.run(1, _everything(problem), None, "best support")
            optimum = tuple(search.best(1, None)[0][0].tolist())
        own = problem.centred_score(optimum)
        rows, scores, bounds = [optimum], [own], [own]
        inside = np.array(optimum)
        outside = np.setdiff1d(np.arange(problem.p), inside)
        for t in range(1, levels + 1):
            watch.divide(levels + 1 - t)
            level = (inside, problem.size - t)
            proven, bound = search.run(1, [level, (outside, t)], level, f"{t} mistakes")
            columns, found = search.best(1, level)
            rows.append(tuple(columns[0].tolist()))
            scores.append(float(found[0]))
            bounds.append(scores[-1] if proven else min(float(problem.on_grid(bound)), scores[-1]))
            certified = certified and proven
    finally:
        watch.close()
    origin = problem.origin
    return Ranking(
        np.array(rows, dtype=np.int64), np.array(scores) + origin, np.array(bounds) + origin, certified,
        watch.seconds,
    )  # fmt: skip


def _everything(problem: SubsetProblem) -> Groups:
    return [(np.zeros(0, dtype=np.int64), 0), (np.arange(problem.p), problem.size)]


class _Search:
    """Cuts and scores of one problem; `run` answers one question with them.

    Parameters
    ----------
    problem : SubsetProblem
    maker : callable
        Makes masters.
    watch : Watch
    """

    def __init__(self, problem: SubsetProblem, maker: Maker, watch: Watch) -> None:
        self.problem, self.maker, self.watch = problem, maker, watch
        self.cutter = Cutter(problem)
        self.pool = Pool(problem.p, problem.size)
        self.pool.add(self.cutter.trivial())
        self.scores: dict[Support, float] = {}
        #: The solver's own dual bound of the last round: shown, and no part of a proof.
        self.claimed = -math.inf

    def best(self, count: int, level: tuple[Supports, int] | None) -> tuple[Supports, Floats]:
        """Return the `count` best supports that were scored, by score and columns."""
        rows = np.array(list(self.scores), dtype=np.int64).reshape(-1, self.problem.size)
        values = np.array(list(self.scores.values()))
        if level is not None:
            keep = np.isin(rows, level[0]).sum(axis=1) == level[1]
            rows, values = rows[keep], values[keep]
        order = np.lexsort((*rows.T[::-1], values))[:count]
        return rows[order], values[order]

    def run(
        self, count: int, groups: Groups, level: tuple[Supports, int] | None, what: str
    ) -> tuple[bool, float]:
        """Find the `count` best of the supports in `groups`; return whether that is proven, and the bound."""
        shares, order = self._relax(groups, level)
        self._start(count, groups, level, shares)
        total = math.prod(math.comb(columns.size, number) for columns, number in groups)
        scored = self.best(count, level)[1].size
        if scored == total:
            return True, math.inf
        if scored == count:
            self._rounds(count, groups, level, what)
        return self._prove(count, groups, level, order, what)

    def _relax(self, groups: Groups, level: tuple[Supports, int] | None) -> tuple[Floats, Floats]:
        """Add the cuts of the continuous relaxation; return its last point and the weights there, [p]."""
        problem = self.problem
        core = np.zeros(problem.p)
        for columns, number in groups:
            if columns.size:
                core[columns] = number / columns.size
        self.pool.add(self.cutter.cut(core))
        first = float(self.pool.values_at(core)[-1])
        unit = max(abs(first), problem.tau)
        master = self.maker(problem.p, problem.size, level)
        C, W = self.pool.arrays
        master.add(C / unit, W / unit)
        known, z, best = len(self.pool), core, math.inf
        relaxed = None
        for _ in range(_RELAXED):
            if relaxed is not None and self.watch.left <= 0:
                break
            relaxed = master.relax()
            z = relaxed.z
            # Halfway between the relaxation's point and a centre: cuts at the corner itself swing.
            core = (core + z) / 2
            self.pool.add(self.cutter.cut(core))
            best = min(best, float(self.pool.values_at(core)[-1]))
            if best - relaxed.value * unit <= _CLOSE * abs(best):
                break
            C, W = self.pool.arrays
            master.add(C[known:] / unit, W[known:] / unit)
            known = len(self.pool)
        assert relaxed is not None
        combined = self.pool.combine(relaxed.shares)
        self.pool.add(combined)
        return core, combined.weights

    def _start(self, count: int, groups: Groups, level: tuple[Supports, int] | None, shares: Floats) -> None:
        """Score supports around the relaxation: descent by swaps, then neighbours of the best."""
        picked = [columns[np.argsort(-shares[columns], kind="stable")[:number]] for columns, number in groups]
        self._add(np.sort(np.concatenate(picked))[None, :])
        expanded: set[Support] = set()
        while self.watch.left > 0:
            rows = self.best(count, level)[0].tolist()
            fresh = [row for row in map(tuple, rows) if row not in expanded]
            if not fresh:
                break
            expanded.add(fresh[0])
            self._neighbours(fresh[0], count, groups, level, None)

    def _neighbours(
        self,
        support: Support,
        count: int,
        groups: Groups,
        level: tuple[Supports, int] | None,
        most: int | None,
    ) -> None:
        """Score those swaps of a support that the cuts leave below the score to beat, `most` at most."""
        near = self._swaps(support, groups)
        near = near[[tuple(row) not in self.scores for row in near.tolist()]]
        if not len(near):
            return
        values = self.pool.values(near)
        order = np.argsort(values, kind="stable")[:most]
        for i in range(0, order.size, 64):
            scores = self.best(count, level)[1]
            threshold = float(scores[-1]) if scores.size == count else math.inf
            part = order[i : i + 64]
            part = part[values[part] < self.problem.limit(threshold)]
            if not part.size or self.watch.left <= 0:
                break
            self._add(near[part])

    def _swaps(self, support: Support, groups: Groups) -> Supports:
        """Return the supports that differ in one column, within the groups; sorted rows."""
        rows = []
        for columns, _ in groups:
            inside = [j for j in support if j in set(columns.tolist())]
            others = np.setdiff1d(columns, support)
            for j in inside:
                block = np.empty((others.size, len(support)), dtype=np.int64)
                block[:, :-1] = [k for k in support if k != j]
                block[:, -1] = others
                rows.append(block)
        if not rows:
            return np.zeros((0, len(support)), dtype=np.int64)
        return np.sort(np.concatenate(rows), axis=1)

    def _add(self, supports: Supports) -> None:
        """Score supports, and add cuts that touch at the best of those that no cut reaches."""
        scores = self.problem.known_scores(supports)
        self.scores.update(zip(map(tuple, supports.tolist()), scores.tolist(), strict=True))
        missed = scores - self.pool.values(supports)
        order = np.argsort(scores, kind="stable")
        order = order[missed[order] > 2 * self.problem.tau][:_NEW]
        for support in supports[order]:
            z = np.zeros(self.problem.p)
            z[support] = 1.0
            self.pool.add(self.cutter.cut(z))

    def _rounds(self, count: int, groups: Groups, level: tuple[Supports, int] | None, what: str) -> None:
        """Ask the master until it finds no support a step of the grid below the score to beat."""
        best, threshold, floor = self._state(count, groups, level)
        unit = max(threshold - floor, self.problem.tau)
        master = self.maker(self.problem.p, self.problem.size, level)
        rows = self.best(len(self.scores), level)[0]
        chosen = self._useful(self.pool.tight(rows)[1])
        self._feed(master, chosen, best, unit, floor)
        # Of the supports that were scored, those that the cuts leave below the score to beat.
        values = self.pool.tight(rows, chosen)[0]
        threshold = self.problem.limit(threshold)
        master.exclude(map(tuple, rows[values < threshold + 1e-6 * unit].tolist()))
        # The walk that proves what the rounds found needs time of its own.
        kept = _PROOF * self.watch.left if math.isfinite(self.watch.left) else 0.0
        while self.watch.left > kept:
            cutoff = (threshold - best) / unit - _allowance(self.problem)
            found = master.solve(cutoff, min(self.watch.left - kept, _LONG))
            self.claimed = best + found.bound * unit
            self.watch.show(what, max(threshold - self.claimed, 0.0), len(self.scores))
            fresh = [support for support in found.supports if support not in self.scores]
            if not fresh:
                break
            known = len(self.pool)
            before = len(self.scores)
            self._add(np.array(fresh, dtype=np.int64))
            for support in fresh:
                self._neighbours(support, count, groups, level, 64)
            self._feed(master, np.arange(known, len(self.pool)), best, unit, floor)
            master.exclude(list(self.scores)[before:])
            threshold = self.problem.limit(float(self.best(count, level)[1][-1]))

    def _state(
        self, count: int, groups: Groups, level: tuple[Supports, int] | None
    ) -> tuple[float, float, float]:
        """Return the best score, the one to beat, and what all scores are proven to be above."""
        scores = self.best(count, level)[1]
        threshold = float(scores[-1]) if scores.size == count else math.inf
        return float(scores[0]), threshold, self.pool.floor(groups)

    def _useful(self, tight: Supports) -> Supports:
        """Return the cuts to start a master with: those that are largest at some support, and the last."""
        often = np.bincount(tight, minlength=len(self.pool))
        often[-_NEW:] += tight.size
        chosen = np.argsort(-often, kind="stable")[:_START]
        return np.sort(chosen[often[chosen] > 0])

    def _feed(
        self, master: Master, chosen: npt.NDArray[np.int64], best: float, unit: float, floor: float
    ) -> None:
        """Add cuts in the master's units, weights lowered to what matters above `floor`."""
        C, W = self.pool.arrays
        C, W = C[chosen], W[chosen]
        W = np.minimum(W, np.maximum(C - floor, 0.0)[:, None])
        W = W / unit
        W[W < TOLERANCE] = 0.0
        master.add((C - best) / unit, W)

    def _prove(
        self, count: int, groups: Groups, level: tuple[Supports, int] | None, order: Floats, what: str
    ) -> tuple[bool, float]:
        """Walk through all supports; return whether the walk ended, and the bound."""
        walk = Walk(groups, order)
        walk.load(*self.pool.arrays)
        loaded = len(self.pool)
        while not walk.ended and self.watch.left > 0:
            _, threshold, floor = self._state(count, groups, level)
            left = walk.go(self.problem.limit(threshold), _NODES)
            left = left[[tuple(row) not in self.scores for row in left.tolist()]]
            if len(left):
                self._add(left)
                if len(self.pool) > loaded + 4 * _NEW:
                    walk.load(*self.pool.arrays)
                    loaded = len(self.pool)
            self.watch.show(f"{what}, proof", max(threshold - floor, 0.0), len(self.scores))
        return walk.ended, self.pool.floor(groups)


def _allowance(problem: SubsetProblem) -> float:
    """Return what a solver's tolerances can move theta by, in units of the master.

    A row may be off by TOLERANCE, each of p integers by as much times a weight of about 1, and weights below
    TOLERANCE were left out.
    """
    return (2 + 2 * problem.p) * TOLERANCE
