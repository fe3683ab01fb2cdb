"""One definition of a cell: scalar code, Arrow code and text agree."""

from __future__ import annotations

import datetime
import math
import sys
import time
import uuid
import warnings
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from confide.schema import Column, arrays, cells


def short(value: object) -> str:
    return type(value).__name__


NUMBERS = [
    (1, 1.0), ("1", 1.0), (" 1\t", 1.0), ("1.0", 1.0), (True, 1.0), ("TRUE", 1.0), ("false", 0.0), ("+2", 2.0),
    (".5", 0.5), ("5.", 5.0), ("1e3", 1000.0), ("1E-3", 0.001), (np.float32(0.5), 0.5), (np.int8(3), 3.0),
    (np.bool_(True), 1.0), (np.longdouble(2), 2.0), (np.float16(2), 2.0), (Decimal("0.1"), 0.1), (Fraction(1, 4), 0.25), (b"7", 7.0), ("1e400", math.inf),
    (10**400, math.inf), (-(10**400), -math.inf), ("inf", math.inf), ("-Infinity", -math.inf), (np.str_("4"), 4.0),
    (math.inf, math.inf), (Decimal("-Infinity"), -math.inf), (2**63, 2.0**63), ("9" * 50, float("9" * 50)),
]  # fmt: skip

NO_NUMBERS = [
    None, "", " ", "nan", "NaN", "NA", "abc", "1,5", "1_000", "0x10", "1e", "--1", "½", "１", math.nan, Decimal("nan"),
    Decimal("sNaN"), pd.NA, pd.NaT, np.datetime64("nat"), np.complex128(1), [1], {}, object(), 1j, datetime.date(2020, 1, 1), b"\xff", np.array([1.0]), "\ud800",
]  # fmt: skip


@pytest.mark.parametrize(("cell", "value"), NUMBERS, ids=short)
def test_numbers(cell: object, value: float) -> None:
    assert cells.number(cell) == value


@pytest.mark.parametrize("cell", NO_NUMBERS, ids=short)
def test_everything_else_is_missing_in_a_numeric_column(cell: object) -> None:
    assert math.isnan(cells.number(cell))


LABELS = [
    (1, "1"), (1.0, "1"), ("1", "1"), ("1.00", "1"), (" 1 ", "1"), (True, "1"), ("True", "1"), (False, "0"),
    ("01", "1"), (-0.0, "0"), ("-0", "0"), (0.1, "0.1"), ("0.10", "0.1"), ("1e+22", str(10**22)), (1e22, str(10**22)),
    ("12E3", "12E3"), ("1e3", "1e3"), (2**60 + 1, str(2**60 + 1)), (str(2**60 + 1), str(2**60 + 1)),
    (Decimal("2.50"), "2.5"), (Decimal(2**60 + 1), str(2**60 + 1)), (b"ab", "ab"), ("Nord", "Nord"), (np.int64(4), "4"), (np.datetime64("2020-01-02", "ns"), "2020-01-02"),
    (datetime.date(2020, 1, 2), "2020-01-02"), (datetime.datetime(2020, 1, 2), "2020-01-02"),
    (datetime.datetime(2020, 1, 2, 3), "2020-01-02 03:00:00"), (math.inf, "inf"), (uuid.UUID(int=5), str(uuid.UUID(int=5))),
]  # fmt: skip


@pytest.mark.parametrize(("cell", "text"), LABELS, ids=short)
def test_labels(cell: object, text: str) -> None:
    assert cells.label(cell) == (text, False)


@pytest.mark.parametrize(
    "cell", [None, "", "  ", "NA", "n/a", "null", "None", "nan", math.nan, pd.NA, pd.NaT]
)
def test_missing_labels(cell: object) -> None:
    assert cells.label(cell)[1]


@pytest.mark.parametrize(
    "cell", [[1], {}, object(), 1j, "\ud800", 10**5000, b"\xff\xfe", np.array([1, 2])], ids=short
)
def test_odd_cells_raise_nothing(cell: object) -> None:
    text, missing = cells.label(cell)
    assert isinstance(text, str)
    assert isinstance(missing, bool)


