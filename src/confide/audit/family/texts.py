"""Members whose secret cells are written as text, and whose number of rows is secret and grows.

A cell of a private column may be text where a number is declared, or a category that nobody declared.
Whatever reads it (a frame, a file, a list, an array of objects) must say nothing of it, also where a table
is longer than the few rows of other members. Labels of a list may be pairs, of which no reader may take the
shape of all. And where rows come and go, no message may follow their number: here it passes 1 / delta, and
the first rows come.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from confide.audit.family.shared import NUMBERS, POINTS, Options
from confide.audit.family.variant import Families, Variant
from confide.audit.neighbours import Rows, table
from confide.audit.registry import Floats, Pair, Run, random_state
from confide.mechanisms import RandomStream
from confide.pipeline import SparseClassifier, SparseRegressor, select_and_fit
from confide.prediction import certify
from confide.privacy import Adjacency
from confide.selection import SubsetProblem, SubsetSelector, bounded, draw, select
from confide.training import (
    LinearProblem,
    PrivateClassifier,
    PrivateRegressor,
    adassp,
    boosted_adassp,
    noisy_statistics,
    train,
)
from confide.training.design import Source

#: Rows of a table, beside the one that differs.
_N = 24
#: Numbers that are written as text.
_FAR = 1e3
#: Of 1 / delta rows, which no table has exactly.
_DELTA = 0.048
#: Numbers of rows, of which a neighbour has one more: about 1 / delta, a tenth of it, and none.
_COUNTS = (20, 2, 0, 1, 4)


def _written(values: Floats) -> list[Any]:
    """Return cells as objects: far ones are text, missing ones None."""
    return [None if np.isnan(x) else f"odd {x:g}" if abs(x) > _FAR else float(x) for x in values]


def _level(values: Floats) -> list[Any]:
    """Return levels of a category; far ones are not declared."""
    return [None if np.isnan(x) else f"odd {x:g}" if abs(x) > _FAR else "ab"[int(x > 0)] for x in values]


def _pairs(relation: str) -> list[Pair]:
    """Return neighbours of which a row has text in all its secret cells."""
    base = table(_N, 2, seed=4)

    def row(value: float) -> tuple[Floats, float]:
        return np.full(2, value), value

    kinds = [("text, or numbers", 1e6, 0.5), ("two texts", 1e6, 2e6), ("text, or nothing", -1e6, np.nan)]
    if relation == "add_remove_one":
        return [Pair(f"{name} comes", base, base.added(*row(one))) for name, one, _ in kinds]
    if relation == "replace_label":
        X = base.X[0]
        return [Pair(name, base.replaced(X, one), base.replaced(X, other)) for name, one, other in kinds]
    return [Pair(name, base.replaced(*row(one)), base.replaced(*row(other))) for name, one, other in kinds]


def _frame(rows: Rows, *, classes: bool) -> dict[str, list[Any]]:
    cells = {"a": _written(rows.X[:, 0]), "b": _written(rows.X[:, 1]), "c": _level(rows.X[:, 0])}
    return {**cells, "y": _level(rows.y) if classes else _written(rows.y)}


def _schema(relation: str, *, classes: bool) -> Options:
    role = "public" if relation == "replace_label" else "private"
    columns: Options = {name: {"role": role, "lower": -1, "upper": 1} for name in "ab"}
    columns["c"] = {"role": role, "categories": ["a", "b"]}
    columns["y"] = {"role": "label", **({"categories": ["a", "b"]} if classes else {"lower": -1, "upper": 1})}
    if relation == "replace_private_part":
        columns["open"] = {"role": "public", "lower": -1, "upper": 1}
    return {"columns": columns}


def _opened(cells: dict[str, list[Any]], relation: str) -> dict[str, list[Any]]:
    if relation == "replace_private_part":
        return {**cells, "open": np.linspace(-1, 1, len(cells["y"])).tolist()}
    return cells


def _from_frame(cells: dict[str, list[Any]], schema: Options) -> Any:
    import pandas as pd

    from confide.schema import Table

    return Table.from_frame(pd.DataFrame(cells, dtype=object), schema)


def _from_text(cells: dict[str, list[Any]], schema: Options) -> Any:
    """Return the table of a CSV file."""
    from confide.schema import Table

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        lines = [",".join(cells), *(",".join("" if c is None else str(c) for c in row)
                                    for row in zip(*cells.values(), strict=True))]  # fmt: skip
        path.write_text("\n".join([*lines, ""]), encoding="utf-8")
        held = Table.read(path, schema)
        _ = held.label, held.private  # a file is read when it is asked for
    return held


def _door(
    door: Callable[..., Any],
    relation: str,
    *,
    classes: bool = False,
    made: Callable[[dict[str, list[Any]], Options], Any] = _from_frame,
    read: Callable[[Any, Any], Floats] | None = None,
    **options: Any,
) -> Run:
    """Return a run of a front door on a table, of whose result `read` makes numbers."""

    def run(rows: Rows, stream: RandomStream) -> Floats:
        cells = _opened(_frame(rows, classes=classes), relation)
        held = made(cells, _schema(relation, classes=classes))
        given = {"epsilon": 1, "adjacency": relation, **options}
        result = door(held, **given, random_state=random_state(stream))
        return _told(result) if read is None else read(result, held)

    return run


def _papers(result: Any, held: Any) -> Floats:
    """Return checksums of what is written of a result: its summary, its report, and the file of the model."""
    from confide.report import summary, write_report

    with tempfile.TemporaryDirectory() as folder:
        paths = [write_report(result, Path(folder) / "report.html", table=held, figures=False)]
        keeper = result if hasattr(result, "save") else getattr(result, "model", None)
        if keeper is not None:
            keeper.save(Path(folder) / "model.json")
            paths.append(Path(folder) / "model.json")
        written = [path.read_bytes() for path in paths]
    return np.array([crc32(text) for text in (str(summary(result, table=held)).encode(), *written)], float)


def _told(result: Any) -> Floats:
    """Return numbers of a result; all of it is compared as a portrait."""
    if hasattr(result, "indices"):
        return np.array(result.indices, dtype=np.float64)
    model = result.model
    found = model.coefficients if hasattr(model, "coefficients") else [result.guarantee.epsilon]
    return np.ravel(np.array(found, dtype=np.float64))


def _member(name: str, relation: str, run: Run) -> Variant:
    return Variant(f"text, {name}, {relation}", run, partial(_pairs, relation), relation)


def _objects(make: Callable[..., Any], relation: str, **options: Any) -> Variant:
    """Return an estimator on an array of objects, some of them text."""

    def run(rows: Rows, stream: RandomStream) -> Floats:
        y = np.array(_level(rows.y) if "classes" in options else _written(rows.y), dtype=object)
        made = make(**options, adjacency=relation, random_state=random_state(stream))
        model = made.fit(_cells(rows), y)
        return np.array(getattr(model, "coef_", getattr(model, "support_", ())), dtype=np.float64).ravel()

    return _member(f"{make.__name__} of objects", relation, run)


def _cells(rows: Rows) -> Any:
    """Return an array of objects [n, 2], some of them text."""
    return np.array([_written(column) for column in rows.X.T], dtype=object).T


def _framed(rows: Rows) -> Any:
    import pandas as pd

    return pd.DataFrame(_cells(rows), columns=["a", "b"], dtype=object)


#: Of functions on arrays: epsilon, delta, and what is public of the secret columns.
_ASKED: Options = {"epsilon": 1, "delta": 0.001, "steps": 2}
_BOUNDS: Options = {"target_bounds": (-1, 1), "private_bounds": [(-1, 1)] * 2}
_PUBLIC = table(_N, 2, seed=2).X


def _fit(relation: str, cast: Callable[[Rows], Any] | None, labels: Callable[[Floats], list[Any]],
         **options: Any) -> Run:  # fmt: skip
    """Return a run of `sgd.fit` on what `cast` makes of private columns (none: they are public) and `labels`.

    Where the request has a cap, weights are a list of the same cells as the labels.
    """

    def run(rows: Rows, stream: RandomStream) -> Floats:
        from confide.training.sgd import SGDRequest, fit

        asked = SGDRequest(**_ASKED, **options, adjacency=relation, random_state=random_state(stream))
        y = labels(rows.y)
        weights = None if asked.weight_cap is None else y
        public, private = (_PUBLIC, None) if cast is None else (None, cast(rows))
        return fit(public, private, y, asked, sample_weight=weights).model.parameters

    return run


def _fit_hybrid(cast: Callable[[Rows], Any] | None, labels: Callable[[Floats], list[Any]]) -> Run:
    """Return a run of `fit_hybrid` likewise, of whose columns two are public."""

    def run(rows: Rows, stream: RandomStream) -> Floats:
        from confide.training import fit_hybrid
        from confide.training.sgd import SGDRequest

        how: Options = {"target_bounds": (-1, 1)} if cast is None else _BOUNDS
        relation = "replace_label" if cast is None else "replace_private_part"
        asked = SGDRequest(**_ASKED, **how, adjacency=relation, random_state=random_state(stream))
        return fit_hybrid(
            _PUBLIC, None if cast is None else cast(rows), labels(rows.y), asked
        ).model.parameters

    return run


def _paired(values: Floats) -> list[Any]:
    """Return labels of which far ones are pairs: who takes the shape of a list from its cells sees two."""
    return [(1, 2) if abs(x) > _FAR else float(x) for x in values]


def _tuples(name: str, run: Run) -> Variant:
    """Return a member whose labels are all pairs, or all but one."""

    def pairs() -> list[Pair]:
        base = table(_N, 2, seed=4)
        far = Rows(base.X, np.full(_N, 1e6))
        return [Pair("pairs, or a number", far, far.replaced(base.X[0], 1.0))]

    return Variant(f"text, {name} of pairs, replace_label", run, pairs, "replace_label")


def _arrays() -> Iterator[Variant]:
    """Yield members of `sgd.fit` whose rows are secret, with weights."""
    for name, cast, relation in (("objects", _cells, "replace_one"), ("a frame", _framed, "add_remove_one")):
        how: Options = {
            **_BOUNDS,
            "weight_cap": 2.0,
            **({"rows": _N} if relation == "add_remove_one" else {}),
        }
        yield _member(f"sgd.fit of {name}, weights", relation, _fit(relation, cast, _written, **how))


def _hybrids() -> Iterator[Variant]:
    relation = "replace_private_part"
    yield _member("frame", relation, _door(train, relation, delta=0.001, engine="dpsgd", steps=2))
    for name, cast in (("objects", _cells), ("a frame", _framed)):
        yield _member(f"fit_hybrid of {name}", relation, _fit_hybrid(cast, _written))
    yield _tuples("fit_hybrid", _fit_hybrid(None, _paired))


def _spectral() -> Iterator[Variant]:
    yield from _labels("closed_form")

    def run(rows: Rows, stream: RandomStream) -> Floats:
        from confide.training.linear import fit
        from confide.training.request import make_request

        problem = LinearProblem(
            Source(lambda: iter([_PUBLIC]), ("a", "b")), lambda: iter([_written(rows.y)]), -1, 1
        )
        seed = random_state(stream)
        asked = make_request(epsilon=1, delta=0.001, adjacency=Adjacency.REPLACE_LABEL, random_state=seed)
        return np.ravel(fit(problem, asked).model.coefficients)

    yield _member("LinearProblem of a list", "replace_label", run)


def _drawn() -> Iterator[Variant]:
    """Yield members of a draw from a problem of lists, and of a source in bounds that are not symmetric."""

    def listed(rows: Rows) -> tuple[Any, float]:
        return _cells(rows).tolist(), 1.0

    def source(rows: Rows) -> tuple[Any, float]:
        return bounded(_cells(rows), (-1, 1.5))

    def run(made: Callable[[Rows], tuple[Any, float]], rows: Rows, stream: RandomStream) -> Floats:
        X, bound = made(rows)
        problem = SubsetProblem(X, _written(rows.y), 1, feature_bound=bound, target_bound=1.0)
        (support,) = draw(problem, "exponential", 1, "replace_one", random_state=stream)
        return np.array(support, dtype=np.float64)

    for name, made in (("lists", listed), ("a source", source)):
        yield _member(f"SubsetProblem of {name}", "replace_one", partial(run, made))


def _classes() -> Iterator[Variant]:
    yield from _labels("dpsgd", steps=2, classes=True)
    yield _tuples("sgd.fit", _fit("replace_label", None, _paired, classes=(0, 1)))


_ROWS = ("replace_one", "add_remove_one")
_ALL_SECRET: Options = {**NUMBERS, "public": None, "feature_bounds": (-1, 1)}
_LETTERS: Options = {
    "epsilon": 1,
    "delta": 0.001,
    "classes": ["a", "b"],
    "public": None,
    "feature_bounds": (-1, 1),
}
_SIZED: Options = {"size": 1, "epsilon": 1, "feature_bounds": (-1, 1)}


def _grown(name: str, run: Run, delta: float | None = _DELTA) -> Variant:
    """Return a member under ADD_REMOVE_ONE whose table grows by a row; `delta` is asked, or the claim's."""

    def pairs() -> list[Pair]:
        whole = table(max(_COUNTS) + 1, 2, seed=6)
        parts = {n: Rows(whole.X[:n], whole.y[:n]) for count in _COUNTS for n in (count, count + 1)}
        return [Pair(f"{n} rows, or one more", parts[n], parts[n + 1]) for n in _COUNTS]

    return Variant(f"rows are counted, {name}", run, pairs, "add_remove_one", delta=delta)


