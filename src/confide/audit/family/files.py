"""Members whose table is a Parquet file: read whole, read in chunks, or as a matrix that is not read yet.

A file goes through other code than a frame: cells are cleaned chunk by chunk, and the rows of a person that
count are counted across chunks. One chunk here holds nothing but rows that do not count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from confide.audit.family.shared import POINTS, Options, of
from confide.audit.family.variant import Families, Variant
from confide.audit.neighbours import Rows, table
from confide.audit.registry import Floats, Pair, Run, random_state
from confide.mechanisms import RandomStream
from confide.pipeline import select_and_fit
from confide.prediction import certify
from confide.selection import ParquetMatrix, SubsetSelector, select
from confide.training import train

#: Rows of a chunk, and of a person those that count: of the first's, one of the first chunk and one of the
#: last. The second chunk is of persons that have theirs before.
_CHUNK, _LIMIT = 6, 2
_WHOSE = np.array([0, 1, 1, 2, 2, 3] + [1, 2] * 3 + [0, 0, 0, 3, 4, 5])
_OF_ONE = _WHOSE == 0
_LONG = table(_WHOSE.size, 2, seed=6)


@contextmanager
def _file(cells: dict[str, Any]) -> Iterator[Path]:
    """Write columns to a Parquet file that is there inside the block."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        pq.write_table(pa.table({name: pa.array(values) for name, values in cells.items()}), path)
        yield path


def _cells(rows: Rows, *, classes: bool) -> dict[str, Any]:
    y = np.where(rows.y > 0, "yes", "no") if classes else rows.y
    return {"a": rows.X[:, 0], "b": rows.X[:, 1], "y": y}


def _schema(relation: str, *, classes: bool, ids: bool) -> Options:
    role = "public" if relation == "replace_label" else "private"
    columns: Options = {name: {"role": role, "lower": -1, "upper": 1} for name in "ab"}
    ends = {"categories": ["no", "yes"]} if classes else {"lower": -1, "upper": 1}
    columns["y"] = {"role": "label", **ends}
    if not ids:
        return {"columns": columns}
    return {"columns": {**columns, "person": {"role": "id"}}, "table": {"max_rows_per_id": _LIMIT}}


def _opened(
    use: Callable[[Any, RandomStream], Floats],
    relation: str,
    *,
    chunks: bool,
    classes: bool = False,
    ids: bool = False,
) -> Run:
    """Return a run that opens its table as a file, and uses it while the file is there."""

    def run(rows: Rows, stream: RandomStream) -> Floats:
        from confide.schema import Table

        cells = _cells(rows, classes=classes)
        if ids:
            cells["person"] = _WHOSE if rows.y.size == _WHOSE.size else _WHOSE[~_OF_ONE]
        schema = _schema(relation, classes=classes, ids=ids)
        with _file(cells) as path:
            held = Table.scan(path, schema, chunk_rows=_CHUNK) if chunks else Table.read(path, schema)
            return use(held, stream)

    return run


def _trained(relation: str, **options: Any) -> Callable[[Any, RandomStream], Floats]:
    given: Options = {"epsilon": 1, "delta": 0.001, "adjacency": relation, **options}

    def use(held: Any, stream: RandomStream) -> Floats:
        told: Any = train(held, **given, random_state=random_state(stream))
        model = told.model
        asked = {name: POINTS[:, place] for place, name in enumerate("ab")}
        return np.ravel(getattr(model, "decision_function", model.predict)(asked)).astype(float)

    return use


def _selected(held: Any, stream: RandomStream) -> Floats:
    found = select(held, size=1, epsilon=1, adjacency="replace_one", random_state=random_state(stream))
    return np.array(found.indices, dtype=np.float64)


def _fitted(**options: Any) -> Callable[[Any, RandomStream], Floats]:
    def use(held: Any, stream: RandomStream) -> Floats:
        told = select_and_fit(
            held, size=1, epsilon=1, adjacency="replace_one", random_state=random_state(stream), **options
        )
        return np.concatenate([told.model.indices, told.model.coefficients, [told.model.intercept]])

    return use


