"""Members of the families of the room: training. Steps of gradient descent are in `steps`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from confide.audit.family.places import one_round
from confide.audit.family.shared import (
    AMOUNTS,
    ASKED,
    CODES,
    NUMBERS,
    SECRET,
    WIDE,
    Options,
    amounts,
    estimator,
    of,
)
from confide.audit.family.steps import STEPS
from confide.audit.family.variant import Families, Variant
from confide.audit.neighbours import Rows, table
from confide.audit.registry import Floats, Pair, Run, random_state
from confide.mechanisms import RandomStream
from confide.training import (
    LabelPrivatizer,
    PrivateClassifier,
    PrivateRegressor,
    WeightedLLPRegressor,
    adassp,
    boosted_adassp,
    fit_semi_sensitive,
    noisy_statistics,
    train,
)


def _regressor(engine: str, *, cast: Callable[[Floats], Any] = np.asarray, **options: Any) -> Run:
    return estimator(PrivateRegressor, cast=cast, **{**NUMBERS, "engine": engine, **options})


def _classifier(engine: str, **options: Any) -> Run:
    return estimator(PrivateClassifier, **{**CODES, "engine": engine, **options})


_WIDE_LABELS = of(12, WIDE, "replace_label")
_FIVE = of(20, 2, "replace_label", classes=5)


_CASTS: dict[str, Callable[[Floats], Any]] = {
    "single precision": lambda X: X.astype(np.float32),
    "integers": lambda X: np.rint(2 * X).astype(np.int64),
    "columns first": np.asfortranarray,
}
#: So many rows that they are read in two blocks.
_BLOCKS = 4_200
#: The same for secret rows of so many columns.
_SHORT, _COLUMNS = 1_100, 60


def _cut(n: int, p: int) -> Callable[[], list[Pair]]:
    """Return a maker of neighbours whose labels lie beyond the bounds first: what cuts them is worst."""
    return lambda: sorted(of(n, p, "replace_label")(), key=lambda pair: pair.name != "beyond the bounds")


def _last(adjacency: str) -> Callable[[], list[Pair]]:
    """Return a maker of neighbours whose last row, in the second block, lies beyond the bounds."""

    def pairs() -> list[Pair]:
        base, turned = table(_SHORT, _COLUMNS, seed=3), np.where(np.arange(_COLUMNS) % 2, -1.0, 1.0)
        there = base.added(1e6 * turned, 1e6)
        here = base if adjacency == "add_remove_one" else base.added(np.full(_COLUMNS, -1e308), -1e308)
        return [Pair("the last row is beyond the bounds", here, there)]

    return pairs


def _lemma(adjacency: str) -> list[Pair]:
    """Return neighbours that move products of 30 columns by most: some signs turn, and maybe the label.

    Of m columns with the one, k turned signs move k (m - k) products, and products with the label where one
    of both turns. Of one row more, all move.
    """
    p = 30
    m = p + 1
    k, label = max(
        ((k, label) for k in range(m) for label in (1.0, -1.0)),
        key=lambda way: way[0] * (m - way[0]) + m / 3 * (way[0] if way[1] > 0 else m - way[0]),
    )
    base, row = table(4, p, seed=3), np.ones(p)
    here = base if adjacency == "add_remove_one" else base.added(row, 1.0)
    return [Pair("signs that move most", here, base.added(np.where(np.arange(p) < k, -row, row), label))]


def _closed_form() -> Iterator[Variant]:
    yield from amounts(lambda **given: _regressor("closed_form", **given))
    for name, cast in _CASTS.items():
        yield Variant(name, _regressor("closed_form", cast=cast))
    yield Variant("six columns", _regressor("closed_form"), _WIDE_LABELS)
    yield Variant("two blocks", _regressor("closed_form"), _cut(_BLOCKS, 2))
    yield Variant("ids in two blocks", _owned, _persons_blocks)
    for name in ("closed_form", "rounds"):
        yield Variant(f"ids in two chunks, {name}", _chunks(name, "replace_label"), _persons_labels)


def _rounds() -> Iterator[Variant]:
    yield from amounts(lambda **given: _regressor("rounds", **given))
    yield Variant("six columns", _regressor("rounds"), _WIDE_LABELS)
    yield Variant("integers", _regressor("rounds", cast=_CASTS["integers"]))


def _several_rounds() -> Iterator[Variant]:
    yield Variant("epsilon 8, delta 1e-12", _regressor("rounds", epsilon=8, delta=1e-12), epsilon=8)
    yield Variant("more rounds", _regressor("rounds"), _cut(1_100, 2))
    # So little noise that there are as many rounds as there can be.
    yield Variant("all rounds, epsilon 100", _regressor("rounds", epsilon=100), epsilon=100)
    plain = _regressor("rounds", leverage=0.5, shrinkage=False, cast=_CASTS["columns first"])
    yield Variant("shortened rows, not shrunk, columns first", plain)


def _classes() -> Iterator[Variant]:
    yield from amounts(lambda **given: _classifier("closed_form", **given))
    five = list(range(5))
    yield Variant("five classes", _classifier("closed_form", classes=five), _FIVE)
    pairs = of(_BLOCKS, 2, "replace_label", classes=2)
    yield Variant("two blocks", _classifier("closed_form"), pairs)


def _responses() -> Iterator[Variant]:
    how: Options = {"delta": 0}
    yield from amounts(
        lambda epsilon: _classifier("randomized_response", epsilon=epsilon, **how), delta=False
    )
    five = list(range(5))
    for epsilon in (1, 4, 8):
        run = _classifier("randomized_response", epsilon=epsilon, classes=five, **how)
        yield Variant(f"five classes, epsilon {epsilon}", run, _FIVE, epsilon=epsilon)


_WIDE_SIGNS = of(4, WIDE, "replace_one", classes=2)


def _objective(delta: bool) -> Iterator[Variant]:
    amount: Options = {**SECRET} if delta else {**SECRET, "delta": 0}
    pairs = of(4, 2, "replace_one", classes=2)
    yield from amounts(
        lambda **given: _classifier("objective", **{**amount, **given}), delta=delta, pairs=pairs
    )
    yield Variant("six columns", _classifier("objective", **amount), _WIDE_SIGNS)
    yield from (Variant(name, run, pairs) for name, run in _losses(0.001 if delta else 0))


def _losses(delta: float) -> Iterator[tuple[str, Run]]:
    """Yield runs of objective perturbation for numbers, with options that no estimator has."""
    from confide.training import objective
    from confide.training.coefficients import Rows as Cells
    from confide.training.coefficients import make_shape

    for name, loss, options in (
        ("quantile .2", "quantile", {"loss_shape": 0.2}),
        ("Huber, radius 0.5", "huber", {"loss_shape": 0.2, "radius": 0.5}),
        ("hinge, ridge 20", "hinge", {"ridge": 20.0}),
    ):

        def run(rows: Rows, stream: RandomStream, loss: str = loss, options: Options = options) -> Floats:
            shape = make_shape(rows.X.shape[1], "replace_one", rows_per_unit=1, intercept=True)
            y = np.where(rows.y == 1.0, 1.0, -1.0) if loss == "hinge" else rows.y
            plan = objective.make_plan(shape, 1, delta, loss, rows=rows.y.size, **options)
            found = objective.release(Cells(rows.X, y, shape), plan, stream=stream)
            return np.append(found.coefficients, found.intercept)

        yield name, run


def _moments(fit: Callable[..., Any], adjacency: str, *, lost: bool) -> Iterator[Variant]:
    """Yield members of a fit of secret rows."""

    def make(epsilon: float = 1, delta: float = 0.001, *, cast: Any = np.asarray, **options: Any) -> Run:
        amounts = (epsilon, delta) if lost else (epsilon,)

        def run(rows: Rows, stream: RandomStream) -> Floats:
            with np.errstate(all="ignore"):
                X, y = cast(rows.X), rows.y * options.get("target_bound", 1.0)
            found = fit(X, y, *amounts, adjacency, **options, random_state=stream)
            return np.append(found.coefficients, found.intercept)

        return run

    yield from amounts(make, delta=lost)
    wide = of(4, WIDE, adjacency)
    yield Variant("six columns", make(), wide)
    yield Variant("six columns, no intercept", make(intercept=False), wide)
    yield Variant("bounds of 2 and 3", make(cast=lambda X: 2 * X, feature_bound=2.0, target_bound=3.0))
    if fit is not noisy_statistics:
        yield Variant("single precision", make(cast=_CASTS["single precision"]))
    if fit is boosted_adassp:
        yield Variant("clip 0.9", make(clip=0.9), wide)
        yield Variant("three rounds", make(rounds=3, share=0.2))
        if adjacency == "add_remove_one":
            yield Variant("a last bit decides a residual", *one_round())
    # Rows are read alike by each fit: one of both serves each relation.
    if (fit, adjacency) in ((adassp, "replace_one"), (noisy_statistics, "add_remove_one")):
        yield Variant("two blocks", make(), _last(adjacency))
    if fit is noisy_statistics:
        yield Variant("30 columns", make(), partial(_lemma, adjacency))
    if fit is adassp:
        yield Variant("ids in two chunks", _chunks("adassp", adjacency), _persons_rows(adjacency))


def _semi(public: int = 2, **options: Any) -> Run:
    """Return a run of the estimator: so many public columns, and those of the table."""
    base: Options = {**NUMBERS, "feature_bounds": (-1, 1), "engine": "semi_sensitive"}
    base |= {"adjacency": "replace_private_part"}

    def run(rows: Rows, stream: RandomStream) -> Floats:
        X = np.hstack([table(rows.y.size, public, seed=2).X, rows.X])
        seen = np.arange(X.shape[1]) < public
        model = PrivateRegressor(**{**base, **options}, public=seen, random_state=random_state(stream))
        return np.append(model.fit(X, rows.y).coef_, model.intercept_)

    return run


def _semi_norm(rows: Rows, stream: RandomStream) -> Floats:
    """Shorten private rows: an option of the function alone."""
    fitted = fit_semi_sensitive(
        table(rows.y.size, 3, seed=2).X, rows.X, rows.y, 8, 0.001, target_bounds=(-1, 1), private_norm=0.5,
        random_state=stream,
    )  # fmt: skip
    return np.concatenate([[fitted.intercept], np.ravel(fitted.public), np.ravel(fitted.private)])


def _semi_sensitive() -> Iterator[Variant]:
    yield from amounts(lambda **given: _semi(**given))
    # So many rows and so little noise that private columns are worth it.
    wide = of(240, WIDE, "replace_private_part")
    yield Variant("six columns", _semi(3, epsilon=8), wide, epsilon=8)
    yield Variant("shortened rows", _semi_norm, wide, epsilon=8)
    yield Variant("private bounds", _semi(feature_bounds=(-2.0, 1.0)))
    yield Variant("not shrunk", _semi(shrinkage=False))


def _bags(**options: Any) -> Run:
    return estimator(WeightedLLPRegressor, **{**NUMBERS, **options})


#: A seed that gives the row that differs a weight near the largest.
_HEAVY = 18


def _weighted() -> Iterator[Variant]:
    yield from amounts(lambda **given: _bags(**given))
    yield Variant("normal weights", _bags(weights="gaussian", bag_size=2, bag_seed=_HEAVY))
    yield Variant("bags of one, six columns", _bags(bag_size=1), _WIDE_LABELS)


_PRIVATISERS: tuple[Options, ...] = (
    {"method": "rr_on_bins", "target_bounds": (-1, 3), "cells": 5, "prior": [1, 2, 1, 3, 2]},
    {"method": "rounding", "target_bounds": (-1, 3)},
    {"method": "laplace", "target_bounds": (-1, 3)},
    {"method": "gaussian", "target_bounds": (-1, 3)},
    {"method": "randomized_response", "classes": [-1.0, 0.0, 1.0, 2.0, 3.0], "prior": "uniform"},
)


def _labels(options: Options) -> Run:
    def run(label: Any, stream: RandomStream) -> Any:
        made = LabelPrivatizer(**options, random_state=random_state(stream))
        return made.fit_transform(np.array([label, 0.0, 1.0, 1.0]))

    return run


def _privatised() -> Iterator[Variant]:
    shared = {"method": "randomized_response", "classes": [-1.0, 0.0, 1.0, 2.0, 3.0], "prior_share": 0.3}
    yield Variant("counts first, epsilon 8", _labels({**shared, "epsilon": 8}), epsilon=8)
    for options in _PRIVATISERS:
        for epsilon, delta in (*AMOUNTS, (4, 1e-6)):
            given = {"epsilon": epsilon, **({"delta": delta} if options["method"] == "gaussian" else {})}
            asked = ", ".join(f"{key}={value!r}" for key, value in {**options, **given}.items())
            yield Variant(asked, _labels({**options, **given}), epsilon=epsilon, delta=given.get("delta"))


#: Of four persons so many rows count, of everyone's two of the first chunk and one of the second. None are
#: longer than the first person's.
_LIMIT = 3
_WHOSE = np.array([0, 1, 2, 3] * 2 + [0] * 8 + [1, 2, 3] * 2)
_EARLY = np.arange(_WHOSE.size) < 8
_FIRST = _WHOSE == 0
_LONG = table(_WHOSE.size, 2, seed=5)
#: Rows of one person, in two blocks.
_PLACES = np.isin(np.arange(_BLOCKS), (0, 2_000, _BLOCKS - 1))


def _ends(X: Floats, first: Any) -> list[Pair]:
    """Return neighbours in which all labels of one person turn, whose rows are the longest."""
    X, rest = np.where(first[:, None], np.array([1.0, -1.0]), X), table(first.size, 2, seed=5).y
    return [
        Pair(name, *(Rows(X, np.where(first, end, rest)) for end in ends))
        for name, ends in (
            ("all labels of a person", (1.0, -1.0)),
            ("all are missing", (np.nan, 1.0)),
            ("all are beyond the bounds", (-1e308, 1e6)),
        )
    ]


def _persons_blocks() -> list[Pair]:
    return _ends(table(_BLOCKS, 2, seed=5).X, _PLACES)


def _owned(rows: Rows, stream: RandomStream) -> Floats:
    """Run `train` on a table with ids that is read in two blocks."""
    import pandas as pd

    from confide.schema import Schema, Table

    person = np.where(_PLACES, 0, 1 + np.cumsum(~_PLACES) // _LIMIT)
    frame = pd.DataFrame(rows.X, columns=["a", "b"]).assign(person=person, y=rows.y)
    told: Any = train(
        Table.from_frame(frame, Schema.of(_declared("public"))), epsilon=1, delta=0.001,
        engine="closed_form", shrinkage=False, random_state=random_state(stream),
    )  # fmt: skip
    return np.ravel(told.model.predict(frame.iloc[:3])).astype(float)


def _declared(role: str) -> Options:
    columns: Options = {name: {"role": role, "lower": -1, "upper": 1} for name in "ab"}
    columns |= {"person": {"role": "id"}, "y": {"role": "label", "lower": -1, "upper": 1}}
    return {"columns": columns, "table": {"max_rows_per_id": _LIMIT}}


def _persons_labels() -> list[Pair]:
    return _ends(_LONG.X, _FIRST)


def _persons_rows(adjacency: str) -> Callable[[], list[Pair]]:
    """Return a maker of neighbours in which all rows of one person change, or come."""

    def pairs() -> list[Pair]:
        here, there = (
            Rows(np.where(_FIRST[:, None], sign, _LONG.X), np.where(_FIRST, 1.0, _LONG.y))
            for sign in (1.0, -1.0)
        )
        if adjacency == "add_remove_one":
            here = Rows(there.X[~_FIRST], there.y[~_FIRST])
        return [Pair("all rows of a person", here, there)]

    return pairs


def _chunks(engine: str, adjacency: str) -> Run:
    """Return a run of `train` on a table with ids that is read in two chunks."""
    role = "public" if adjacency == "replace_label" else "private"

    def run(rows: Rows, stream: RandomStream) -> Floats:
        import pandas as pd

        from confide.schema import ChunkedTable, Schema

        kept = np.ones(_WHOSE.size, dtype=bool) if rows.y.size == _WHOSE.size else ~_FIRST
        person, half = _WHOSE[kept], int((kept & _EARLY).sum())
        cells = {"a": rows.X[:, 0], "b": rows.X[:, 1], "person": person, "y": rows.y}

        def parts(names: Any) -> Iterator[dict[str, Any]]:
            for part in (slice(None, half), slice(half, None)):
                yield {name: cells[name][part] for name in names}

        schema = Schema.of(_declared(role))
        told: Any = train(
            ChunkedTable(schema, parts), epsilon=1, delta=0.001, engine=engine, adjacency=adjacency,
            random_state=random_state(stream),
        )  # fmt: skip
        return np.ravel(told.model.predict(pd.DataFrame(ASKED[:, :2], columns=["a", "b"]))).astype(float)

    return run


_RELATIONS = ("replace_one", "add_remove_one")
FAMILIES: Families = {
    "training.closed_form.spectral": tuple(_closed_form()),
    "training.rounds": tuple(_rounds()),
    "training.rounds.several": tuple(_several_rounds()),
    "training.closed_form.classes": tuple(_classes()),
    "training.randomized_response": tuple(_responses()),
    "training.objective": tuple(_objective(False)),
    "training.objective.gaussian": tuple(_objective(True)),
    "training.semi_sensitive": tuple(_semi_sensitive()),
    "labels.WeightedLLPRegressor": tuple(_weighted()),
    "labels.rounding": tuple(_privatised()),
    **{
        f"training.{fit.__name__}.{adjacency}": tuple(
            _moments(fit, adjacency, lost=fit is not noisy_statistics)
        )
        for fit in (adassp, boosted_adassp, noisy_statistics)
        for adjacency in _RELATIONS
    },
    **STEPS,
}
