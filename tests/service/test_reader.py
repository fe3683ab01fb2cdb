"""Rows of plain cells are read a column at a time: the same bits as a cell at a time, for every schema."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from confide.errors import DataError, SchemaError
from confide.schema import Column, Schema
from confide.service.canonical import Reader, canonical

#: Levels that differ by case, by spelling, by blanks; that read as numbers, truths or as no value at all.
LEVELS = [
    "north", "North", "NORTH", "other", "Other", "OTHER", "NA", "na", "nan", "null", "None", "n/a", "NaT", "1", "1.0", "01",
    "1e3", "1e+03", "1000", "true", "TRUE", "False", "inf", "-inf", "a b", "é", "e\u0301", "\u212a", "k", "K", "'", "\u00a0x",
]  # fmt: skip
#: Cells at which arithmetic goes wrong if it does.
EDGES = [
    0.0,
    -0.0,
    5e-324,
    -5e-324,
    1e308,
    -1e308,
    1.7976931348623157e308,
    1.0,
    -1.0,
    0.1,
    1 / 3,
    2.0**53 + 2,
]


@st.composite
def numeric_columns(draw, name):
    transform = draw(st.sampled_from([None, "log", "log1p"]))
    least = {"log": 1e-3, "log1p": -0.999}.get(transform, -1e6)
    lower = draw(st.floats(least, 1e6))
    upper = draw(st.floats(lower, 2e6, exclude_min=True))
    role = draw(st.sampled_from(["public", "private"]))
    impute = draw(st.none() | st.floats(lower, upper))
    missing = draw(st.sampled_from([None, "impute", "reject"] if role == "public" else [None, "impute"]))
    return {"name": name, "role": role, "lower": lower, "upper": upper, "transform": transform,
            "impute": None if missing == "reject" else impute, "missing": missing}  # fmt: skip


@st.composite
def level_columns(draw, name):
    if draw(st.integers(0, 5)) == 0:
        return {"name": name, "role": "private", "kind": "boolean"}
    categories = draw(st.lists(st.sampled_from(LEVELS), min_size=1, max_size=6, unique=True))
    role = draw(st.sampled_from(["public", "private"]))
    missing = draw(st.sampled_from([None, "impute", "reject"] if role == "public" else [None, "impute"]))
    impute = None if missing == "reject" else draw(st.none() | st.sampled_from([*categories, "other"]))
    return {"name": name, "role": role, "categories": categories, "impute": impute, "missing": missing}


@st.composite
def readers(draw):
    kinds = draw(st.lists(st.sampled_from([numeric_columns, level_columns]), min_size=1, max_size=5))
    declared = [draw(kind(f"c{place}")) for place, kind in enumerate(kinds)]
    try:
        columns = [Column(**values) for values in declared]
    except SchemaError:  # two categories of one meaning, say
        assume(False)
    schema = Schema((*columns, Column("y", "label", categories=["a", "b"])), declared_by="x")
    return Reader(SimpleNamespace(schema=schema, facts=SimpleNamespace(columns=len(columns))), 50)


def cells(column):
    if not column.numeric:
        return st.sampled_from(column.levels)
    near = [
        column.lower,
        column.upper,
        np.nextafter(column.lower, -np.inf),
        np.nextafter(column.upper, np.inf),
    ]
    edges = st.sampled_from([*EDGES, *map(float, near)])
    wide = st.floats(allow_nan=False, allow_infinity=False)
    return edges | wide | st.floats(column.lower, column.upper)


@st.composite
def asked(draw):
    reader = draw(readers())
    count = draw(st.integers(1, 8))
    rows = [{column.name: draw(cells(column)) for column in reader._columns} for _ in range(count)]
    if draw(st.booleans()):
        rows = [dict(reversed(row.items())) for row in rows]
    return reader, rows


def told(read):
    """Return bits and shape, or the error that was raised."""
    try:
        matrix = read()
    except DataError as error:
        return str(error)
    return matrix.dtype.str, matrix.shape, matrix.tobytes()


@given(asked())
@settings(max_examples=400, deadline=None)
def test_plain_rows_have_the_bits_of_any_others(case):
    reader, rows = case
    assert not reader._of_dicts(rows)
    assert reader._plain(rows) is not None
    slow = told(lambda: canonical(reader._encoded(reader._built(rows), len(rows))))
    assert told(lambda: reader(rows)) == slow


@given(asked())
@settings(max_examples=150, deadline=None)
def test_a_row_has_the_same_bits_alone_as_among_others(case):
    """Else one question had two names, and would be paid twice."""
    reader, rows = case
    assert b"".join(reader([row]).tobytes() for row in rows) == reader(rows).tobytes()


@given(asked(), st.data())
@settings(max_examples=150, deadline=None)
def test_a_row_that_is_not_plain_changes_none_beside_it(case, data):
    reader, rows = case
    place = data.draw(st.integers(0, len(rows) - 1))
    column = data.draw(st.sampled_from(reader._columns))
    if column.numeric:
        strange = data.draw(st.integers(-(10**30), 10**30) | st.booleans())
    else:
        strange = data.draw(st.sampled_from(["nowhere", " north ", "", 7, 1.0, True]))
    mixed = [*rows[:place], {**rows[place], column.name: strange}, *rows[place + 1 :]]
    assert reader._plain(mixed) is None
    try:
        plain, other = reader(rows), reader(mixed)
    except DataError:
        assert any(each.missing == "reject" for each in reader._columns)
        return
    kept = np.arange(len(rows)) != place
    assert plain[kept].tobytes() == other[kept].tobytes()


@pytest.mark.parametrize(
    ("categories", "more", "level", "code"),
    [
        (["north", "NA"], {}, "NA", 1), (["north", "other"], {}, "other", 1), (["north"], {}, "other", 1),
        (["north", "North"], {}, "North", 1), (["1", "2"], {}, "2", 1), (["a", "b"], {"impute": "b"}, "other", 2),
        (["None", "b"], {"impute": "b"}, "None", 0), (["b", "nan"], {"missing": "reject", "role": "public"}, "nan", 1),
    ],
)  # fmt: skip
def test_levels_at_the_edge(categories, more, level, code):
    """A declared level is itself, whatever its spelling would mean elsewhere."""
    column = Column(**{"name": "c", "role": "private", "categories": categories, **more})
    schema = Schema((column, Column("y", "label", categories=["a", "b"])), declared_by="x")
    reader = Reader(SimpleNamespace(schema=schema, facts=SimpleNamespace(columns=1)), 5)
    rows = [{"c": level}, {"c": categories[0]}]
    assert reader._plain(rows)["c"].tolist() == [code, 0]
    assert reader._built(rows)["c"].tolist() == [code, 0]
    assert reader._plain(rows)["c"].dtype == reader._built(rows)["c"].dtype
