"""Poisoning: tables within the certified distance of a model are searched for one that turns its answer.

A stability distance k claims that no table within k changes has another class for the query, and that k moves
by at most one with one change (`confide.prediction.certificate`). Both are attacked by retraining:

- *heap*: the rows that speak for the class most, nearest first, become copies of one row of the rival class,
  for several rows (the query, corners, rows far outside). One change first, then as many as are certified and
  one more, then doubled and halved until c changes turn the answer and c - 1 do not: whatever a certificate
  leaves unused, both of these tables have k = 0. All tables of a path are held against each other;
- *descent*: of all single changes tried, the one that lowers k most, or that keeps it and comes first, until
  the answer turns;
- *random*: k changes at once, a third of the cells extreme.

Queries that are certified for least come first, and those for most beside them: too much in a sum shows in
the ones, in a product in the others.

Three ways to the same model are attacked at once: its `stability`, which the estimator shows; the `steady`
path, by which the service answers and which must tell the same; and `StableAnswers` on what it tells, so free
of noise that a query is answered exactly where it is certified for at least one change.

A changed table counts as many changes as the relation of the claim says: labels, replaced rows, or rows that
come or go. One counter-example breaks the claim. The closest call is the least number of changes that turned
an answer beside the k that was certified: k + 1 is the best an attack may do.

========================================  ==============================================================
edge case                                 what happens
========================================  ==============================================================
k = 0                                     nothing is certified, so any change may turn the answer
a path that never turns                   ends after all rows; no call
classes differ at k > 0 of either table   broken: neighbours whose classes differ have k = 0
`steady` is one off, once in a search     rounding, within what both distances allow for; twice is broken
a model without `steady`                  its `stability` is both
========================================  ==============================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np

from confide.audit.family.prediction import targets
from confide.audit.finding import Finding, Verdict
from confide.audit.fuzz import EXTREMES
from confide.audit.neighbours import Rows
from confide.audit.registry import Claim, Floats, Target
from confide.mechanisms import seeded_stream
from confide.prediction import StableAnswers
from confide.prediction.certificate import steady
from confide.prediction.vector import UNSTABLE
from confide.privacy import Adjacency

#: Of the epoch of `StableAnswers`: its noise is 0 but for one draw in e^100, its threshold too.
_EPSILON, _DELTA = 300, Fraction(1, 10**12)
#: Of the tables for a claim's own model, what each other one of its family gets, and at least how many.
_SHARE, _FEWEST = 3, 16
#: Longest path of `descent`, and rows that each of its steps tries to change.
_STEPS, _TRIED = 12, 3


class Told(NamedTuple):
    """Classes and distances [q] of all queries: by `stability`, and by the path of the service."""

    labels: Any
    k: Any
    served: Any
    steady: Any


@dataclass
class Search:
    """What has been tried against one model, and what was found.

    Parameters
    ----------
    target : Target
    relation : Adjacency
    budget : int
        Tables to train on.
    """

    target: Target
    relation: Adjacency
    budget: int
    tried: int = 0
    faults: list[str] = field(default_factory=list)
    #: Answers of which `steady` and `stability` tell distances one apart.
    apart: int = 0
    #: (k certified, changes that turned the answer), the closest so far where k is positive.
    closest: tuple[int, int] | None = None

    def told(self, rows: Rows) -> Told:
        """Return classes and distances of all queries after training on a table."""
        self.tried += 1
        model = self.target.fit(rows)
        labels, k = model.stability(self.target.queries)
        served, sure = served_by(model, self.target.queries)
        told = Told(np.asarray(labels), _whole(k), np.asarray(served), _whole(sure))
        self._agree(told)
        return told

    def _agree(self, told: Told) -> None:
        """Hold the paths to one model against each other."""
        apart = np.abs(told.k - told.steady)
        self.apart += int((apart == 1).sum())
        if (told.labels != told.served).any():
            self.faults.append("the class that 'steady' tells is not that of 'stability'")
        if apart.max(initial=0) > 1 or self.apart > 1:
            self.faults.append("the distance that 'steady' tells is not that of 'stability'")
        classes = np.array(self.target.labels)
        answers = stable_answers(np.searchsorted(classes, told.served), told.steady, classes.size)
        answered = answers != UNSTABLE
        if (classes[answers] != told.served)[answered].any():
            self.faults.append("'StableAnswers' answers a class that is not the model's")
        if (told.steady[answered] < 1).any():
            self.faults.append("'StableAnswers' answers what is certified for no change")

    @property
    def spent(self) -> bool:
        """Whether the budget is used up."""
        return self.tried >= self.budget

    def compare(self, start: Told, now: Told, changes: int, how: str) -> Any:
        """Hold all answers of two tables, so many changes apart, against each other.

        Where classes differ, a path of single changes between the tables has a step on which they do, and
        both distances are 0 there: k steps at least to get there, m from the other end, and that one.

        Returns
        -------
        bool array [q]
            Which answers turned.
        """
        self._hold(start.served, now.served, start.steady, now.steady, changes, f"{how}, by 'steady'")
        return self._hold(start.labels, now.labels, start.k, now.k, changes, how)

    def _hold(self, one: Any, other: Any, ks: Any, ms: Any, changes: int, how: str) -> Any:
        turned = one != other
        for j in np.flatnonzero(np.abs(ks - ms) > changes):
            self.faults.append(
                f"{how}: {changes} changes move the distance from {ks[j]} to {ms[j]}, query {j}"
            )
        for j in np.flatnonzero(turned & (ks + ms + 1 > changes)):
            self.faults.append(
                f"{how}: {changes} changes turn query {j}, certified for {ks[j]} and then {ms[j]}"
            )
        for k in ks[turned & (ks > 0)].tolist():
            if self.closest is None or _slack(k, changes) < _slack(*self.closest):
                self.closest = k, changes
        return turned


def served_by(model: Any, queries: Floats) -> tuple[Any, Any]:
    """Return classes and distances as the service asks for them (`confide.prediction.certificate.steady`)."""
    held = getattr(model, "model_", None)
    if held is None:
        return steady(model, queries)
    labels, k = steady(held.certified, held.queries(queries))
    return held.classes[labels], k


def stable_answers(labels: Any, k: Any, classes: int = 2) -> Any:
    """Return the answers of epochs without noise: the class (0, 1, ...), or `UNSTABLE`."""
    epochs = StableAnswers(_EPSILON, _DELTA, classes, charge=lambda event: None, stream=seeded_stream(0))
    return epochs.answer(labels.astype(np.int64), k)


def _whole(k: Any) -> Any:
    return np.asarray(k, dtype=np.int64)


def _slack(k: int, changes: int) -> float:
    return changes / (k + 1)


def attack(claim: Claim, *, budget: int, seed: int = 0) -> Finding | None:
    """Attack a claim's certified distances by training on about `budget` changed tables.

    The other models of its family (`confide.audit.family.prediction`) are attacked on fewer.

    Returns
    -------
    Finding or None
        None for a claim without a target. Broken by one counter-example; the note has the closest call.
    """
    if claim.target is None:
        return None
    found = _attacked(claim, claim.target, budget, seed)
    for name, target in targets(claim.name):
        told = _attacked(claim, target, max(_FEWEST, budget // _SHARE), seed)
        broken = told.verdict is Verdict.BROKEN and found.verdict is Verdict.HOLDS
        whole = replace(found, tried=found.tried + told.tried)
        found = replace(whole, verdict=told.verdict, note=f"{name}: {told.note}") if broken else whole
    return found


def _attacked(claim: Claim, target: Target, budget: int, seed: int) -> Finding:
    search, rng = Search(target, claim.adjacency, budget), np.random.default_rng(seed)
    start = search.told(target.table)
    order = _ends_first(np.argsort(start.k, kind="stable").tolist())
    heaps = [_heap(search, j, start) for j in order]
    others = [way(search, j, start, rng) for j in order for way in (_random, _descent)]
    ways = [*heaps, *heaps, *others]  # two tables of each heap to one of another way
    while ways and not search.spent:  # in turn, so that no way uses the budget up
        ways = [way for way in ways if not search.spent and next(way, None) is not None]
    note = f"{search.tried} tables; answers certified for {start.k.min()} to {start.k.max()} changes"
    if search.closest is not None:
        k, changes = search.closest
        note += f"; closest call: {changes} changes turned one certified for {k}"
    return Finding(
        claim.name, "poisoning", Verdict.BROKEN if search.faults else Verdict.HOLDS, tried=search.tried,
        note=search.faults[0] if search.faults else note,
    )  # fmt: skip


#: A way to attack one query: yields after each table, which is held against the first for all queries.
Way = Iterator[bool]


def _ends_first(ordered: list[int]) -> list[int]:
    """Return items in turn from both ends: the first, the last, the second, ..."""
    half = (len(ordered) + 1) // 2
    pairs = zip_longest(ordered[:half], ordered[: half - 1 : -1])
    return [item for pair in pairs for item in pair if item is not None]


def _rival(search: Search, label: float) -> float:
    return next(other for other in reversed(search.target.labels) if other != label)


def _supporters(table: Rows, query: Floats, label: float) -> list[int]:
    """Return rows of the class, nearest first, then the others."""
    far = np.linalg.norm(table.X - query, axis=1) + 1e3 * (table.y != label)
    return np.argsort(far, kind="stable").tolist()


def _rows(query: Floats) -> list[Floats]:
    """Return rows worth planting: the query, away from the middle, corners, its opposite, far outside."""
    away = query / max(1e-12, float(np.abs(query).max()))
    corner = np.where(query < 0, -1.0, 1.0)
    return [query, away, corner, -corner, 0 * query, 1e6 * away]


def changed(table: Rows, relation: Adjacency, place: int, row: Floats, label: float) -> Rows:
    """Return the table after one change: a label, a row, or a row that comes (place -1) or goes (row NaN)."""
    if relation is Adjacency.ADD_REMOVE_ONE:
        if place < 0:
            return table.added(row, label)
        return Rows(np.delete(table.X, place, 0), np.delete(table.y, place))
    X, y = table.X.copy(), table.y.copy()
    y[place] = label
    if relation is not Adjacency.REPLACE_LABEL:
        X[place] = row
    return Rows(X, y)


def _planted(search: Search, table: Rows, order: list[int], row: Floats, rival: float, count: int) -> Rows:
    """Return the table after `count` changes of `_heap`; rows come and go in turn where that is a change."""
    added = search.relation is Adjacency.ADD_REMOVE_ONE
    gone = order[: count // 2] if added else order[:count]
    if added:
        table = Rows(np.delete(table.X, gone, 0), np.delete(table.y, gone))
        for _ in range(count - len(gone)):
            table = table.added(row, rival)
        return table
    for place in gone:
        table = changed(table, search.relation, place, row, rival)
    return table


def _heap(search: Search, query: int, start: Told) -> Way:
    table, asked, label = search.target.table, search.target.queries[query], float(start.labels[query])
    order, rival = _supporters(table, asked, label), _rival(search, label)
    moves = search.relation is not Adjacency.REPLACE_LABEL
    paths = [
        Path(search, query, {0: start}, partial(_planted, search, table, order, row, rival))
        for row in (_rows(asked) if moves else [asked])
    ]
    for path in paths:
        yield from path.turned(table.y.size)
    for path in paths:
        yield from path.filled()


@dataclass
class Path:
    """Tables of ever more changes, of which any two are as many changes apart as their numbers are.

    Parameters
    ----------
    search : Search
    query : int
    told : dict
        By the number of changes; that of the first table, 0, is there.
    make : function (changes) -> Rows
    """

    search: Search
    query: int
    told: dict[int, Told]
    make: Callable[[int], Rows]

    def _turns(self, count: int) -> bool:
        """Train on the table of so many changes, and return whether it turns the query."""
        now, turned = self.search.told(self.make(count)), False
        for other, then in self.told.items():
            apart = self.search.compare(then, now, abs(count - other), "a heap of one row")
            turned |= other == 0 and bool(apart[self.query])
        self.told[count] = now
        return turned

    def turned(self, most: int) -> Way:
        """Yield after each table, up to the first one that turns the query."""
        k = int(self.told[0].k[self.query])
        low, high, tried = 0, most + 1, iter(sorted({1, max(1, k), k + 1}))
        while high - low > 1:
            count = (low + high) // 2 if high <= most else min(max(next(tried, 2 * low), low + 1), most)
            low, high = (low, count) if self._turns(count) else (count, high)
            yield True
            if low == most:
                return

    def filled(self) -> Way:
        """Yield after each table below these that was left out."""
        for count in range(2, max(self.told)):
            if count not in self.told:
                self._turns(count)
                yield True


def _descent(search: Search, query: int, start: Told, rng: np.random.Generator) -> Way:
    table, asked, now, label = (
        search.target.table,
        search.target.queries[query],
        start,
        float(start.labels[query]),
    )
    rival = _rival(search, label)
    for step in range(1, _STEPS + 1):
        best = None
        for made in _single(search.relation, table, _supporters(table, asked, label)[:_TRIED], asked, rival):
            told = search.told(made)
            yield True
            search.compare(now, told, 1, "one change of a descent")
            turned = search.compare(start, told, step, "a descent")[query]
            height = -1 if turned else int(told.k[query])
            if best is None or height < best[0]:
                best = height, made, told
        if best is None or best[0] < 0:
            return
        table, now = best[1], best[2]


def _single(
    relation: Adjacency, table: Rows, places: list[int], query: Floats, rival: float
) -> Iterator[Rows]:
    rows = _rows(query)[:4]
    if relation is Adjacency.ADD_REMOVE_ONE:
        yield from (table.added(row, rival) for row in rows)
        yield from (changed(table, relation, place, query, rival) for place in places)
    elif relation is Adjacency.REPLACE_LABEL:
        yield from (
            changed(table, relation, place, query, rival) for place in places if table.y[place] != rival
        )
    else:
        yield from (changed(table, relation, place, row, rival) for place in places for row in rows)


def _random(search: Search, query: int, start: Told, rng: np.random.Generator) -> Way:
    """Change up to k + 1 rows at once, for as long as the budget lasts."""
    base, k = search.target.table, int(start.k[query])
    while True:
        count = int(rng.integers(1, min(k + 1, base.y.size - 1) + 1))
        table, places = base, rng.choice(base.y.size, count, replace=False)
        for place in sorted(places.tolist(), reverse=True):
            row = rng.uniform(-1, 1, base.X.shape[1])
            row = np.where(rng.random(row.size) < 1 / 3, rng.choice(EXTREMES, row.size), row)
            comes = search.relation is Adjacency.ADD_REMOVE_ONE and rng.random() < 0.5
            table = changed(
                table, search.relation, -1 if comes else place, row, float(rng.choice(search.target.labels))
            )
        told = search.told(table)
        yield True
        search.compare(start, told, count, "random changes")
