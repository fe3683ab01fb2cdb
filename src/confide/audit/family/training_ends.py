"""Members whose tables have all secret cells at one end of their bounds, or none of them at all.

A table that looks odd, near a bound throughout or empty, is where a helpful message would be given: about a
column whose bounds are too narrow, whose cells are missing, that is constant. Such a message would quote
secret cells. So all of them are alike here but for one row's, in tables longer than those of other members.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from confide.audit.family.shared import POINTS, Options
from confide.audit.family.variant import Families, Variant
from confide.audit.neighbours import Rows, table
from confide.audit.registry import Floats, Pair, Run, random_state
from confide.mechanisms import RandomStream
from confide.pipeline import select_and_fit
from confide.selection import select
from confide.training import train

#: Rows of a table.
_N = 64
#: How cells are alike -> theirs, and those of the row that differs.
_ENDS = {"at the upper end": (1.0, -1.0), "at the lower end": (-1.0, 1.0), "missing": (np.nan, 1.0)}
#: Middle and half-width of the bounds of secret columns.
_MIDDLE, _HALF = 5.0, 2.0


def _pairs(relation: str, end: str) -> list[Pair]:
    cell, other = _ENDS[end]
    base = Rows(np.full((_N, 2), cell), np.full(_N, cell))
    if relation == "replace_label":
        base = Rows(table(_N, 2, seed=4).X, base.y)
        return [Pair(f"all labels {end} but one", base, base.replaced(base.X[0], other))]
    row = np.full(2, other)
    there = base.added(row, other) if relation == "add_remove_one" else base.replaced(row, other)
    return [Pair(f"all cells {end} but those of a row", base, there)]


def _table(rows: Rows, relation: str, classes: bool) -> Any:
    """Return rows as a table of two numbers, a category and, beside private parts, a public number."""
    import pandas as pd

    from confide.schema import Table

    role = "public" if relation == "replace_label" else "private"
    numbers: Options = {"role": role, "lower": _MIDDLE - _HALF, "upper": _MIDDLE + _HALF}
    columns: Options = {"a": numbers, "b": numbers, "c": {"role": role, "categories": ["low", "high"]}}
    frame = pd.DataFrame(_MIDDLE + _HALF * rows.X, columns=["a", "b"]).assign(y=rows.y)
    frame["c"] = [None if np.isnan(x) else "high" if x > 0 else "low" for x in rows.X[:, 0]]
    label: Options = {"lower": -1, "upper": 1}
    if classes:
        label = {"categories": ["no", "yes"]}
        frame["y"] = [None if np.isnan(y) else "yes" if y > 0 else "no" for y in rows.y]
    columns["y"] = {"role": "label", **label}
    if relation == "replace_private_part":
        frame["open"] = np.linspace(-1, 1, rows.y.size)
        columns["open"] = {"role": "public", "lower": -1, "upper": 1}
    return Table.from_frame(frame, {"columns": columns})


def _asked() -> Any:
    import pandas as pd

    return pd.DataFrame(_MIDDLE + _HALF * POINTS, columns=["a", "b"]).assign(c="low", open=0.0)


def _trained(relation: str, *, classes: bool = False, **options: Any) -> Run:
    def run(rows: Rows, stream: RandomStream) -> Floats:
        told: Any = train(
            _table(rows, relation, classes), epsilon=1, delta=0.001, adjacency=relation,
            random_state=random_state(stream), **options,
        )  # fmt: skip
        read = getattr(told.model, "decision_function", told.model.predict)
        return np.ravel(read(_asked())).astype(float)

    return run


def _door(door: Callable[..., Any], read: Callable[[Any], Any], **options: Any) -> Run:
    def run(rows: Rows, stream: RandomStream) -> Floats:
        told = door(
            _table(rows, "replace_one", False), size=1, epsilon=1, adjacency="replace_one",
            random_state=random_state(stream), **options,
        )  # fmt: skip
        return np.ravel(read(told)).astype(float)

    return run


def _members(name: str, run: Run, relation: str = "replace_one", *ends: str) -> Iterator[Variant]:
    for end in ends or ("at the upper end",):
        yield Variant(f"all {end}, {name}", run, partial(_pairs, relation, end), relation)


_STEPS: Options = {"engine": "dpsgd", "steps": 2}
_SPARSE: Options = {"delta": 0.001, "coefficient_loss": "huber"}
FAMILIES: Families = {
    "training.dpsgd.secret": tuple(
        _members("dpsgd", _trained("replace_one", **_STEPS), "replace_one", *_ENDS)
    ),
    "training.adassp.add_remove_one": tuple(
        _members("adassp", _trained("add_remove_one", engine="adassp"), "add_remove_one", *_ENDS)
    ),
    "training.semi_sensitive": tuple(
        _members(
            "semi_sensitive",
            _trained("replace_private_part", engine="semi_sensitive"),
            "replace_private_part",
        )
    ),
    "training.closed_form.spectral": tuple(
        _members("closed form", _trained("replace_label", engine="closed_form"), "replace_label", *_ENDS)
    ),
    "training.closed_form.classes": tuple(
        _members(
            "closed form, classes",
            _trained("replace_label", classes=True, engine="closed_form"),
            "replace_label",
        )
    ),
    "selection.SubsetSelector": tuple(_members("select", _door(select, lambda told: told.indices))),
    "pipeline.SparseRegressor.gaussian": tuple(
        _members(
            "select_and_fit",
            _door(
                select_and_fit, lambda told: told.model.coefficients, delta=0.001, coefficient_loss="huber"
            ),
        )
    ),
}