texts = st.one_of(
    st.text(max_size=8),
    st.floats().map(repr),
    st.integers().map(str),
    st.from_regex(r"\A[ +-]?[0-9]{0,3}\.?[0-9]{0,3}([eE][+-]?[0-9]{1,3})?[ ]?\Z"),
    st.sampled_from(
        ["inf", "-Inf", "TRUE", "false", "NA", "", "1e400", "-1e-400", "0x1p3", "1d5", "1f", "+.5e1"]
    ),
    st.none(),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(texts, max_size=20))
def test_arrow_text_and_python_cells_agree(column: list[str | None]) -> None:
    try:
        packed = pa.array(column, type=pa.string())
    except pa.ArrowException:  # half surrogates have no Arrow form
        return
    expected = np.array([cells.number(cell) for cell in column], dtype=float)
    for array in (
        packed,
        packed.dictionary_encode(),
        packed.cast(pa.binary()),
        packed.cast(pa.large_string()),
    ):
        assert np.array_equal(arrays.numbers(array), expected, equal_nan=True)
    declared = Column("c", "private", categories=["a", "1", "0.5", "nan"])
    wanted = arrays.codes(column, declared)
    for array in (
        packed,
        packed.dictionary_encode(),
        packed.cast(pa.binary()),
        pa.array(column, pa.string_view()),
    ):
        assert np.array_equal(arrays.codes(array, declared), wanted)


@settings(max_examples=200, deadline=None)
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_printed_float_is_the_float(value: float) -> None:
    assert cells.number(repr(value)) == value
    assert cells.label(repr(value)) == cells.label(value)
    assert arrays.numbers(pa.array([repr(value)]))[0] == value


TYPED = [
    pa.array([1, None, 3], pa.int8()), pa.array([1, None, 3], pa.uint64()), pa.array([1.0, None, 3.0], pa.float32()),
    pa.array([1, None, 3], pa.decimal128(9, 3)), pa.array(["1", None, "3.0"], pa.large_string()),
    pa.array([b"1", None, b"3"]), pa.array(["1", None, "3"]).dictionary_encode(), pa.array([1.0, math.nan, 3.0]),
    pa.array([1, None, 3], pa.decimal256(50, 0)), pa.array([1.0, None, 3.0], pa.float16()),
    pa.array(["1", None, "3"], pa.string_view()),
]  # fmt: skip


@pytest.mark.parametrize("array", TYPED, ids=lambda a: str(a.type)[:25])
def test_every_arrow_type_of_number(array: pa.Array) -> None:
    assert np.array_equal(arrays.numbers(array), [1.0, math.nan, 3.0], equal_nan=True)
    assert arrays.codes(array, Column("c", "private", categories=[3, 1])).tolist() == [1, arrays.MISSING, 0]
    keys, present = arrays.id_keys(array)
    assert present.tolist() == [True, False, True]
    assert keys[0] == arrays.id_keys(["1"])[0][0]


@pytest.mark.parametrize(
    "array",
    [
        pa.array([[1], None]),
        pa.array([{"a": 1}, None]),
        pa.array([datetime.datetime(2020, 1, 1), None]),
        pa.array([datetime.timedelta(1), None]),
        pa.nulls(2),
        pa.array([0, None], pa.timestamp("ns")),
        pa.array([b"\xff", None]),
        pa.array([1, None], pa.time64("ns")),
    ],
    ids=lambda a: str(a.type)[:25],
)
def test_types_without_numbers_raise_nothing(array: pa.Array) -> None:
    assert np.isnan(arrays.numbers(array)).all()
    assert arrays.codes(array, Column("c", "private", categories=["a"])).shape == (2,)
    assert arrays.id_keys(array)[1].shape == (2,)


def test_a_float32_is_widened_exactly() -> None:
    assert (
        arrays.numbers(arrays.arrow_array(np.array([0.1], dtype=np.float32)))[0]
        == float(np.float32(0.1))
        != 0.1
    )


