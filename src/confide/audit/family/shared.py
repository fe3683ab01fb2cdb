"""What runs of many claims share: amounts, tables and estimators with one option changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from confide.audit import neighbours
from confide.audit.family.variant import Variant
from confide.audit.neighbours import Rows, table
from confide.audit.registry import Floats, Pair, Run, random_state
from confide.mechanisms import RandomStream

Options = dict[str, Any]
#: Of estimators: of numbers, of classes, of secret rows, and of a sparse model of a public support.
NUMBERS: Options = {"epsilon": 1, "delta": 0.001, "target_bounds": (-1, 1)}
CODES: Options = {"epsilon": 1, "delta": 0.001, "classes": [0, 1]}
SECRET: Options = {"public": None, "feature_bounds": (-1, 1), "adjacency": "replace_one"}
SPARSE: Options = {"size": 2, "epsilon": 1, "support": [0, 2], "feature_bounds": (-1, 1)}
#: What a model of two columns is asked.
POINTS = np.array([[0.5, -0.25], [-1.0, 1.0], [0.0, 0.0]])
#: Small and large amounts of privacy, and both with a small delta: other branches than those of 1 and 0.001.
AMOUNTS = ((0.1, 1e-6), (8, 1e-12))
#: Columns of a wide table, and what a model of so many columns, or of fewer, is asked.
WIDE = 6
ASKED = table(4, WIDE, seed=9).X


def estimator(make: Callable[..., Any], *, cast: Callable[[Floats], Any] = np.asarray, **options: Any) -> Run:
    """Return a run of an estimator; `cast` makes the matrix that it is given."""

    def run(rows: Rows, stream: RandomStream) -> Floats:
        with np.errstate(all="ignore"):
            X = cast(rows.X)
        model = make(**options, random_state=random_state(stream)).fit(X, rows.y)
        read = getattr(model, "decision_function", model.predict)
        return np.ravel(read(ASKED[:, : rows.X.shape[1]]))

    return run


def of(n: int, p: int, adjacency: str, *, classes: int = 0) -> Callable[[], list[Pair]]:
    """Return a maker of neighbours of n rows and p columns, with labels in +-1 or so many classes."""

    def pairs() -> list[Pair]:
        base, ends = table(n, p, seed=3), (-1.0, 1.0)
        if classes:
            base, ends = Rows(base.X, np.arange(n, dtype=np.float64) % classes), (0.0, classes - 1.0)
        return neighbours.pairs(base, adjacency, labels=ends)

    return pairs


def amounts(make: Callable[..., Run], *, delta: bool = True, **how: Any) -> Iterator[Variant]:
    """Yield members that are small and large in epsilon (and delta)."""
    for epsilon, lost in AMOUNTS:
        given = {"epsilon": epsilon, "delta": lost} if delta else {"epsilon": epsilon}
        name = ", ".join(f"{key} {value:g}" for key, value in given.items())
        yield Variant(name, make(**given), epsilon=epsilon, delta=lost if delta else None, **how)
