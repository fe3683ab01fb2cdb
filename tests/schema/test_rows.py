"""Rows that a released model is asked about: by name, in order, encoded by name, and what is told of them."""

import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from confide.errors import DataError
from confide.schema import Encoded, Schema, Table
from confide.schema.rows import read_rows, table_of

COLUMNS = {
    "age": {"role": "public", "lower": 0, "upper": 100},
    "region": {"role": "public", "categories": ["north", "south"]},
    "income": {"role": "private", "lower": -5, "upper": 5},
}
FEATURES = {"table": {"name": "people"}, "columns": COLUMNS}
NAMES = ("age", "region=north", "region=south", "region=other", "income")
RAW = pd.DataFrame({"age": [20.0, 90.0], "region": ["south", "north"], "income": [1.0, -9.0]})


def values(rows):
    return [rows.values(name).tolist() for name in COLUMNS]


def same_rows():
    polars = pytest.importorskip("polars")
    return {
        "shuffled frame": RAW[["income", "age", "region"]].assign(more=1),
        "array of objects": RAW.to_numpy(),
        "lists": RAW.to_numpy().tolist(),
        "dict of columns": RAW.to_dict("list"),
        "records": RAW.to_dict("records"),
        "Arrow": pa.Table.from_pandas(RAW),
        "polars": polars.DataFrame(RAW.to_dict("list")),
        "lazy polars": polars.DataFrame(RAW.to_dict("list")).lazy(),
        "structured": RAW.to_records(index=False),
    }


@pytest.mark.parametrize("kind", list(same_rows()))
def test_raw_rows_of_any_kind_are_the_same_table(kind):
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        table = table_of(same_rows()[kind], FEATURES, NAMES)
    assert values(table) == values(Table.from_frame(RAW, FEATURES)) == [[20, 90], [1, 0], [1, -5]]


def test_an_array_is_raw_and_in_the_order_of_the_schema():
    numbers = {"columns": {name: c for name, c in COLUMNS.items() if name != "region"}}
    table = table_of(np.array([[20.0, 1.0], [90.0, -9.0]]), numbers, ("age", "income"))
    assert table.values("age").tolist() == [20, 90]
    for shape in ((2, 5), (3,), (2, 2)):
        with pytest.raises(DataError, match="3 raw columns: age, region, income"):
            table_of(np.zeros(shape), FEATURES, NAMES)


def test_encoded_columns_have_a_name_of_their_own():
    table = Table.from_frame(RAW, FEATURES)
    np.testing.assert_array_equal(table_of(table.public, FEATURES, NAMES[:4]), table.public.matrix)
    swapped = table_of(table.public, FEATURES, ("region=south", "age"))
    np.testing.assert_array_equal(swapped, table.public.matrix[:, [2, 0]])
    with pytest.raises(DataError, match="lack 'income'"):
        table_of(table.public, FEATURES, NAMES)
    np.testing.assert_array_equal(table_of(Encoded(np.ones((1, 1)), ("x0",)), None, ("x0",)), np.ones((1, 1)))


def test_a_model_on_arrays_takes_frames_by_name(tmp_path):
    frame = pd.DataFrame({"b": [1, 2], "a": ["3", "4"], "c": [0, 0]})
    for rows in (frame, frame.to_dict("records"), frame.to_dict("list"), pa.Table.from_pandas(frame)):
        np.testing.assert_array_equal(table_of(rows, None, ("a", "b")), [[3, 1], [4, 2]])
    array = np.zeros((2, 2))
    assert table_of(array, None, ("a", "b")) is array
    with pytest.raises(DataError, match="no column 'z'"):
        table_of(frame, None, ("a", "z"))
    with pytest.raises(DataError, match="'a': 1 of 2"):
        table_of(frame.assign(a=["3", "x"]), None, ("a", "b"))
    with pytest.raises(DataError, match="no schema"):
        table_of(tmp_path / "rows.csv", None, ("a", "b"))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"age": ["abc", "7"]}, "'age': 1 of 2 cells are no numbers"),
        ({"age": pd.to_datetime(["2020-01-01", "2021-01-01"])}, "'age': 2 of 2 cells are no numbers"),
        ({"age": [None, None]}, "'age': all 2 cells missing"),
        ({"region": ["west", "north"]}, "'region': 1 of 2 cells are not a declared category"),
        ({"region": [3, 3]}, "'region': 2 of 2 cells are not a declared category"),
        ({"region": [None, None]}, "'region': all 2 cells missing"),
        ({"income": ["much", "1"]}, "'income': 1 of 2 cells are no numbers"),
    ],
    ids=str,
)
def test_cells_that_do_not_fit_are_counted(tmp_path, change, told):
    rows = RAW.assign(**change)
    with pytest.warns(UserWarning, match=told) as caught:
        table_of(rows, FEATURES, NAMES)
    assert len(caught) == 1
    rows.to_csv(tmp_path / "rows.csv", index=False)
    with pytest.warns(UserWarning, match=told):
        read_rows(tmp_path / "rows.csv", Schema.from_dict(FEATURES))
    chunked = table_of(tmp_path / "rows.csv", FEATURES, NAMES)
    with pytest.warns(UserWarning, match=told) as caught:
        assert len(list(chunked.chunks())) == 1
    assert len(caught) == 1


@pytest.mark.parametrize(
    "change", [{"age": [None, 5]}, {"region": ["other", None]}, {"region": [True, "north"]}], ids=str
)
def test_a_missing_cell_follows_the_policy_in_silence(change):
    categories = {**COLUMNS, "region": {"role": "public", "categories": [True, "north", "south"]}}
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        table_of(RAW.assign(**change), {"columns": categories}, NAMES)
