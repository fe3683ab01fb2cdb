"""Text in a public numeric column is told; of a secret one, nothing."""

import datetime
import warnings
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from confide.errors import DataError
from confide.schema import Table

TEXT = ["1", "2.5", "unknown", None]
CELLS = [
    (TEXT, True),
    (["1", "NA", "", " nan ", "null"], False),
    ([1.0, np.nan, np.inf], False),
    ([1, None, pd.NA], False),
    ([1, "seven"], True),
    ([datetime.date(2020, 1, 1), None], True),
    ([Decimal("1.5"), 2], False),
    ([[1, 2], 3.0], True),
    ([True, "false"], False),
    ([b"x", b"1"], True),
]


def table(cells, role="public", **changes):
    label = {"role": "label", "lower": 0, "upper": 1}
    column = {"role": role, "lower": 0, "upper": 9, "missing": "impute", **changes}
    frame = {"age": cells, "y": np.zeros(len(cells))}
    return Table.from_frame(frame, {"table": {"declared_by": "me"}, "columns": {"age": column, "y": label}})


def told(call):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return [str(warning.message) for warning in caught]


@pytest.mark.parametrize(("cells", "odd"), CELLS, ids=str)
def test_public_text_is_told(cells, odd):
    held = np.empty(len(cells), dtype=object)
    held[:] = cells
    said = told(lambda: table(held))
    assert len(said) == odd
    if odd:
        assert "'age'" in said[0]
        assert "reject" in said[0]
        assert "unknown" not in said[0]


@pytest.mark.parametrize(("cells", "_odd"), CELLS, ids=str)
def test_of_a_private_column_nothing_is_said(cells, _odd):
    held = np.empty(len(cells), dtype=object)
    held[:] = cells
    assert told(lambda: table(held, "private").private) == []


@pytest.mark.parametrize("form", [pd.Series, pa.array, pl.Series, lambda c: pa.array(c).dictionary_encode()])
def test_in_every_form(form):
    assert len(told(lambda: table(form(TEXT)))) == 1
    assert told(lambda: table(form(["1", "2", None]))) == []
    assert len(told(lambda: table(pa.array([datetime.datetime(2020, 1, 1), None])))) == 1


def test_files_and_chunks(tmp_path):
    pd.DataFrame({"age": TEXT * 50, "y": 0.5}).to_csv(tmp_path / "a.csv", index=False)
    spec = table(["1"]).schema
    assert len(told(lambda: Table.read(tmp_path / "a.csv", spec))) == 1
    chunked = Table.scan(tmp_path / "a.csv", spec, chunk_rows=40)
    with pytest.warns(UserWarning, match="no numbers"):
        list(chunked.public_chunks())


def test_categories_and_refusals_as_before():
    assert told(lambda: table(TEXT, lower=None, upper=None, categories=["1", "2"])) == []
    with pytest.raises(DataError, match="age"):
        table(TEXT, missing="reject")
