"""Cells of a table before intervals: one by one, behind a map or not, and never in an exception."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from confide.errors import DataError
from confide.prediction.intervals import BallTraining, IntervalTraining
from confide.prediction.intervals.hybrid import HybridTraining
from confide.prediction.intervals.network import apply_map, class_codes, matrix

from .test_certificate import STEP, blobs  # isort: skip

DAYS = np.datetime64("2020-01-01") + np.arange(8)


@pytest.mark.parametrize("odd", ["x", None, 2 + 1j, [1, 2], 10**400, np.longdouble("1e4000"), np.datetime64("NaT"), object()],
                         ids=lambda odd: type(odd).__name__)  # fmt: skip
@pytest.mark.parametrize(
    "others", [DAYS, DAYS - DAYS[0], np.arange(8.0)], ids=["days", "durations", "numbers"]
)
def test_one_cell_says_nothing_about_the_others(odd, others):
    """Audited: one text turned the dates of all other rows from numbers into missing cells."""
    rows = [[cell, 1] for cell in others]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plain = matrix(rows, 2)
        changed = matrix([*rows[:3], [odd, 1], *rows[4:]], 2)
    kept = np.arange(8) != 3
    np.testing.assert_array_equal(plain[kept], changed[kept])
    assert not np.isfinite(changed[3, 0])
    codes = class_codes([0, 1, 1, 0], 2)
    np.testing.assert_array_equal(class_codes([0, 1, odd, 0], 2)[[0, 1, 3]], codes[[0, 1, 3]])
    assert class_codes([0, 1, odd, 0], 2)[2] == -1
    np.testing.assert_array_equal(class_codes([[0, 1], [1, 0]], 2), [-1, -1])


@pytest.mark.parametrize("rows", [DAYS.reshape(4, 2), (DAYS - DAYS[0]).reshape(4, 2), np.ones((4, 2)) * 1j, np.full((4, 2), "1")],
                         ids=lambda rows: str(rows.dtype))  # fmt: skip
def test_arrays_are_refused_by_their_type(rows):
    for read in (lambda: matrix(rows, 2), lambda: apply_map(np.abs, rows, 2)):
        with pytest.raises(DataError, match="type"):
            read()


def test_a_map_hides_what_rows_do_to_it():
    def picky(rows):
        if (rows[:, 0] == 0.5).any():
            raise ValueError(f"cell {rows[0, 0]}")
        with np.errstate(over="warn"):
            np.exp(rows * 1000)
        return rows + 1

    rows = np.random.default_rng(0).uniform(-1, 1, (300, 2))
    odd = rows.astype(object)
    odd[7, 0], odd[8, 0], odd[9, 1] = 0.5, "SECRET", 10**400
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plain, told = apply_map(picky, rows, 2), apply_map(picky, odd, 2)
    np.testing.assert_array_equal(plain, rows + 1)
    same = ~np.isin(np.arange(300), (7, 8, 9))
    np.testing.assert_array_equal(told[same], plain[same])
    assert np.isnan(told[7]).all()
    assert np.isnan(told[8, 0])
    for shape in ("wide", "raises"):
        with pytest.raises((DataError, ZeroDivisionError), match=r"gives|zero"):  # whatever the table is
            apply_map((lambda rows: rows[:, :1]) if shape == "wide" else (lambda rows: 1 / 0), rows, 2)


@pytest.mark.parametrize(
    "make", [IntervalTraining, BallTraining, HybridTraining], ids=lambda make: make.__name__
)
@pytest.mark.parametrize("odd", ["SECRET", 10**400, 1j, np.longdouble("1e4000"), [1, 2]], ids=str)
def test_training_behind_a_map_takes_any_cell(make, odd):
    X, y = blobs()
    step = {**STEP, "clip_by": "norm"}
    features = {"features": np.tanh}
    certificate = {IntervalTraining: lambda: IntervalTraining([4, 2], STEP, 5, **features),
                   BallTraining: lambda: BallTraining(4, {**step, "clip": 0.5}, 2.0, **features),
                   HybridTraining: lambda: HybridTraining((4, 3, 1), step, 3, **features)}[make]()  # fmt: skip
    rows, labels = X.tolist(), y.tolist()
    rows[3][1], labels[4] = odd, odd
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = certificate.fit(rows, labels)
    near = certificate.fit(X, y).stability(X)
    assert np.abs(near[1] - model.stability(X)[1]).max() <= 2  # a cell and a label: two changes
