"""Row by row, bit for bit: nothing but a row itself decides its products, sums and tanh."""

from __future__ import annotations

import math

import numpy as np
import pytest

from confide.mechanisms import basic_tanh, row_products, row_squares, row_sums

LAYOUTS = {
    "rows": np.ascontiguousarray,
    "columns": np.asfortranarray,
    "every other": lambda A: np.repeat(np.repeat(A, 2, axis=0), 2, axis=1)[::2, ::2],
    "backwards": lambda A: np.ascontiguousarray(A[::-1, ::-1])[::-1, ::-1],
    "odd address": lambda A: np.frombuffer(b"\0" + A.tobytes(), np.uint8)[1:].view(np.float64).reshape(A.shape),
}  # fmt: skip


def in_order(row, weights):
    """The definition: products and sums of Python's floats, one after another."""
    total = 0.0
    for cell, weight in zip(row, weights, strict=True):
        total = total + cell * weight
    return total


@pytest.mark.parametrize(
    ("n", "k", "m"), [(1, 1, 1), (1, 9, 1), (7, 51, 1), (5, 13, 3), (300, 4, 64), (4100, 3, 1)]
)
def test_products_are_those_of_the_definition(n, k, m):
    rng = np.random.default_rng(n)
    rows, weights = rng.normal(size=(n, k)), rng.normal(size=(k, m))
    found = row_products(rows, weights)
    assert found.shape == (n, m)
    for i in (0, n // 2, n - 1):
        assert found[i].tolist() == [in_order(rows[i].tolist(), column) for column in weights.T.tolist()]
    np.testing.assert_array_equal(row_products(rows, weights[:, 0]), found[:, 0])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("n", [1, 2, 5, 4097])
def test_a_row_is_the_same_in_every_table(layout, n):
    rng = np.random.default_rng(0)
    rows, weights = rng.uniform(-1, 1, size=(n, 11)), rng.normal(size=(11, 5))
    held = LAYOUTS[layout](rows)
    np.testing.assert_array_equal(held, rows)
    apart = [rows[i : i + 1] for i in {0, n // 2, n - 1}]
    for of in (lambda A: row_products(A, weights), lambda A: row_products(A, weights[:, 0]), row_sums, row_squares,
               basic_tanh):  # fmt: skip
        whole = of(held)
        for row, i in zip(apart, {0, n // 2, n - 1}, strict=True):
            np.testing.assert_array_equal(whole[i], of(row)[0])
        np.testing.assert_array_equal(of(np.vstack([np.full((1, 11), math.nan), rows]))[1:], whole)


def test_odd_cells_stay_in_their_row():
    rows = np.array([[1.0, 2.0], [math.inf, -1.0], [1e308, 1e308], [math.nan, 0.0], [3.0, 4.0]])
    with np.errstate(all="ignore"):
        sums = row_products(rows, np.array([10.0, 1.0]))
        assert sums[[0, 4]].tolist() == [12.0, 34.0]
        assert np.isinf(sums[[1, 2]]).all()
        assert np.isnan(sums[3])
        assert row_squares(rows)[4] == 25.0
        assert row_sums(rows)[0] == 3.0


@pytest.mark.parametrize("shape", [(0, 3), (4, 0), (0, 0)])
def test_no_rows_and_no_columns(shape):
    rows = np.zeros(shape)
    assert row_products(rows, np.ones((shape[1], 2))).tolist() == [[0.0, 0.0]] * shape[0]
    assert row_squares(rows).tolist() == [0.0] * shape[0]


def test_single_precision_and_integers_are_read_as_float64():
    rows = np.array([[0.1, 0.2], [3.0, 4.0]], dtype=np.float32)
    np.testing.assert_array_equal(row_squares(rows), row_squares(rows.astype(np.float64)))
    assert row_sums(np.array([[1, 2]])).tolist() == [3.0]


def test_tanh_is_tanh():
    x = np.concatenate([np.linspace(-45, 45, 20_001), np.geomspace(1e-300, 1, 500), [0.0, 1e308, math.inf]])
    found = basic_tanh(x)
    assert max(abs(a - math.tanh(b)) for a, b in zip(found.tolist(), x.tolist(), strict=True)) <= 2.0**-50
    np.testing.assert_array_equal(basic_tanh(-x), -found)
    assert found[-1] == 1.0
    assert np.isnan(basic_tanh(math.nan))
