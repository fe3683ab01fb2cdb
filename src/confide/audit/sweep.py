"""A secret cell through all its values: what a run shows beside its result may change at none of them.

A message that is for labels near 0.73 alone is met by no pair of extreme rows. So the label of a row, and a
cell of a secret column, take values all over their bounds, and some outside. Trying each in a run of its own
is slow, so that rows are changed one after the other, each to a value of its own, and runs compare the first
table with the last of such a ladder:

*Lemma.* Let what a run shows, with the mechanisms' answers frozen, be equal on all neighbours. Then it is
equal on both ends of a ladder, whose tables are neighbours one after the other. So where the ends differ, two
neighbours on the ladder do.

They are found by bisection. That alone would convict on answers recorded on a third table, so these two are
tried anew, as a pair of `sides` is, and only what differs there is a fault: no other false alarm is added.

A table is read once: what a claim remembers of it (a fitted model) would keep a warning to the first run. So
the answers are those of a table next to the ladder, and each ladder has a cell that is a little other than
those of all ladders before.

=======================================  =============================================================
edge case                                what happens
=======================================  =============================================================
replaced rows, labels, private parts     a rung changes one row of the table; the rest have the least value
rows that come or go                     a rung adds one
a single label as a table                each value is a ladder of one rung
classes                                  values between them are labels of no class: no run may tell
tables of other things, `fuzzed` False   not swept (None)
a slow run                               as many values as there is time for, above a floor
=======================================  =============================================================
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import count as counting
from typing import Any, Protocol

import numpy as np

from confide.audit.finding import Finding, Verdict
from confide.audit.neighbours import Rows
from confide.audit.registry import Claim, Pair
from confide.audit.replay import Call, Outcome, Recorder, observe, replay
from confide.audit.sides import differences
from confide.mechanisms import seeded_stream
from confide.privacy import Adjacency

Values = tuple[float, ...]
#: Of what this is a part.
LAYER = "side channels"
#: Values outside of all bounds, or no numbers.
_OUTSIDE = (1e6, -1e308, np.nan, np.inf)
#: Labels beyond are no ends of bounds.
_FAR = 1e3
#: Ladders so far, of this process.
_made = counting(1)


class Cell(Protocol):
    """A secret cell, and the tables in which it takes values."""

    @property
    def what(self) -> str:
        """``"label"``, ``"column 1"``."""
        ...

    @property
    def ends(self) -> tuple[float, float]:
        """Its bounds."""
        ...

    @property
    def rungs(self) -> int:
        """Steps of the longest ladder."""
        ...

    def fresh(self) -> Any:
        """Return the first table of ladders, never built before: its cells have the least value."""
        ...

    def beside(self, first: Any) -> Any:
        """Return a table near it that is on no ladder."""
        ...

    def ladder(self, first: Any, values: Values) -> list[Any]:
        """Return it and a table more for each value, each a neighbour of the one before."""
        ...


@dataclass(frozen=True)
class _Label:
    """A label that is a table."""

    ends: tuple[float, float]
    what: str = "label"
    rungs: int = 1

    def fresh(self) -> float:
        return self.ends[0]

    def beside(self, first: float) -> float:
        return self.ends[1]

    def ladder(self, first: float, values: Values) -> list[float]:
        return [first, *values]


@dataclass(frozen=True)
class _Rows:
    """A column of `Rows`, or their label (None)."""

    rows: Rows
    rest: tuple[Any, ...] | None
    relation: Adjacency
    column: int | None
    ends: tuple[float, float]

    @property
    def what(self) -> str:
        return "label" if self.column is None else f"column {self.column}"

    @property
    def rungs(self) -> int:
        return len(self.rows.y)

    def fresh(self) -> Any:
        X, y = self.rows.X.astype(np.float64), self.rows.y.astype(np.float64)  # copies
        (y if self.column is None else X[:, self.column])[:] = self.ends[0]
        other = -1 if self.column is None else (self.column + 1) % X.shape[1]
        cell = X[-1, other] if np.isfinite(X[-1, other]) else 0.0
        X[-1, other] = (cell or 0.5) * (1 - next(_made) * 2.0**-40)
        return self._told(Rows(X, y))

    def beside(self, first: Any) -> Any:
        return self._told(self._changed(self._read(first), -1, self.ends[1]))

    def ladder(self, first: Any, values: Values) -> list[Any]:
        found = [self._read(first)]
        for place, value in enumerate(values):
            table = found[-1]
            if self.relation is Adjacency.ADD_REMOVE_ONE:
                table, place = table.added(table.X[place], self.rows.y[0]), -1
            found.append(self._changed(table, place, value))
        return [self._told(rows) for rows in found]

    def _changed(self, rows: Rows, place: int, value: float) -> Rows:
        X, y = rows.X.copy(), rows.y.copy()
        (y if self.column is None else X[:, self.column])[place] = value
        return Rows(X, y)

    def _told(self, rows: Rows) -> Any:
        return rows if self.rest is None else (rows, *self.rest)

    def _read(self, table: Any) -> Rows:
        return table if self.rest is None else table[0]


def cells(claim: Claim) -> list[Cell]:
    """Return what can be swept of a claim: the label first; nothing of tables that are other things."""
    own = [side for pair in claim.pairs() for side in (pair.here, pair.there)] if claim.fuzzed else []
    if not own:
        return []
    first = own[0]
    if isinstance(first, float) and claim.adjacency is Adjacency.REPLACE_LABEL:
        return [_Label(_ends(own))]
    rows, rest = (first[0], first[1:]) if isinstance(first, tuple) else (first, None)
    if not isinstance(rows, Rows):
        return []
    labels = _ends([label for side in own for label in (side if rest is None else side[0]).y.tolist()])
    columns = () if claim.adjacency is Adjacency.REPLACE_LABEL else range(rows.X.shape[1])
    # Rows that come leave the others as they are: with the far label on these, near ones are new.
    turned = [(labels[1], labels[0])] if claim.adjacency is Adjacency.ADD_REMOVE_ONE else []
    return [
        *(_Rows(rows, rest, claim.adjacency, None, ends) for ends in (labels, *turned)),
        *(_Rows(rows, rest, claim.adjacency, column, (-1.0, 1.0)) for column in columns),
    ]


def _ends(labels: Iterable[float]) -> tuple[float, float]:
    known = [label for label in labels if abs(label) <= _FAR]
    return min(known), max(known)


def values(cell: Cell, count: int, rng: np.random.Generator) -> Iterator[Values]:
    """Yield the values of one ladder after the other.

    First a grid, both ends and a value within each of `count` equal parts, then the far end on all rows, then
    what is outside, then each value of the grid alone.
    """
    (low, high), n = cell.ends, cell.rungs
    inner = low + (high - low) * (np.arange(count) + rng.random(count)) / count
    grid = rng.permutation(np.concatenate([[low, high], inner])).tolist()
    yield from (tuple(grid[start : start + n]) for start in range(0, len(grid), n))
    yield (high,) * n
    yield from (tuple(_OUTSIDE[start : start + n]) for start in range(0, len(_OUTSIDE), n))
    if n > 1:
        yield from ((value,) for value in grid)


class _Frozen:
    """The first table of ladders, and what its run shows on the answers of its neighbour."""

    def __init__(self, claim: Claim, cell: Cell, seed: int) -> None:
        self.claim, self.cell, self.seed = claim, cell, seed
        self.first = cell.fresh()
        self.answers: tuple[Call, ...] | None = None
        self.answers = self._run(cell.beside(self.first)).calls
        self.shown = self._run(self.first)

    def _run(self, table: Any) -> Outcome:
        return observe(lambda: self.claim.run(table, seeded_stream(self.seed)), Recorder(self.answers))

    def tells(self, told: Values) -> bool:
        """Return whether the last table of a ladder is told from the first."""
        other = self._run(self.cell.ladder(self.first, told)[-1])
        return any(differences(self.shown, other, frozen=True))

    def climb(self, told: Values) -> tuple[str, Pair] | None:
        """Return what tells two neighbours on a ladder apart whose ends are told apart."""
        low, high = 0, len(told)
        while high - low > 1:
            middle = (low + high) // 2
            tells = _Frozen(self.claim, self.cell, self.seed).tells(told[:middle])
            low, high = (low, middle) if tells else (middle, high)
        name = f"{self.cell.what} {told[low]:.6g}, after {low} others"
        for turn in (1, -1):
            ladder = self.cell.ladder(self.cell.fresh(), told)
            pair = Pair(name, *ladder[low : low + 2][::turn])
            replayed = replay(self.claim, pair, self.seed)
            for what in differences(replayed.here, replayed.there, frozen=True):
                return what, pair
        return None


@dataclass(frozen=True)
class Reach:
    """How far a sweep goes.

    Parameters
    ----------
    count : int
        Values of the label, and of each secret column, beside those outside.
    columns : int
        Secret columns at most, drawn by a seed.
    floor : int
        Values of each cell that are tried however slow a run is.
    limit : float
        CPU seconds after which no more are.
    """

    count: int
    columns: int
    floor: int
    limit: float


QUICK, FULL = Reach(40, 1, 9, 0.04), Reach(400, 1 << 10, 402, 3.0)


def _swept(claim: Claim, reach: Reach, seed: int) -> tuple[int, tuple[str, Pair] | None]:
    """Return how many values were tried on a claim, and what one of them shows."""
    begun, tried, rng = time.process_time(), 0, np.random.default_rng(seed)
    found = cells(claim) if claim.replayed else []
    chosen = [found[i] for i in (0, *(1 + rng.permutation(len(found) - 1)[: reach.columns]))] if found else []
    for number, cell in enumerate(chosen, start=1):
        frozen, own = _Frozen(claim, cell, seed + number), 0
        for told in values(cell, reach.count, rng):
            if own >= reach.floor and time.process_time() - begun > reach.limit * number / len(chosen):
                break
            own += len(told)
            if frozen.tells(told) and (fault := frozen.climb(told)) is not None:
                return tried + own, fault
        tried += own
    return tried, None


def check(claim: Claim, reach: Reach, variants: Iterable[Claim] = (), *, seed: int = 0) -> Finding | None:
    """Attack a claim by what its runs show beside their results, over all values of a secret cell.

    Parameters
    ----------
    claim : Claim
    reach : Reach
    variants : iterable of Claim
        Tried as well, with the reach `QUICK`: options of its family (`options.variants`).
    seed : int
        Of the values and of the runs.

    Returns
    -------
    Finding or None
        None where tables have no such cell, or a run draws by no recorded mechanism.
    """
    begun, tried = time.process_time(), 0
    for one in (claim, *variants):
        count, fault = _swept(one, reach if one is claim else QUICK, seed)
        tried += count
        if fault is not None:
            what, pair = fault
            note = f"{'' if one is claim else one.name + ': '}{what}: {pair.name}"
            return Finding(
                claim.name, LAYER, Verdict.BROKEN, pair=pair.name, tried=tried,
                seconds=time.process_time() - begun, note=note,
            )  # fmt: skip
    if not tried:
        return None
    seconds = time.process_time() - begun
    note = f"{tried} values of secret cells"
    return Finding(claim.name, LAYER, Verdict.HOLDS, tried=tried, seconds=seconds, note=note)


def joined(found: Finding, swept: Finding | None) -> Finding:
    """Return a finding of a claim's own pairs with what a sweep adds to it."""
    if swept is None:
        return found
    whole = replace(found, tried=found.tried + swept.tried, seconds=found.seconds + swept.seconds)
    if found.verdict is Verdict.BROKEN:
        return whole
    if swept.verdict is Verdict.BROKEN:
        return replace(whole, verdict=swept.verdict, pair=swept.pair, note=swept.note)
    return replace(whole, note=f"{found.note}; {swept.note}")
