"""Neighbouring tables worth trying: extreme rows, ties, duplicates, sign flips, and a climb to worse ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from confide.audit.registry import Floats, Pair
from confide.privacy import Adjacency


@dataclass(frozen=True, eq=False)
class Rows:
    """A small table: rows [n, p] within +-1 (but for what a pair puts there) and a label each."""

    X: Floats
    y: Floats

    def replaced(self, row: Floats, label: float) -> Rows:
        """Return the table with its first row replaced."""
        X, y = self.X.copy(), self.y.copy()
        X[0], y[0] = row, label
        return Rows(X, y)

    def added(self, row: Floats, label: float) -> Rows:
        """Return the table with one row more."""
        return Rows(np.vstack([self.X, row]), np.append(self.y, label))


def table(n: int, p: int, seed: int = 0, *, classes: bool = False) -> Rows:
    """Return a table whose label follows its first columns; the last column repeats the first (a tie)."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, p))
    if p > 2:
        X[:, -1] = X[:, 0]
    y = np.clip(0.7 * X[:, 0] - 0.4 * X[:, min(1, p - 1)] + 0.2 * rng.normal(size=n), -1, 1)
    return Rows(X, np.where(y > 0, 1.0, -1.0) if classes else y)


def rows_to_try(p: int) -> Iterator[tuple[str, Floats, Floats]]:
    """Yield (name, row, its opposite) of p columns, worst first."""
    one, turned = np.ones(p), np.where(np.arange(p) % 2, -1.0, 1.0)
    unit = np.eye(p)[0]
    yield "sign flip", one, -one
    yield "alternating signs", turned, -turned
    yield "one column", unit, -unit
    yield "zero row", one, 0 * one
    yield "duplicate", unit, unit
    yield "beyond the bounds", 1e6 * turned, -1e308 * one
    yield "missing cells", np.full(p, np.nan), np.full(p, -np.inf)


def pairs(base: Rows, adjacency: Adjacency | str, *, labels: tuple[float, float] = (-1.0, 1.0)) -> list[Pair]:
    """Return neighbours of a table under a relation, the worst guess first.

    Parameters
    ----------
    base : Rows
    adjacency : Adjacency or str
        REPLACE_PRIVATE_PART counts every column as private.
    labels : pair
        Ends of the label. Where it is a number, and not one of both, the first pair whose labels differ has
        labels far beyond them: what cuts a label makes these the ends.
    """
    relation, (low, high) = Adjacency.parse(adjacency), labels
    row = base.X[0]
    if relation is Adjacency.REPLACE_LABEL:
        cells = [
            ("ends of the label", low, high),
            ("middle", (low + high) / 2, high),
            ("beyond the bounds", -1e308, 1e6),
            ("missing label", np.nan, high),
        ]
        return [Pair(name, base.replaced(row, a), base.replaced(row, b)) for name, a, b in cells]
    found: list[Pair] = []
    above, below = (high, low) if np.isin(base.y, labels).all() else (high + 1e6, low - 1e308)
    for name, one, other in rows_to_try(base.X.shape[1]):
        if relation is Adjacency.ADD_REMOVE_ONE:
            ends = ((high, high), (low, below))
            found += [Pair(f"{name}, {end:+g}", base, base.added(one, far)) for end, far in ends]
        else:
            found.append(Pair(f"{name}, label kept", base.replaced(one, high), base.replaced(other, high)))
            found.append(Pair(f"{name}, label too", base.replaced(one, above), base.replaced(other, below)))
        above, below = high, low
    return found


def climb(base: Rows, adjacency: Adjacency | str, value: Callable[[Pair], float], *, steps: int = 6,
          seed: int = 0, labels: bool = True) -> Pair:  # fmt: skip
    """Climb by signs of finite differences from a random change to a worse one.

    Parameters
    ----------
    base : Rows
    adjacency : Adjacency or str
        REPLACE_ONE or ADD_REMOVE_ONE.
    value : function (Pair) -> float
        What is climbed, such as the exact epsilon of two laws.
    steps : int
    labels : bool
        Whether labels move continuously; False: they are -1 or 1.

    Returns
    -------
    Pair
        The best that was met.
    """
    added, rng = Adjacency.parse(adjacency) is Adjacency.ADD_REMOVE_ONE, np.random.default_rng(seed)
    width = base.X.shape[1] + 1

    def label(cell: float) -> float:
        return cell if labels else float(np.sign(cell) or 1.0)

    def pair(point: Floats) -> Pair:
        one, other = point[:width], point[width:]
        if added:
            return Pair("climbed", base, base.added(one[:-1], label(one[-1])))
        here, there = (base.replaced(side[:-1], label(side[-1])) for side in (one, other))
        return Pair("climbed", here, there)

    point = rng.uniform(-1, 1, width if added else 2 * width)
    best, height, reach = pair(point), value(pair(point)), 0.8
    for _ in range(steps):
        slope = np.array([value(pair(np.clip(point + 0.05 * unit, -1, 1))) for unit in np.eye(point.size)])
        point = np.clip(point + reach * np.sign(slope - value(pair(point))), -1, 1)
        reach *= 0.8
        if (now := value(pair(point))) >= height:
            best, height = pair(point), now
    return best


def across(holds: Callable[[Rows], bool], name: str) -> Pair:
    """Return the first neighbours of a growing table of which a condition holds on one alone.

    The table has two useful columns of three; the longer it is, the further the best support leads. The row
    that differs speaks for the second column on one table, for the useless third on the other.

    Raises
    ------
    ValueError
        If the condition is the same on both sides up to 1,200 rows.
    """
    row, other = np.eye(3)[1], np.eye(3)[2]
    for n in range(4, 400):
        X = np.tile(np.eye(3), (n, 1))
        base = Rows(X, X @ np.array([1.0, 0.6, 0.0]))
        pair = Pair(name, base.replaced(row, 1.0), base.replaced(other, 1.0))
        if holds(pair.here) != holds(pair.there):
            return pair
    raise ValueError("The condition never differs.")
