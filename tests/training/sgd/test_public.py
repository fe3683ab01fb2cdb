"""Public columns of every container: one row of the table in `confide.training.sgd.public`, one test."""

import datetime
import warnings
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy.sparse import csr_matrix
from sklearn.base import clone

from confide.errors import DataError
from confide.ledger import Ledger
from confide.training import PrivateRegressor, TableModel
from confide.training.engines.table_model import of_arrays
from confide.training.hybrid import fit_hybrid
from confide.training.sgd import fit
from confide.training.sgd.public import check_names, names_of, public_cells

from .helpers import short_request as request
from .helpers import short_secret as secret

N = 20
RNG = np.random.default_rng(0)
P, Y = RNG.normal(size=(N, 2)), RNG.uniform(-1, 1, N)
Z = RNG.uniform(-1, 1, (N, 2))
DATE = datetime.date(2020, 1, 1)
#: Names that arrays have as attributes, and that pandas hands out as columns where a frame's class has none.
ATTRIBUTES = ["dtype", "shape", "schema", "types", "get", "tocsr", "toarray", "detach", "cpu", "to_native"]
ATTRIBUTES += [
    "collect",
    "collect_schema",
    "column_names",
    "columns",
    "dtypes",
    "names",
    "type",
    "categories",
]
FITS = {"fit": fit, "fit_hybrid": fit_hybrid}
CONTAINERS = {
    "pandas": lambda X: pd.DataFrame(X, columns=["a", "b"]),
    "pandas without names": pd.DataFrame,
    "pandas' own numbers": lambda X: pd.DataFrame(X, columns=["a", "b"]).astype("Float64"),
    "pandas of objects": lambda X: pd.DataFrame(X, columns=["a", "b"], dtype=object),
    "pandas sparse": lambda X: pd.DataFrame(X, columns=["a", "b"]).astype(pd.SparseDtype(float, 0.0)),
    "polars": lambda X: pl.DataFrame(X, schema=["a", "b"]),
    "Arrow": lambda X: pa.table({"a": X[:, 0], "b": X[:, 1]}),
    "sparse": csr_matrix,
}


@pytest.fixture(autouse=True)
def no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.mark.parametrize("door", FITS)
@pytest.mark.parametrize("name", CONTAINERS)
def test_every_container_is_its_numbers(name, door):
    plain, made = FITS[door](P, None, Y, request()).model, CONTAINERS[name](P)
    found = FITS[door](made, None, Y, request()).model
    np.testing.assert_array_equal(found.parameters, plain.parameters)
    for model in (found, plain):
        np.testing.assert_array_equal(model.predict(made), plain.predict(P))
        np.testing.assert_array_equal(model.predict(P), plain.predict(P))


@pytest.mark.parametrize("name", CONTAINERS)
def test_probabilities_and_private_columns(name):
    asked = secret(classes=(0, 1))
    plain = fit(P, Z, Y > 0, asked).model
    found = fit(CONTAINERS[name](P), CONTAINERS[name](Z), Y > 0, asked).model
    for public, private in ((P, CONTAINERS[name](Z)), (CONTAINERS[name](P), Z)):
        np.testing.assert_array_equal(found.predict_proba(public, private), plain.predict_proba(P, Z))
        np.testing.assert_array_equal(found.predict(public, private), plain.predict(P, Z))


def test_a_frame_may_call_its_columns_as_arrays_call_their_attributes():
    wide = RNG.normal(size=(N, len(ATTRIBUTES)))
    bounds = [(-1, 1)] * len(ATTRIBUTES)
    frame = pd.DataFrame(wide, columns=ATTRIBUTES)
    np.testing.assert_array_equal(public_cells(frame), wide)
    model = fit(frame, None, Y, request()).model
    saved = TableModel.from_dict(of_arrays(model, len(ATTRIBUTES), 0, model.columns).to_dict())
    np.testing.assert_array_equal(saved.predict(frame[ATTRIBUTES[::-1]]), model.predict(frame))
    asked = request(adjacency="replace_private_part", private_bounds=bounds)
    plain = fit(wide, wide, Y, asked).model
    found = fit(frame, frame, Y, asked).model
    np.testing.assert_array_equal(found.parameters, plain.parameters)
    np.testing.assert_array_equal(found.predict(frame, frame), plain.predict(wide, wide))
    chosen = PrivateRegressor(
        1, 1e-4, target_bounds=(-1, 1), feature_bounds=(-1, 1), public=ATTRIBUTES[::2], engine="dpsgd",
        adjacency="replace_private_part", steps=2, random_state=0,
    )  # fmt: skip
    upper = frame.rename(columns=str.upper)
    named = clone(chosen).set_params(public=[name.upper() for name in ATTRIBUTES[::2]]).fit(upper, Y)
    np.testing.assert_array_equal(chosen.fit(frame, Y).predict(frame), named.predict(upper))


