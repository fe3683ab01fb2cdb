"""Encoded blocks: bounds, names, sparsity (pitfalls F36 to F41)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from confide.errors import SchemaError
from confide.schema import Column, Schema, Table
from confide.schema.encode import is_sparse


def one(column: Column, cells: list[object]) -> Table:
    return Table.from_frame({column.name: cells}, Schema((column,)))


@pytest.mark.parametrize(
    ("lower", "upper"), [(0, 1), (-1, 3), (-5, 0), (0, 7), (-3, 4), (1e-300, 3e-300), (1e15, 1e15 + 1)]
)
def test_asymmetric_bounds_use_both_ends(lower: float, upper: float) -> None:
    # F36 and F38: both ends count, and nothing is halved in integers.
    table = one(Column("a", "public", lower, upper), [lower, upper, lower / 2 + upper / 2])
    assert table.public.matrix.ravel() == pytest.approx([-1, 1, 0], abs=1e-12)
    label = one(Column("a", "label", lower, upper), [-np.inf, np.inf, None])
    assert label.label_bounds == (lower, upper)
    assert label.label[:2].tolist() == [lower, upper]
    worst = max(abs(lower), abs(upper)) ** 2
    assert (label.label**2).max() == worst


@settings(max_examples=300, deadline=None)
@given(
    st.floats(-1e300, 1e300),
    st.floats(1e-290, 1e300),
    st.sampled_from([None, "log", "log1p"]),
    st.lists(st.floats(), min_size=1, max_size=8),
)
def test_every_cell_lands_inside(
    lower: float, width: float, transform: str | None, cells: list[float]
) -> None:
    try:
        column = Column("a", "public", lower, lower + width, transform=transform)
    except SchemaError:  # the bounds round to one number, or suit no logarithm
        return
    lo, hi = column.bounds
    cleaned = one(column, cells).values("a")
    assert ((lo <= cleaned) & (cleaned <= hi)).all()
    matrix = one(column, cells).public.matrix
    assert (np.abs(matrix) <= 1).all()


def test_a_wild_row_moves_a_sum_by_the_declared_width() -> None:
    # F37: what is summed is the clipped copy.
    column = Column("a", "label", 0, 1)
    tame, wild = one(column, [0.5, 0.25]), one(column, [0.5, 1e6])
    assert abs(tame.label.sum() - wild.label.sum()) <= 1
    assert abs((tame.label**2).sum() - (wild.label**2).sum()) <= 1
    block = Column("a", "public", 0, 1)
    assert one(block, [0.5, 1e6]).gram().matrix[1, 1] <= 2


def test_transforms_and_their_inverse() -> None:
    log = Column("w", "label", 50, 20_000, transform="log")
    table = one(log, [50, 20_000, 1000, 1, None])
    assert table.label_bounds == (np.log(50), np.log(20_000))
    assert log.inverse(table.label) == pytest.approx([50, 20_000, 1000, 50, 1000])
    log1p = Column("w", "label", 0, 9, transform="log1p")
    assert log1p.inverse(one(log1p, [0, 9, 3]).label) == pytest.approx([0, 9, 3])
    assert Column("w", "label", 0, 9).inverse([1, 2]).tolist() == [1, 2]


@pytest.mark.parametrize("transform", ["log", "log1p"])
def test_a_cleaned_cell_does_not_depend_on_its_place(transform: str) -> None:
    # Vectorised logarithms with another tail would move the rows below a removed one by a bit.
    column = Column("w", "label", 0.5, 1e9, transform=transform)
    values = np.random.default_rng(0).lognormal(5, 5, 4099)
    whole = column.clean(values)
    for start in range(1, 20):
        assert np.array_equal(column.clean(values[start:]), whole[start:])
        assert np.array_equal(column.clean(values[: start + 1]), whole[: start + 1])
    assert [column.clean(values[i : i + 1])[0] for i in range(99)] == whole[:99].tolist()
    assert np.array_equal(column.clean(values[::3]), whole[::3])


def test_categorical_labels_are_codes() -> None:
    table = one(Column("c", "label", categories=["no", "yes"]), ["yes", "no", "?", None])
    assert table.label.tolist() == [1, 0, 2, 2]
    assert table.label_bounds == (0, 2)


def test_sparsity_is_decided_by_the_schema() -> None:
    wide = Column("z", "public", categories=range(200))
    narrow = Column("r", "public", categories=["u"])
    age = Column("age", "public", 0, 10)
    assert is_sparse([wide])
    assert is_sparse([wide, narrow, age])
    assert not is_sparse([narrow, age])
    assert not is_sparse([Column(f"x{i}", "public", 0, 1) for i in range(300)])
    assert not is_sparse([])
    schema = Schema((age, wide, narrow))
    dense = Schema((age, narrow))
    data = {"age": [0, 10, 5, None], "z": [0, "199", 3.0, "?"], "r": ["u", None, "u", "u"]}
    block = Table.from_frame(data, schema).public
    assert block.sparse
    assert block.matrix.shape == (4, 204)
    # One stored entry a column and row, explicit zeros included: the pattern tells nothing.
    assert block.matrix.nnz == 12
    rows = block.matrix.toarray()
    assert rows[:, 0].tolist() == [-1, 1, 0, 0]
    assert [block.names[i] for i in np.flatnonzero(rows[0])] == ["age", "z=0", "r=u"]
    assert [block.names[i] for i in np.flatnonzero(rows[3])] == ["z=other", "r=u"]
    assert np.array_equal(Table.from_frame(data, dense).public.matrix, rows[:, [0, 202, 203]])
    for matrix in (block.matrix.data, Table.from_frame(data, dense).public.matrix):
        with pytest.raises(ValueError, match="read-only"):
            matrix[0] = 5
    assert Table.from_frame({k: [] for k in data}, schema).public.matrix.shape == (0, 204)


def test_a_table_without_public_columns() -> None:
    table = one(Column("y", "label", 0, 1), [0, 1])
    assert table.public.matrix.shape == (2, 0)
    assert table.private.matrix.shape == (2, 0)
    assert table.gram().matrix.tolist() == [[2]]
    with pytest.raises(SchemaError, match="no label"):
        _ = one(Column("a", "public", 0, 1), [1]).label


def test_duplicate_and_collinear_columns_stay() -> None:
    names = [f"x{i}" for i in range(4)]
    schema = Schema(tuple(Column(name, "public", 0, 1) for name in names))
    matrix = Table.from_frame({name: [0, 1, 0.5] for name in names}, schema).public.matrix
    assert matrix.shape == (3, 4)
    assert (matrix == matrix[:, :1]).all()


def test_parts_of_a_table() -> None:
    schema = Schema((Column("a", "public", 0, 9), Column("y", "label", 0, 9)))
    table = Table.from_frame({"a": range(10), "y": range(10)}, schema)
    part = table.take(np.array([3, 1]))
    assert part.label.tolist() == [3, 1]
    assert part.n_rows == 2
    assert np.array_equal(part.public.matrix, table.public.matrix[[3, 1]])
    assert table.take(np.arange(10) % 2 == 0).label.tolist() == [0, 2, 4, 6, 8]
    assert table.values("a").tolist() == list(range(10))
    with pytest.raises(ValueError, match="read-only"):
        table.label[0] = 3
