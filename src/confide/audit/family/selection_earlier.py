"""Members of the families of selection that ask what an earlier table leaves behind.

Columns, products and scores are kept while a problem lasts. Were they kept for longer, by less than what they
follow from, a public table would be read as a private one that came before it. So a law is told twice of one
public table: at a length of which a private table was the first, and at a length that no table had before.
Rows of zeros make up the length, which add nothing to a score.

==================================  ======================================================================
edge case                           what happens
==================================  ======================================================================
the law at two lengths              the same: scores are on a public grid, and a row of zeros adds 0 to each
a process that has asked before     other lengths: they are counted
what is kept of any table at all    not seen, where it is the first one's for good
==================================  ======================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import numpy as np

from confide.audit.family.selection import far
from confide.audit.family.variant import Families, Variant
from confide.audit.neighbours import Rows, table
from confide.audit.registry import Floats, Pair, Run
from confide.mechanisms import RandomStream
from confide.selection import SubsetProblem, bounded, law

#: Lengths that no table of this process had before, odd ones for those that a private table has first.
_LENGTHS = count(401)
#: Digits of logarithms: beyond their rounding, and far above it.
_DIGITS = 6
#: Bounds of columns, about 0.
_ENDS = np.array([1.0, 2.0, 1.5])
#: Longer than the tables that differ, so that its labels meet each of their rows.
_PUBLIC = table(240, 3, seed=4)


def _plain(X: Floats) -> tuple[Any, float]:
    return X, 1.0


def _sparse(X: Floats) -> tuple[Any, float]:
    from scipy.sparse import csr_matrix

    return csr_matrix(X), 1.0


def _by_column(X: Floats) -> tuple[Any, float]:
    return bounded(X * _ENDS, (-_ENDS, _ENDS))


#: Kind of matrix -> how it is made of cells within +-1, and its bound.
_KINDS: dict[str, Callable[[Floats], tuple[Any, float]]] = {
    "rows in order": _plain,
    "sparse": _sparse,
    "bounds of columns": _by_column,
}


def _told(rows: Rows, length: int, how: Callable[[Floats], tuple[Any, float]], loss: str) -> Floats:
    """Return the law of a table made so long by rows of zeros, as logarithms."""
    more = length - rows.y.size
    X, bound = how(np.vstack([np.nan_to_num(rows.X), np.zeros((more, rows.X.shape[1]))]))
    y = np.append(rows.y, np.zeros(more))
    asked = SubsetProblem(X, y, 1, loss, ridge=0.0, feature_bound=bound, target_bound=1.0)
    return np.log([p for _, p in sorted(law(asked, "exponential", 1, "replace_one").items())])


def _after(how: Callable[[Floats], tuple[Any, float]], loss: str) -> Run:
    """Return a run that shows how far the law of a public table depends on the table that came before."""

    def run(rows: Rows, stream: RandomStream) -> Floats:
        length, other = next(_LENGTHS), next(_LENGTHS)
        _told(rows, length, how, loss)
        after, alone = (_told(_PUBLIC, each, how, loss) for each in (length, other))
        return np.round(after - alone, _DIGITS) + 0.0  # no zero below 0

    return run


def _pair() -> list[Pair]:
    return [far("replace_one")]


def _members() -> Iterator[Variant]:
    for name, how in _KINDS.items():
        yield Variant(f"an earlier table, {name}", _after(how, "squared"), _pair)
    yield Variant("an earlier table, huber", _after(_plain, "huber"), _pair)


FAMILIES: Families = {"selection.extremes.replace_one": tuple(_members())}