@pytest.mark.parametrize(
    ("X", "values"),
    [
        (pd.DataFrame({"a": ["1.5", " 2 "], "b": [1, 2]}), [[1.5, 1], [2, 2]]),
        (pl.DataFrame({"a": ["1.5", "2"], "b": [True, False]}), [[1.5, 1], [2, 0]]),
        (pa.table({"a": pa.array([Decimal("1.5"), None]), "b": [1, 2]}), [[1.5, 1], [np.nan, 2]]),
        (pd.DataFrame({"a": pd.array([1, None], dtype="Int64"), "b": [1, 2]}), [[1, 1], [np.nan, 2]]),
        (pd.DataFrame({"a": pd.Categorical([1, 2])}), [[1], [2]]),
        (pd.DataFrame(index=[0, 1]), [[], []]),
        (pl.DataFrame({"a": []}, schema={"a": pl.Float64}), np.zeros((0, 1))),
        (np.array([["1.5"]]), [[1.5]]),
        (np.array([[None, 1.0]], dtype=object), [[np.nan, 1]]),
    ],
    ids=str,
)
def test_cells(X, values):
    np.testing.assert_array_equal(public_cells(X), np.array(values, dtype=float))


@pytest.mark.parametrize(
    ("X", "fact"),
    [
        (pd.DataFrame({"a": ["word"] * N, "b": 1.0}), "text, in 'a'"),
        (pl.DataFrame({"a": ["word"] * N, "b": [1.0] * N}), "text, in 'a'"),
        (pa.table({"a": ["word"] * N, "b": [1.0] * N}), "text"),
        (np.full((N, 2), "word"), "text"),
        (pd.DataFrame({"a": pd.to_datetime([DATE] * N), "b": 1.0}), "dates"),
        (pl.DataFrame({"a": [DATE] * N, "b": [1.0] * N}), "dates"),
        (pa.table({"a": [DATE] * N, "b": [1.0] * N}), "dates"),
        (np.zeros((N, 2), dtype="datetime64[D]"), "dates"),
        (pd.DataFrame({"dtype": [1j] * N, "b": 1.0}), "Complex"),
        (P + 0j, "Complex"),
        (pd.DataFrame(P, columns=["a", "a"]), "'a' stands twice"),
    ],
    ids=str,
)
def test_what_holds_no_numbers_is_refused_before_the_charge(X, fact, tmp_path):
    ledger = Ledger.open(
        f"sqlite:///{tmp_path}/l.db", dataset="d", epsilon=9, delta=1e-2, adjacency="replace_label"
    )
    model = fit(P, None, Y, request()).model
    for door in FITS.values():
        with pytest.raises(ValueError, match=fact) as caught:
            door(X, None, Y, request(recorded=True, random_state=None), ledger=ledger)
        assert "word" not in str(caught.value)
    with pytest.raises(ValueError, match=fact):
        model.predict(X)
    assert ledger.total().epsilon == 0


def test_a_missing_cell_is_refused_by_a_fit():
    for made in (pd.DataFrame, lambda X: pl.DataFrame(X, nan_to_null=True), lambda X: X):
        cells = P.copy()
        cells[3, 1] = np.nan
        with pytest.raises(DataError, match="NaN or infinity"):
            fit(made(cells), None, Y, request())


@pytest.mark.parametrize(
    "X", [P.tolist(), {"a": P[:, 0]}, pl.DataFrame(P).lazy(), P[:, 0], pd.Series(Y), P[:, :1], None], ids=type
)
def test_what_has_no_shape_is_refused_by_a_model(X):
    model = fit(P, Z, Y, secret()).model
    for parts in ((X, Z), (P, X)):
        with pytest.raises(DataError, match=r"has 2 (public|private) columns"):
            model.predict(*parts)


def test_a_model_keeps_the_names_of_frames(tmp_path):
    public, private = pd.DataFrame(P, columns=["a", "b"]), pl.DataFrame(Z, schema=["c", "d"])
    found = fit(public, private, Y, secret(), trace=1)
    assert found.model.columns == found.trace[0].model.columns == ("a", "b", "c", "d")
    model = found.model
    with pytest.raises(DataError, match=r"Column 1 of X_public is 'b', and in the fit it was 'a'"):
        model.predict(public[["b", "a"]], private)
    with pytest.raises(DataError, match=r"Column 2 of X_private is 'e', and in the fit it was 'd'"):
        model.predict(public, private.rename({"d": "e"}))
    model.save(tmp_path / "m.json")
    rows = pd.concat([private.to_pandas(), public[["b", "a"]]], axis=1)
    np.testing.assert_array_equal(
        TableModel.load(tmp_path / "m.json").predict(rows), model.predict(public, private)
    )


def test_names_are_compared_where_both_have_some():
    frame = pd.DataFrame(P, columns=["a", "b"])
    assert names_of(frame, None) == names_of(pa.table(frame)) == ("a", "b")
    assert names_of(frame, P) == names_of(frame, frame) == names_of(pd.DataFrame(P)) == names_of(None) == ()
    estimator = PrivateRegressor(1, 1e-4, target_bounds=(-1, 1), engine="dpsgd", steps=2, random_state=0).fit(
        P, Y
    )
    model = estimator.result_.model  # of columns without names, which are called x0 and x1
    np.testing.assert_array_equal(model.predict(frame), model.predict(P))
    check_names(frame, (), "X_public")
    with pytest.raises(DataError, match="Column 1"):
        check_names(pd.DataFrame(P, columns=["x1", "x0"]), ("x0", "x1"), "X_public")