def _counted(
    make: Callable[..., Any], *, cast: Callable[[Rows], Any] = lambda rows: rows.y, **options: Any
) -> Run:
    def run(rows: Rows, stream: RandomStream) -> Floats:
        given = {"adjacency": "add_remove_one", "feature_bounds": (-1, 1), **options}
        model = make(**given, random_state=random_state(stream)).fit(rows.X, cast(rows))
        if hasattr(model, "support_") and not hasattr(model, "coef_"):
            return np.array(model.support_, dtype=np.float64)
        return np.ravel(getattr(model, "decision_function", model.predict)(POINTS))

    return run


def _signs(rows: Rows) -> Floats:
    return np.where(rows.y > 0, 1.0, 0.0)


def _function(fit: Callable[..., Any], *amounts: Any) -> Run:
    def run(rows: Rows, stream: RandomStream) -> Floats:
        found = fit(rows.X, rows.y, 1, *amounts, "add_remove_one", random_state=stream)
        return np.append(found.coefficients, found.intercept)

    return run


def _least_squares(fit: Any) -> Iterator[Variant]:
    yield _grown("function", _function(fit, _DELTA))
    given = {**NUMBERS, "delta": _DELTA, "public": None, "engine": fit.__name__}
    yield _grown("estimator", _counted(PrivateRegressor, **given))
    yield _grown("table", _door(train, "add_remove_one", delta=_DELTA, engine=fit.__name__))
    for relation in _ROWS:
        yield _member("frame", relation, _door(train, relation, delta=0.001, engine=fit.__name__))
    if fit is adassp:
        how: Options = {"delta": _DELTA, "engine": "adassp", "read": _papers}
        yield _grown("report", _door(train, "add_remove_one", **how))
        for relation in _ROWS:
            run = _door(train, relation, delta=0.001, engine="adassp", made=_from_text)
            yield _member("CSV", relation, run)
            yield _objects(PrivateRegressor, relation, **_ALL_SECRET, engine="adassp")