def _certified(held: Any, stream: RandomStream) -> Floats:
    model = certify(held, adjacency="replace_one", certificate="votes", neighbours=3)
    asked = {name: POINTS[:, place] for place, name in enumerate("ab")}
    told = model.answer(asked, 1, random_state=random_state(stream))
    return np.array([name == "yes" for name in np.ma.filled(told, "")], dtype=np.float64)


def _unread(make: Any, **options: Any) -> Run:
    """Return a run of an estimator on a matrix in a file."""

    def run(rows: Rows, stream: RandomStream) -> Floats:
        with _file({"a": rows.X[:, 0], "b": rows.X[:, 1]}) as path:
            model = make(
                size=1, epsilon=1, feature_bounds=(-1, 1), target_bounds=(-1, 1), **options,
                random_state=random_state(stream),
            ).fit(ParquetMatrix(path), rows.y)  # fmt: skip
            return np.array(model.get_support(indices=True), dtype=np.float64)

    return run


def _persons(relation: str) -> list[Pair]:
    """Return neighbours in which all rows of the first person change, or come: the longest of all."""
    long = np.ones(2)
    ends = (long, long) if relation == "replace_label" else (long, -long)
    here, there = (
        Rows(np.where(_OF_ONE[:, None], X, _LONG.X), np.where(_OF_ONE, y, _LONG.y))
        for X, y in zip(ends, (1.0, -1.0), strict=True)
    )
    if relation == "add_remove_one":
        here = Rows(there.X[~_OF_ONE], there.y[~_OF_ONE])
    return [Pair("all rows of a person", here, there)]


def _of_persons(relation: str, **options: Any) -> Variant:
    run = _opened(_trained(relation, **options), relation, chunks=True, ids=True)
    name = f"Parquet, ids in three chunks, {options['engine']}, {relation}"
    return Variant(name, run, lambda: _persons(relation), relation)


def _table(
    name: str, use: Any, relation: str = "replace_one", *, classes: int = 0, whole: bool = False
) -> Iterator[Variant]:
    """Yield members on a file that is read in chunks, and whole."""
    pairs = of(14, 2, relation, classes=classes)
    for way, chunks in (("in chunks", True), *([("whole", False)] if whole else [])):
        run = _opened(use, relation, chunks=chunks, classes=classes > 0)
        yield Variant(f"Parquet {way}, {name}", run, pairs, relation)


def _asked() -> list[Pair]:
    """Return neighbours in which the row next to a query votes otherwise."""
    base = table(14, 2, seed=3, classes=True)
    return [Pair("a vote turns", base.replaced(POINTS[0], 1.0), base.replaced(POINTS[0], -1.0))]


def _certificates() -> Iterator[Variant]:
    for way, chunks in (("in chunks", True), ("whole", False)):
        run = _opened(_certified, "replace_one", chunks=chunks, classes=True)
        yield Variant(f"Parquet {way}, certify", run, _asked, "replace_one")


_LABELS = "replace_label"
FAMILIES: Families = {
    "training.closed_form.spectral": (
        _of_persons(_LABELS, engine="closed_form", conditioning="spectral", shrinkage=False),
    ),
    "training.rounds": (_of_persons(_LABELS, engine="rounds"),),
    "training.closed_form.classes": tuple(
        _table("classes", _trained(_LABELS, engine="closed_form"), _LABELS, classes=2)
    ),
    "training.dpsgd.linear": (_of_persons(_LABELS, engine="dpsgd", steps=2),),
    "training.dpsgd.secret": tuple(
        _table("dpsgd", _trained("replace_one", engine="dpsgd", steps=2), whole=True)
    ),
    "training.adassp.replace_one": (_of_persons("replace_one", engine="adassp"),),
    "training.adassp.add_remove_one": (_of_persons("add_remove_one", engine="adassp"),),
    "selection.SubsetSelector": (
        *_table("select", _selected),
        Variant("a matrix in a file", _unread(SubsetSelector), of(8, 2, "replace_one"), "replace_one"),
    ),
    "pipeline.SparseRegressor.gaussian": tuple(
        _table("select_and_fit", _fitted(delta=0.001, coefficient_loss="huber"), whole=True)
    ),
    "pipeline.SparseRegressor.moments": tuple(_table("select_and_fit", _fitted(coefficient_loss="squared"))),
    "prediction.votes": tuple(_certificates()),
}  # fmt: skip
