"""Members of the families of the room: labels. Many rows, of which the last label differs, beyond all bounds.

A claim about one label is replayed on one. A table of 100 shows a method that treats later rows otherwise;
labels beyond the bounds show one that does not cut them, and those that are no number one that drops rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from confide.audit.family.shared import Options
from confide.audit.family.variant import Families, Variant
from confide.audit.registry import Floats, Pair, Run, random_state
from confide.mechanisms import RandomStream
from confide.training import LabelPrivatizer

#: Rows of a table, and the last label on both sides.
_ROWS = 100
_LAST = (
    ("beyond the bounds", 1e6, -1e308),
    ("the largest numbers", 1e308, -1e6),
    ("missing", np.nan, -1e308),
    ("infinite", np.inf, -np.inf),
)
#: Bounds that no double halves exactly, and those whose middle is 1.
_ODD, _EVEN = (0.1, 0.7), (-1.0, 3.0)
_CLASSES = [float(c) for c in range(70)]
_METHODS: tuple[Options, ...] = (
    *({"method": name, "target_bounds": ends} for name in ("rounding", "laplace") for ends in (_ODD, _EVEN)),
    *({"method": "gaussian", "target_bounds": ends, "delta": 0.001} for ends in (_ODD, _EVEN)),
    {"method": "rr_on_bins", "target_bounds": _ODD, "cells": 70},
    {"method": "rr_on_bins", "target_bounds": _EVEN, "cells": 70, "prior": [1 + i % 3 for i in range(70)]},
    {"method": "randomized_response", "classes": _CLASSES},
    {"method": "randomized_response", "classes": _CLASSES, "prior": "uniform"},
)


def _privatised(options: Options) -> Run:
    def run(labels: Floats, stream: RandomStream) -> Any:
        made = LabelPrivatizer(**options, random_state=random_state(stream))
        return np.asarray(made.fit_transform(labels), dtype=np.float64)

    return run


def _tables(options: Options, first: int) -> list[Pair]:
    """Return neighbours, the worst first: another one for each amount, which a quick audit takes."""
    low, high = options.get("target_bounds", (0.0, 69.0))
    base = np.linspace(low, high, _ROWS)
    if "classes" in options:
        base = np.rint(base)
    sides = (*_LAST, ("ends", high, low))
    sides = (*sides[first:], *sides[:first])
    return [Pair(name, np.append(base, one), np.append(base, other)) for name, one, other in sides]


def _methods() -> Iterator[Variant]:
    for options in _METHODS:
        shown = ", ".join(
            f"{key} {value}" for key, value in options.items() if key not in ("classes", "delta")
        )
        for place, epsilon in enumerate((0.1, 1, 8)):
            yield Variant(
                f"{_ROWS + 1} labels, {shown:.80}, epsilon {epsilon}",
                _privatised({**options, "epsilon": epsilon}),
                lambda options=options, first=2 * place: _tables(options, first),
                epsilon=epsilon,
                delta=options.get("delta"),
            )


FAMILIES: Families = {"labels.rounding": tuple(_methods())}
