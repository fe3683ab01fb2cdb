"""Arrays and lists without a schema: one row of the edge-case table, one test."""

import datetime
import math
import warnings
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import sparse
from sklearn.exceptions import DataConversionWarning
from sklearn.utils import check_array

from confide.errors import DataError, ParameterError
from confide.schema import loose
from confide.training.inputs import dense, secret_labels, shape_of, take_columns


@pytest.fixture(autouse=True)
def no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.mark.parametrize("cell", ["a", None, 1 + 0j, [1, 2], [[1]], np.ones(2), np.ones((2, 2)), {}, 10**400])
def test_one_cell_of_a_list_changes_neither_type_nor_shape(cell):
    for X in ([[1, cell], [3, 4]], ((1, cell), (3, 4)), [[1, cell]]):
        found = loose.matrix_of(X)
        assert (found.dtype, found.shape) == (np.dtype(object), (len(X), 2))
        assert found[0, 1] is cell
        told = loose.numbers(found)
        assert math.isnan(told[0, 1]) or cell == 10**400
        assert told[0, 0] == 1
    found = loose.vector_of([cell, 2])
    assert (found.dtype, found.shape) == (np.dtype(object), (2,))


def test_rows_that_make_no_matrix():
    for X in ([1, 2], [[1], [2, 3]], ["ab", "cd"], [[1, 2], "ab"], [np.ones((2, 2))]):
        with pytest.raises(ValueError, match="Reshape"):
            loose.check_table(loose.matrix_of(X))
    assert loose.matrix_of([]).shape == (0,)
    assert loose.matrix_of([[], []]).shape == (2, 0)
    kept = np.ones((2, 2))
    assert loose.matrix_of(kept) is kept
    assert loose.vector_of([[1], (2,), np.array([3])]).tolist() == [1, 2, 3]


def test_numbers_of_cells():
    cells = np.array(
        ["1.5", " 2 ", "x", None, pd.NA, True, 10**400, -(10**400), Decimal("sNaN")], dtype=object
    )
    np.testing.assert_array_equal(
        loose.numbers(cells), [1.5, 2, np.nan, np.nan, np.nan, 1, np.inf, -np.inf, np.nan]
    )
    wide = np.array([np.longdouble("1e4000"), np.longdouble("-1e4000")])
    assert loose.numbers(wide).tolist() == loose.real(wide).tolist() == [math.inf, -math.inf]
    for same in (
        np.ones(2),
        np.ones(2, dtype=np.float32),
        np.ones(2, dtype=bool),
        sparse.csr_matrix(np.ones((2, 2))),
    ):
        assert loose.real(same) is same


@pytest.mark.parametrize("bad", [
    np.full((2, 2), 0.123456 + 1j),
    sparse.csr_matrix(np.full((2, 2), 0.123456 + 1j)),
    pd.DataFrame({"a": [0.1], "b": [0.123456 + 1j]}),
    pd.DataFrame({"a": pd.Categorical([0.123456 + 1j])}),
    pd.Series([0.123456 + 1j]),
])  # fmt: skip
def test_complex_types_are_refused_without_their_cells(bad):
    with pytest.raises(ValueError, match="Complex data not supported") as info:
        loose.check_real(bad)
    assert "0.123" not in str(info.value)


@pytest.mark.parametrize("kind", [str, bytes, "datetime64[D]", "timedelta64[D]"])
def test_other_types_are_refused(kind):
    with pytest.raises(DataError, match="cells of type"):
        loose.check_numeric(np.zeros((2, 2), dtype=np.int64).astype(kind))
    loose.check_numeric(np.array([["secret", None]], dtype=object))


@pytest.mark.parametrize(("cell", "member", "same"), [
    (1, 1.0, True), (np.int64(1), 1, True), (True, 1, True), ("a", np.str_("a"), True), (Decimal(1), 1, True),
    ("1", 1, False), (pd.NA, 1, False), (pd.NA, pd.NA, False), (None, 1, False), (np.ones(2), 1, False),
    ([1], 1, False), (Decimal("sNaN"), 1, False), (math.nan, math.nan, False), (1 + 0j, 1, False),
    (pd.Timestamp("2020"), pd.Timestamp("2020"), True), (np.datetime64("2020"), 50, False), (object(), "a", False),
])  # fmt: skip
def test_equality_with_a_class(cell, member, same):
    assert loose.equal(cell, member) is same