def test_numpy_of_foreign_byte_order_and_masks() -> None:
    assert arrays.numbers(arrays.arrow_array(np.array([1, 2], dtype=">i4"))).tolist() == [1, 2]
    assert arrays.numbers(arrays.arrow_array(np.array([1, 2], dtype=">f8"))).tolist() == [1, 2]
    masked = arrays.numbers(arrays.arrow_array(np.ma.array([1.0, 2.0], mask=[True, False])))
    assert np.isnan(masked[0])
    assert masked[1] == 2


@pytest.mark.parametrize(
    "text", ["1" * 10**6 + "x", "." + "1" * 10**6 + "e", "1." + "0" * 10**6 + "x", "-" * 10**6]
)
def test_a_long_text_takes_linear_time(text: str) -> None:
    # A quadratic match of a million digits takes hours.
    start = time.perf_counter()
    assert math.isnan(cells.number(text))
    assert cells.label(text) == (text, False)
    assert time.perf_counter() - start < 20


TEXTS = {pa.string(): np.int32, pa.large_string(): np.int64}


@pytest.mark.parametrize("kind", TEXTS, ids=str)
def test_text_that_is_no_text_is_no_number(kind: pa.DataType) -> None:
    for raw in (b"1\xff0", b"12\xc3"):
        ends = np.array([0, 1, 2, len(raw)] if raw[0:2] == b"1\xff" else [0, 1, len(raw) - 1, len(raw)])
        buffers = [None, pa.py_buffer(ends.astype(TEXTS[kind]).tobytes()), pa.py_buffer(raw)]
        bad = pa.Array.from_buffers(kind, 3, buffers)
        found = arrays.numbers(bad)
        assert found[0] == 1.0
        assert np.isnan(found).sum() == 1
        column = Column("c", "private", categories=["1", "2"])
        assert (arrays.codes(bad, column) == arrays.MISSING).sum() == 1
        assert arrays.id_keys(bad)[1].sum() == 2


@pytest.mark.parametrize(("kind", "bits"), [("f2", 0x7C01), ("f4", 0x7F800001), ("f8", 0x7FF0000000000001)])
def test_a_signalling_nan_warns_of_nothing(kind: str, bits: int) -> None:
    values = np.ones(3, dtype=kind)
    values.view(f"u{values.itemsize}")[1] = bits
    wide = np.ones(3, dtype=np.longdouble)
    wide[1] = np.longdouble("1e4000")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for form in (
            values,
            list(values),
            pd.Series(values),
            {"a": values}["a"].byteswap().view(values.dtype.newbyteorder()),
        ):
            assert np.isnan(arrays.numbers(arrays.arrow_array(form))).tolist() == [False, True, False]
        for form in (wide, list(wide)):
            assert arrays.numbers(arrays.arrow_array(form)).tolist() == [1.0, math.inf, 1.0]


@pytest.mark.parametrize("most", [640, 4300, 0])
def test_the_limit_on_digits_decides_nothing(most: int) -> None:
    column = Column("c", "private", categories=["c0", "1" + "0" * 700])
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(most)
    try:
        for power in (1, 19, 639, 640, 700, 4299, 4300, 9000):
            digits = "1" + "0" * power
            for cell in (10**power, digits, f"+00{digits}", f" {digits}.000 ", digits.encode()):
                assert cells.label(cell) == (digits, False)
            for cell in (-(10**power), f"-{digits}", f"-0{digits}."):
                assert cells.label(cell) == (f"-{digits}", False)
            found = arrays.codes(arrays.arrow_array(["c0", digits, 10**power]), column)
            assert found.tolist() == [0, *[1 if power == 700 else column.other_code] * 2]
            keys, present = arrays.id_keys(arrays.arrow_array([digits, 10**power, f"-{digits}"]))
            assert keys[0] == keys[1] != keys[2]
            assert present.all()
        for cell in ("-0", "+000", "0" * 5000, "-" + "0" * 5000 + ".0"):
            assert cells.label(cell) == ("0", False)
    finally:
        sys.set_int_max_str_digits(before)