def _steps() -> Iterator[Variant]:
    how: Options = {"engine": "dpsgd", "steps": 2}
    secret = {**NUMBERS, "delta": _DELTA, "public": None, **how, "max_rows": 30}
    yield _grown("estimator", _counted(PrivateRegressor, **secret))
    yield _grown("past their bound", _counted(PrivateRegressor, **{**secret, "max_rows": _COUNTS[0]}))
    yield _member("frame", "replace_one", _door(train, "replace_one", delta=0.001, **how))
    yield _objects(PrivateRegressor, "replace_one", **_ALL_SECRET, **how)


def _objective() -> Iterator[Variant]:
    given = {"epsilon": 1, "delta": _DELTA, "classes": [0, 1], "public": None, "engine": "objective"}
    yield _grown("estimator", _counted(PrivateClassifier, cast=_signs, **given))
    for relation in _ROWS:
        run = _door(train, relation, delta=0.001, engine="objective", classes=True)
        yield _member("frame", relation, run)
    yield _objects(PrivateClassifier, "replace_one", **_LETTERS, engine="objective")


def _labels(engine: str, **how: Any) -> Iterator[Variant]:
    relation = "replace_label"
    yield _member("frame", relation, _door(train, relation, delta=0.001, engine=engine, **how))
    yield _member("CSV", relation, _door(train, relation, delta=0.001, engine=engine, made=_from_text, **how))
    how = {"delta": 0.001, "engine": engine, "read": _papers, **how}
    yield _member("report", relation, _door(train, relation, **how))


