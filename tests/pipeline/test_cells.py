"""One cell decides nothing: no exception, no message, no warning and no charge of any estimator."""

import warnings
from decimal import Decimal
from fractions import Fraction
from functools import partial

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import sparse

from confide.errors import DataError, ParameterError, RefusedError
from confide.ledger import Ledger
from confide.pipeline import SparseClassifier, SparseRegressor
from confide.selection import SubsetSelector
from confide.training import (
    LabelPrivatizer,
    PrivateLabelClassifier,
    PrivateLabelRegressor,
    PrivateRegressor,
    adassp,
    boosted_adassp,
    noisy_statistics,
)

N, P = 24, 3
CELLS = [
    "secret",
    "1.5",
    b"3",
    "",
    None,
    pd.NA,
    pd.NaT,
    np.nan,
    np.inf,
    True,
    10**400,
    Decimal("sNaN"),
    Decimal("1e999"),
    Fraction(1, 3),
    1 + 0j,
    np.complex128(1 + 2j),
    np.longdouble("1e4000"),
    np.float32(1e38),
    np.datetime64("2020-01-01"),
    np.timedelta64(3, "D"),
    pd.Timestamp("2020"),
    [1],
    [1, 2],
    (),
    {"a": 1},
    np.array([1.0]),
    np.array([1, 2]),
    np.array("x", dtype=object),
    np.ones((2, 2)),
    object(),
    "1" * 5000,
]
X = np.random.default_rng(0).uniform(-1, 1, size=(N, P))
Y = np.clip(X[:, 0], -1, 1)
SIDES = {"feature_bounds": (-1, 1)}
ASYMMETRIC = {"feature_bounds": (-1, 3), "target_bounds": (0, 2)}


def regressor(**options):
    return SparseRegressor(2, **{"epsilon": 1, "target_bounds": (-1, 1), **SIDES, **options})


def classifier(**options):
    return SparseClassifier(2, **{"epsilon": 1, "classes": (-1, 1), **SIDES, **options})


def selector(**options):
    return SubsetSelector(2, 1, **{"target_bounds": (-1, 1), **SIDES, **options})


NUMERIC = {
    "regressor": regressor,
    "centred": lambda **o: regressor(**ASYMMETRIC, **o),
    "statistics": lambda **o: regressor(coefficients="sufficient_statistics", **o),
    "selector": selector,
    "centred selector": lambda **o: selector(feature_bounds=(-1, 3), **o),
}
CLASSES = {
    "classifier": classifier,
    "words": lambda **o: classifier(classes=("no", "yes"), **o),
    "selector": lambda **o: SubsetSelector(2, 1, loss="hinge", classes=(-1, 1), **SIDES, **o),
}


def ledger(folder, name, adjacency="replace_one"):
    return Ledger.open(
        f"sqlite:///{folder}/{name}.db", dataset="x", epsilon=10_000, delta=0.5, adjacency=adjacency
    )


def outcome(call, book):
    """Return what a neighbour may not move: exception, its message, warnings and the charge."""
    before = book.total().epsilon
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            call()
            said = "done"
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
    return said, sorted(f"{w.category.__name__}: {w.message}" for w in caught), book.total().epsilon - before


def tables():
    """Yield a name and a function that makes a table with one cell."""

    def objects(cell):
        cells = X.astype(object)
        cells[3, 1] = cell
        return cells

    def rows(cell):
        cells = X.tolist()
        cells[3][1] = cell
        return cells

    def tuples(cell):
        return tuple(map(tuple, rows(cell)))

    def frame(cell):
        cells = pd.DataFrame(X, columns=list("abc")).astype(object)
        cells.iat[3, 1] = cell
        return cells

    def mixed(cell):
        cells = frame(cell)
        cells[["a", "c"]] = cells[["a", "c"]].astype(float)
        return cells

    yield from {"objects": objects, "rows": rows, "tuples": tuples, "frame": frame, "mixed": mixed}.items()


def labels(values):
    def objects(cell):
        cells = values.astype(object)
        cells[3] = cell
        return cells

    def listed(cell):
        cells = values.tolist()
        cells[3] = cell
        return cells

    def series(cell):
        cells = pd.Series(values.tolist(), dtype=object)
        cells.iat[3] = cell
        return cells

    yield from {"objects": objects, "list": listed, "series": series}.items()


@pytest.mark.parametrize("name", NUMERIC)
def test_cells_of_a_table(name, tmp_path):
    book = ledger(tmp_path, "x")
    for kind, make in tables():
        expected = outcome(lambda make=make: NUMERIC[name](ledger=book).fit(make(0.25), Y), book)
        assert expected == ("done", [], 1)
        for cell in CELLS[:: 1 if name in ("regressor", "selector") else 3]:
            told = outcome(lambda make=make, c=cell: NUMERIC[name](ledger=book).fit(make(c), Y), book)
            assert told == expected, (kind, repr(cell)[:40])