def typed():

    words, moments = pd.Series(["a", "b"], dtype="str"), pd.Series(pd.to_datetime(["2020", "2021"]))
    kinds = {
        "numbers": [np.zeros(2), np.zeros(2, dtype=bool), pd.Series([1, None], dtype="Int64"),
                    pd.Series([1, 2]).astype("category"), pd.Series([1.5], dtype=pd.ArrowDtype(pa.float64())),
                    pl.Series([1]), pl.Series([True]), pa.array([1.5]), pa.chunked_array([[1]]),
                    pa.array([Decimal("1.5")]), pd.DataFrame({"y": [1.0]}), pl.DataFrame({"y": [1]}),
                    pa.table({"y": [1]}), pa.array([1, 1]).dictionary_encode(),
                    pd.Series(pd.arrays.SparseArray([0.0, 1.0]))],
        "text": [np.array(["a"]), np.array([b"a"]), words, words.astype("string"), words.astype("category"),
                 words.to_frame(), pl.Series(["a"]), pl.Series(["a"], dtype=pl.Categorical),
                 pl.Series(["a"], dtype=pl.Enum(["a"])), pa.array(["a"]), pa.array([b"a"]),
                 pa.array(["a"]).dictionary_encode(), pd.Series(["a"], dtype=pd.ArrowDtype(pa.string()))],
        "times": [moments, moments.to_numpy(), moments.dt.tz_localize("UTC"), moments.dt.to_period("D"),
                  moments - moments, pl.Series(moments.to_list()), pa.array(moments),
                  pl.Series([1]).cast(pl.Duration)],
        "complex": [np.ones(2, dtype=complex), pd.Series([1j])],
        "": [[1], ("a",), np.array(["a", 1], dtype=object), words.astype(object), pl.Series([object()]),
             pd.DataFrame({"a": [1], "b": [2]}), None, pa.nulls(2)],
    }  # fmt: skip
    return [(kind, y) for kind, several in kinds.items() for y in several]


@pytest.mark.parametrize(("kind", "y"), typed(), ids=lambda value: value if isinstance(value, str) else "")
def test_the_declared_type_of_labels(kind, y):
    assert loose.declared_kind(y) == kind
    if kind in ("", "numbers"):
        loose.check_number_labels(y)
    else:
        with pytest.raises(ValueError, match=f"labels are {kind}|Complex data"):
            loose.check_number_labels(y)
    day = datetime.date(2020, 1, 1)
    fits = {"numbers": [0, 1], "text": ["a", "b"], "times": [day, day + datetime.timedelta(1)]}
    for other, classes in fits.items():
        if kind in ("", other):
            loose.check_classes(y, classes)
        else:
            with pytest.raises(ValueError, match=r"no label can be either class|Complex data"):
                loose.check_classes(y, classes)


@pytest.mark.parametrize("values", [
    {0, 1}, frozenset("ab"), {0: 1, 1: 2}, "ab", b"ab", [0.5, math.nan], [0, None], [0, 0], [0], [[1], [2]], 5, None,
    np.zeros((2, 2)), iter([0, 1]), [np.ones(2), 1],
])  # fmt: skip
def test_classes_that_are_refused(values):
    with pytest.raises(ParameterError, match="'classes' parameter"):
        loose.declared_classes(values)


def test_classes_are_plain_and_in_order():
    for values in ([2, 1], (2, 1), range(2, 0, -1), np.array([2, 1]), pd.Series([2, 1]), [np.int64(2), 1]):
        found = loose.declared_classes(values)
        assert found == (2, 1)
        assert {type(value) for value in found} == {int}


@pytest.mark.parametrize(("X", "fact"), [
    ({"a": [1]}, "dict of columns"), ([{"a": 1}], "list of dicts"), (pl.DataFrame({"a": [1]}).lazy(), "lazy"),
    (pd.DataFrame([[1, 2]], columns=["a", "a"]), "'a' stands twice"), (pd.DataFrame(index=[0]), "no column"),
    (pl.DataFrame(), "no column"), (pa.table([[1], [2]], names=["b", "b"]), "'b' stands twice"),
], ids=str)  # fmt: skip
def test_features_that_no_library_would_explain(X, fact):
    with pytest.raises(DataError, match=fact):
        loose.check_features(X)
    for fine in (
        np.zeros((2, 2)),
        pd.DataFrame({"a": [1]}),
        pl.DataFrame({"a": [1]}),
        pa.table({"a": [1]}),
        [[1]],
    ):
        loose.check_features(fine)