def _selected() -> Iterator[Variant]:
    for relation in _ROWS:
        for name, made in (("frame", _from_frame), ("CSV", _from_text)):
            yield _member(f"select, {name}", relation, _door(select, relation, size=1, made=made))
        yield _objects(SubsetSelector, relation, **_SIZED, target_bounds=(-1, 1))
    yield _grown("select", _door(select, "add_remove_one", size=1), None)
    yield _member("select, report", "replace_one", _door(select, "replace_one", size=1, read=_papers))
    yield _grown("estimator", _counted(SubsetSelector, size=1, epsilon=1, target_bounds=(-1, 1)), None)


def _fitted() -> Iterator[Variant]:
    for relation in _ROWS:
        how: Options = {"size": 1, "coefficient_loss": "squared"}
        yield _member("select_and_fit", relation, _door(select_and_fit, relation, **how))
        yield _objects(SparseRegressor, relation, **_SIZED, target_bounds=(-1, 1), coefficient_loss="squared")
    how = {"size": 1, "epsilon": 1, "target_bounds": (-1, 1), "coefficient_loss": "squared"}
    yield _grown("estimator", _counted(SparseRegressor, **how), None)
    run = _door(select_and_fit, "replace_one", size=1, coefficient_loss="squared", read=_papers)
    yield _member("select_and_fit, report", "replace_one", run)


