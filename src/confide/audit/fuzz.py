"""Neighbouring tables with extreme rows, by a seed: tried beside a claim's own pairs."""

from __future__ import annotations

import numpy as np

from confide.audit.neighbours import Rows
from confide.audit.registry import Claim, Floats, Pair
from confide.privacy import Adjacency

#: Cells that are legal to pass and outside every declared bound, or no numbers.
EXTREMES = (0.0, -0.0, 1.0, -1.0, 1e6, -1e6, 1e308, -1e308, 5e-324, np.nan, np.inf, -np.inf)
_FEW = 4


def fuzzed(claim: Claim, count: int, seed: int = 0) -> list[Pair]:
    """Return random neighbours of the shape of a claim's first table; none for claims on other things.

    Parameters
    ----------
    claim : Claim
        With `fuzzed` set, and tables that are `Rows`, or tuples that begin with one; the rest is kept.
    count : int
    seed : int

    Returns
    -------
    list of Pair
        Tables within the bounds of the claim's own but for the row that differs, of which a third of the
        cells are extreme. Columns stay as they are where the label alone is secret. Labels of few distinct
        values keep to them, but for the row that differs.
    """
    own = list(claim.pairs()) if claim.fuzzed else []
    rng, found = np.random.default_rng(seed), []
    for number in range(count if own else 0):
        one = own[number % len(own)].here
        rows, rest = (one[0], one[1:]) if isinstance(one, tuple) else (one, None)
        if not isinstance(rows, Rows):
            return []
        model = own[0].here if rest is None else own[0].here[0]
        pair = _pair(model, claim.adjacency, rng, number)
        if rest is not None:
            pair = Pair(pair.name, (pair.here, *rest), (pair.there, *rest))
        found.append(pair)
    return found


def _pair(model: Rows, adjacency: Adjacency, rng: np.random.Generator, number: int) -> Pair:
    n, p = model.X.shape
    labels = np.unique(model.y[np.isfinite(model.y) & (np.abs(model.y) <= 1e3)])
    secret = adjacency is not Adjacency.REPLACE_LABEL
    X = _wild(rng, (n, p)) if secret else model.X
    base = Rows(X, _labels(rng, labels, n))

    def row() -> tuple[Floats, float]:
        label = rng.choice([*labels, *EXTREMES]) if rng.random() < 0.5 else _labels(rng, labels, 1)[0]
        return _wild(rng, (1, p), 0.33)[0], float(label)

    name = f"fuzzed {number}"
    if adjacency is Adjacency.ADD_REMOVE_ONE:
        return Pair(name, base, base.added(*row()))
    place, tables = int(rng.integers(n)), []
    for _ in range(2):
        cells, label = row()
        X, y = base.X.copy(), base.y.copy()
        y[place] = label
        if secret:
            X[place] = cells
        tables.append(Rows(X, y))
    return Pair(name, *tables)


def _wild(rng: np.random.Generator, shape: tuple[int, int], share: float = 0.0) -> Floats:
    """Return cells within +-1, some of them exactly at an end, and that share of extreme ones."""
    cells = np.clip(1.5 * rng.uniform(-1, 1, shape), -1, 1)
    return np.where(rng.random(shape) < share, rng.choice(EXTREMES, shape), cells)


def _labels(rng: np.random.Generator, known: Floats, n: int) -> Floats:
    if known.size <= _FEW:
        return rng.choice(known, n)
    return np.clip(1.2 * rng.uniform(known[0], known[-1], n), known[0], known[-1])