@pytest.mark.parametrize("name", NUMERIC)
def test_cells_of_a_numeric_label(name, tmp_path):
    book = ledger(tmp_path, "x")
    for kind, make in labels(Y):
        for cell in CELLS:
            told = outcome(lambda make=make, c=cell: NUMERIC[name](ledger=book).fit(X, make(c)), book)
            assert told == ("done", [], 1), (kind, repr(cell)[:40])


@pytest.mark.parametrize("name", CLASSES)
def test_cells_of_a_label_of_classes(name, tmp_path):
    book = ledger(tmp_path, "x")
    values = np.where(Y > 0, "yes", "no") if name == "words" else np.where(Y > 0, 1, -1)
    for kind, make in labels(values):
        for cell in CELLS:
            told = outcome(lambda make=make, c=cell: CLASSES[name](ledger=book).fit(X, make(c)), book)
            assert told == ("done", [], 1), (kind, repr(cell)[:40])


@pytest.mark.parametrize(
    "make",
    [
        lambda **o: PrivateRegressor(1, 1e-6, target_bounds=(-1, 1), **o),
        lambda **o: PrivateLabelRegressor(epsilon=1, target_bounds=(-1, 1), **o),
        lambda **o: PrivateLabelRegressor(None, "laplace", 1, target_bounds=(-1, 1), **o),
        lambda **o: PrivateLabelClassifier(epsilon=1, classes=(-1, 1), **o),
    ],
)
def test_cells_of_a_label_beside_public_columns(make, tmp_path):
    book = ledger(tmp_path, "x", "replace_label")
    numeric = not isinstance(make(), PrivateLabelClassifier)
    for kind, change in labels(Y if numeric else np.where(Y > 0, 1, -1)):
        for cell in CELLS[:: 1 if kind == "list" else 4]:
            told = outcome(lambda change=change, c=cell: make(ledger=book).fit(X, change(c)), book)
            assert told == ("done", [], 1), (kind, repr(cell)[:40])


@pytest.mark.parametrize("method", ["rr_on_bins", "rounding", "laplace", "gaussian", "randomized_response"])
def test_cells_of_a_label_that_is_made_private(method, tmp_path):
    book = ledger(tmp_path, "x", "replace_label")
    options = {"classes": (-1, 1)} if method == "randomized_response" else {"target_bounds": (-1, 1)}
    options |= {"delta": 1e-6} if method == "gaussian" else {}
    for kind, change in labels(np.where(Y > 0, 1, -1)):
        for cell in CELLS:
            one = LabelPrivatizer(method, 1, ledger=book, **options)
            told = outcome(lambda change=change, c=cell, one=one: one.fit_transform(change(c)), book)
            assert told == ("done", [], 1), (kind, repr(cell)[:40])


@pytest.mark.parametrize("fit", [
    lambda X, y: adassp(X, y, 1, 1e-6, "replace_one"),
    lambda X, y: boosted_adassp(X, y, 1, 1e-6, "replace_one"),
    lambda X, y: noisy_statistics(X, y, 1, "add_remove_one"),
])  # fmt: skip
def test_cells_of_least_squares(fit, tmp_path):
    book = ledger(tmp_path, "x")
    for cell in CELLS:
        for _, make in tables():
            assert outcome(lambda make=make, c=cell: fit(make(c), Y), book) == ("done", [], 0)
        for _, make in labels(Y):
            assert outcome(lambda make=make, c=cell: fit(X, make(c)), book) == ("done", [], 0)


@pytest.mark.parametrize("make", [regressor, selector, partial(PrivateRegressor, 1, 1e-6)])
def test_messages_hold_no_rows(make):
    """scikit-learn's messages on complex numbers and on wrong shapes print the array."""
    model = make(target_bounds=(-1, 1))
    secret = 0.123456789
    wide = np.full((N, P), secret)
    for bad in (
        wide + 0j,
        wide[0],
        wide[0].tolist(),
        [*wide[0].tolist(), [secret]],
        [[secret] * P] * (N - 1) + [[secret]],
        sparse.csr_matrix(wide + 0j),
        pd.DataFrame(wide + 0j),
        pd.DataFrame(wide).assign(c=secret + 1j),
        pd.DataFrame({"a": pd.Categorical([secret + 1j] * N)}),
        wide[None],
    ):
        with pytest.raises(ValueError, match=r"\w") as info:
            model.fit(bad, Y)
        assert "0.1234" not in str(info.value)
    for bad in (wide, wide[None], sparse.csr_matrix(wide), pd.DataFrame(wide), wide[0], wide[0].tolist()):
        with pytest.raises(ValueError, match=r"\w") as info:
            model.fit(X, bad)
        assert "0.1234" not in str(info.value)
    with pytest.raises(ValueError, match="Complex data not supported"):
        model.fit(wide + 0j, Y)
    with pytest.raises(ValueError, match="Reshape your data"):
        model.fit(wide[0], Y[:1])