def _sparse_classes() -> Iterator[Variant]:
    how: Options = {"size": 1, "coefficient_loss": "logistic"}
    yield _member("select_and_fit", "replace_one", _door(select_and_fit, "replace_one", classes=True, **how))
    yield _objects(SparseClassifier, "replace_one", **_SIZED, classes=["a", "b"])


def _certified(relation: str, **options: Any) -> Run:
    """Return a run of a certified classifier of a table, that is asked about public rows."""

    def run(rows: Rows, stream: RandomStream) -> Floats:
        held = _from_frame(_frame(rows, classes=True), _schema(relation, classes=True))
        model = certify(held, adjacency=relation, **options)
        asked = {name: POINTS[:, place].tolist() for place, name in enumerate("ab")}
        told = model.answer({**asked, "c": ["a", "b", "a"]}, 1, random_state=random_state(stream))
        return np.array([name == "b" for name in np.ma.filled(told, "")], dtype=np.float64)

    return run


FAMILIES: Families = {
    "training.adassp.add_remove_one": tuple(_least_squares(adassp)),
    "training.boosted_adassp.add_remove_one": tuple(_least_squares(boosted_adassp)),
    "training.noisy_statistics.add_remove_one": (_grown("function", _function(noisy_statistics), None),),
    "training.dpsgd.secret": (*_steps(), *_arrays()),
    "training.objective.gaussian": tuple(_objective()),
    "training.closed_form.spectral": tuple(_spectral()),
    "training.rounds": tuple(_labels("rounds")),
    "training.dpsgd.linear": tuple(_labels("dpsgd", steps=2)),
    "training.dpsgd.classes": tuple(_classes()),
    "training.closed_form.classes": tuple(_labels("closed_form", classes=True)),
    "training.semi_sensitive": (
        _member("frame", "replace_private_part",
                _door(train, "replace_private_part", delta=0.001, engine="semi_sensitive")),
    ),
    "training.hybrid": tuple(_hybrids()),
    "prediction.erm": (_member("certify", "replace_one", _certified("replace_one")),),
    "prediction.erm.add_remove_one": (
        _member("certify", "add_remove_one", _certified("add_remove_one", ridge=1.0)),
        _grown("certify", _certified("add_remove_one", ridge=1.0), None),
    ),
    "prediction.votes": (
        _member("certify", "replace_one", _certified("replace_one", certificate="votes", neighbours=3)),
    ),
    "selection.exponential.replace_one": tuple(_drawn()),
    "selection.SubsetSelector": tuple(_selected()),
    "pipeline.SparseRegressor.pure": tuple(_fitted()),
    "pipeline.SparseClassifier": tuple(_sparse_classes()),
}  # fmt: skip