def test_text_among_features_says_what_to_do():
    frame = pd.DataFrame({"a": ["secret"], "b": [1]})
    with pytest.raises(DataError, match="text, in 'a'") as info, loose.numeric_cells(frame):
        check_array(frame, dtype=float)
    assert "secret" not in str(info.value)
    with pytest.raises(ValueError, match="another"), loose.numeric_cells(frame):
        raise ValueError("another")


#: What arrays, series, types and lazy frames have as attributes; most of it pandas' own classes have not.
NAMES = [
    "dtype",
    "schema",
    "types",
    "tocsr",
    "toarray",
    "to_native",
    "collect",
    "collect_schema",
    "column_names",
]
NAMES += ["columns", "dtypes", "shape", "type", "get", "device", "names", "detach", "categories"]
TIMES = pd.to_datetime(["2020-01-01"] * 2)


@pytest.mark.parametrize("name", NAMES)
def test_a_column_is_no_attribute_of_its_frame(name):
    frame, plain = pd.DataFrame({name: [1.0, 1.0], "b": 2.0}), pd.DataFrame({"a": [1.0, 1.0], "b": 2.0})
    assert type(loose.attribute(frame, name)) is type(getattr(plain, name, None))
    assert loose.has(frame, name) == hasattr(plain, name)
    loose.check_features(frame)
    loose.check_table(frame)
    with pytest.raises(ValueError, match="Complex"):
        loose.check_features(frame.assign(b=1j))
    assert loose.declared_kind(frame[[name]]) == "numbers"
    assert loose.declared_kind(pd.DataFrame({name: TIMES})) == "times"
    with pytest.raises(DataError, match="labels are times"):
        loose.check_number_labels(pd.DataFrame({name: TIMES}))


def test_no_column_of_a_frame_makes_it_lazy_or_names_others():
    loose.check_features(pd.DataFrame({"collect": [1], "collect_schema": [1]}))
    with pytest.raises(DataError, match="'a' stands twice") as caught:
        loose.check_features(pd.DataFrame([[77, 1, 2], [77, 1, 2]], columns=["column_names", "a", "a"]))
    assert "77" not in str(caught.value)


def test_attributes_of_arrays_and_of_objects():
    class Labelled:
        columns = ("a",)

        def __init__(self):
            self.dtype = np.dtype(float)

    assert loose.attribute(Labelled(), "dtype") == np.dtype(float)
    assert loose.attribute(np.zeros(2), "dtype") == np.dtype(float)
    assert loose.attribute([1], "dtype", "none") == loose.attribute(pd.DataFrame(), "dtype", "none") == "none"
    assert loose.has(sparse.lil_matrix((2, 2)), "tocsr")
    assert loose.attribute(pl.Series([1]), "dtype") == pl.Int64
    assert loose.attribute(pa.table({"a": [1]}), "column_names") == ["a"]


@pytest.mark.parametrize("name", NAMES)
def test_the_index_of_labels_is_no_attribute_of_them(name):
    labels = pd.Series([0.5, 1.0], index=[name, "b"])
    assert loose.declared_kind(labels) == "numbers"
    np.testing.assert_array_equal(secret_labels(labels, 2)(), [0.5, 1.0])
    with pytest.raises(DataError, match="labels are times"):
        loose.check_number_labels(pd.Series(TIMES, index=[name, "b"]))
    frame = pd.DataFrame({name: [0.5, 1.0]})
    with pytest.warns(DataConversionWarning):
        np.testing.assert_array_equal(secret_labels(frame, 2)(), [0.5, 1.0])
    wide = pd.DataFrame({name: [0.5, 1.0], "b": 1.0})
    assert shape_of(wide) == (2, 2)
    assert dense(wide).shape == (2, 2)
    assert list(take_columns(wide, np.array([True, False])).columns) == [name]