def test_objects_are_read_after_the_charge(tmp_path):
    """A refused fit has looked at types and shapes alone."""

    class Watched(float):
        seen = 0

        def __float__(self):
            Watched.seen += 1
            return 0.5

        def __eq__(self, other):
            Watched.seen += 1
            return False

        __hash__ = float.__hash__

    cells, label = X.astype(object), Y.astype(object)
    cells[:, 0] = label[:] = Watched(0.5)
    book = Ledger.open(f"sqlite:///{tmp_path}/x.db", dataset="x", epsilon=0.5, adjacency="replace_one")
    given = {"feature_bounds": (-1, 1), "ledger": book}
    for model in (regressor(**given), classifier(**given), selector(**given)):
        for first, second in ((cells, label), (cells.tolist(), label.tolist())):
            with pytest.raises(RefusedError):
                model.fit(first, second)
    assert Watched.seen == 0


def test_types_are_declared(tmp_path):
    book = ledger(tmp_path, "x")
    for bad in (X.astype(str), X.astype("datetime64[D]")):
        for model in (regressor(ledger=book), selector(ledger=book)):
            with pytest.raises((DataError, ValueError)):
                model.fit(bad, Y)
    assert book.total().epsilon == 0


def test_long_doubles_warn_of_nothing(tmp_path):
    book = ledger(tmp_path, "x")
    wide = X.astype(np.longdouble)
    wide[3, 1] = np.longdouble("1e4000")
    for model in (regressor(ledger=book), selector(ledger=book), regressor(ledger=book, **ASYMMETRIC)):
        assert outcome(lambda model=model: model.fit(wide, Y), book) == ("done", [], 1)
        assert outcome(lambda model=model: model.fit(X, wide[:, 1]), book) == ("done", [], 1)


def test_lists_are_read_as_arrays():
    """The same numbers, the same model: of lists, tuples, objects, and columns of one-element rows."""
    given = {"random_state": 3, "epsilon": 8}
    told = regressor(**given).fit(X, Y)
    for first, second in (
        (X.tolist(), Y.tolist()),
        (tuple(map(tuple, X)), [[value] for value in Y]),
        (list(X), Y.astype(object)),
        (X.astype(object), pa.array(Y)),
        (pl.DataFrame(X), pl.Series(Y)),
    ):
        model = regressor(**given).fit(first, second)
        np.testing.assert_array_equal(model.coef_, told.coef_)
        np.testing.assert_allclose(model.predict(first), told.predict(X))
    words = np.where(Y > 0, "b", "a")
    given = {"random_state": 3, "epsilon": 8, "classes": ("a", "b")}
    told = classifier(**given).fit(X, words)
    for second in (words.tolist(), words.astype(object), [[word] for word in words], pl.Series(words)):
        np.testing.assert_array_equal(classifier(**given).fit(X, second).coef_, told.coef_)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"row_norm": True}, "row_norm"),
        ({"row_norm": "1"}, "row_norm"),
        ({"row_norm": np.nan}, "row_norm"),
        ({"coefficient_loss": ("huber", True)}, "coefficient_loss"),
        ({"coefficient_loss": ("huber", "x")}, "coefficient_loss"),
        ({"coefficient_loss": ("huber", 1e-320)}, "coefficient_loss"),
        ({"coefficient_loss": ("huber", 1e-8)}, "loss_shape"),
        ({"coefficient_loss": ("quantile", None)}, "coefficient_loss"),
        ({"coefficient_ridge": "1000"}, "coefficient_ridge"),
        ({"coefficient_ridge": True}, "coefficient_ridge"),
        ({"fit_intercept": np.nan}, "fit_intercept"),
        ({"fit_intercept": "no"}, "fit_intercept"),
        ({"feature_bounds": ("-1", "1")}, "feature_bounds"),
        ({"feature_bounds": (False, True)}, "feature_bounds"),
        ({"feature_bounds": ([False] * P, [True] * P)}, "feature_bounds"),
        ({"feature_bounds": (["-1"] * P, ["1"] * P)}, "feature_bounds"),
        ({"target_bounds": (False, True)}, "target_bounds"),
        ({"max_rows_per_person": True}, "rows of one unit"),
    ],
)
def test_values_of_another_type_are_refused(options, word):
    with pytest.raises(ParameterError, match=word):
        regressor(**options).fit(X, Y)


def test_numbers_of_numpy_are_numbers():
    model = regressor(
        row_norm=np.float32(1), max_rows_per_person=np.int64(2), fit_intercept=np.bool_(True), epsilon=2,
        coefficient_loss=("huber", np.float32(0.25)), feature_bounds=(np.int64(-1), np.float32(1)),
    )  # fmt: skip
    assert model.fit(X, Y).guarantee_.assumptions == ("at most 2 rows a person", "unrecorded")
    told = adassp(X, Y, 1, 1e-6, "replace_one", row_norm=np.float32(1), rows_per_unit=np.int64(2))
    assert told.guarantee.unit == "person"
