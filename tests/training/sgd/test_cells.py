"""What a private cell holds decides no exception and no charge, whatever it came in; types and shapes do, before it."""

import datetime
import warnings
from decimal import Decimal
from functools import partial

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy.sparse import csr_matrix

from confide.errors import DataError
from confide.ledger import Ledger
from confide.schema.loose import vector_of
from confide.training.hybrid import fit_hybrid
from confide.training.sgd import fit
from confide.training.sgd.cells import labels_of, numbers, weights_of

from .helpers import short_request as request
from .helpers import short_secret as secret

N = 20
RNG = np.random.default_rng(0)
P, Y = RNG.normal(size=(N, 2)), RNG.uniform(-1, 1, N)
Z, WEIGHTS = RNG.uniform(-1, 1, (N, 2)), RNG.uniform(0, 2, N).tolist()
#: Cell -> the number that stands in it: at the middle, or beyond an end.
CELLS = {
    "text": ("HIV+", np.nan),
    "number as text": (" 0.25 ", 0.25),
    "decimal": (Decimal("0.25"), 0.25),
    "signalling NaN": (Decimal("sNaN"), np.nan),
    "too large": (10**400, np.inf),
    "none": (None, np.nan),
    "NA": (pd.NA, np.nan),
    "list": ([1, 2], np.nan),
    "array": (np.zeros(2), np.nan),
    "complex": (1j, np.nan),
    "date": (datetime.date(2020, 1, 1), np.nan),
}
FITS = {"fit": fit, "fit_hybrid": fit_hybrid}


@pytest.fixture
def ledger(tmp_path):
    return Ledger.open(
        f"sqlite:///{tmp_path}/l.db", dataset="d", epsilon=9, delta=1e-2, adjacency="replace_private_part"
    )


def objects(cell):
    made = Z.astype(object)
    made[3, 0] = cell
    return made


def listed(values, cell):
    return [*values[:3], cell, *values[4:]]


def parameters(found):
    return found.model.parameters


CONTAINERS = {
    "array": lambda made: made,
    "Fortran array": np.asfortranarray,
    "pandas": lambda made: pd.DataFrame(made, columns=["a", "b"], dtype=object),
    "polars": lambda made: pl.DataFrame(
        [pl.Series(name, list(made[:, j]), dtype=pl.Object) for j, name in enumerate("ab")]
    ),
}


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("door", FITS)
def test_no_private_cell_decides_an_exception(door, container):
    make, told = CONTAINERS[container], []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for cell, number in CELLS.values():
            plain = Z.copy()
            plain[3, 0] = number
            found = FITS[door](P, make(objects(cell)), Y, secret())
            np.testing.assert_array_equal(parameters(found), parameters(FITS[door](P, plain, Y, secret())))
            told.append(str(found.guarantee))
    assert len(set(told)) == 1


@pytest.mark.parametrize("door", FITS)
def test_a_cell_decides_no_charge(door, ledger):
    asked = secret(recorded=True, random_state=None)
    for cell in (0.5, "HIV+", 10**400, [1, 2]):
        before = ledger.total().epsilon
        found = FITS[door](P, objects(cell), listed(Y.tolist(), cell), asked, ledger=ledger)
        assert ledger.total().epsilon == before + 1
        assert found.entry is not None


@pytest.mark.parametrize(
    "make", [list, tuple, vector_of, partial(pd.Series, dtype=object), partial(pl.Series, dtype=pl.Object)]
)
def test_no_weight_decides_an_exception(make):
    asked = request(weight_cap=2.0, clip=1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for cell, number in CELLS.values():
            found = fit(P, None, Y, asked, sample_weight=make(listed(WEIGHTS, cell)))
            plain = fit(P, None, Y, asked, sample_weight=np.array(listed(WEIGHTS, number)))
            np.testing.assert_array_equal(parameters(found), parameters(plain))


def test_weights_are_cut_and_missing_ones_are_zero():
    found = weights_of([-1, 3.0, "x", None, np.inf, -np.inf, 10**400, [0.5], "0.5"], 9, 2.0)
    np.testing.assert_array_equal(found, [0, 2, 0, 0, 2, 0, 2, 0.5, 0.5])
    column = np.array([[0.5], [1.0]])
    for given in (column, pd.DataFrame(column), pl.Series([0.5, 1.0]), pa.array([0.5, 1.0]), column.tolist()):
        np.testing.assert_array_equal(weights_of(given, 2, 2.0), [0.5, 1.0])


@pytest.mark.parametrize("make", [list, tuple, pd.Series, pl.Series, pa.array])
@pytest.mark.parametrize("given", [request(classes=(0, 1)), request()], ids=["classes", "numbers"])
def test_the_shape_of_labels_is_not_that_of_their_cells(make, given):
    """Neighbours by one label: all are pairs, or one is a number."""
    told = set()
    for last in ([1, 2], 1):
        cells = [*([1, 2] for _ in range(N - 1)), last]
        cells = [tuple(cell) if cell != 1 else cell for cell in cells] if make in (list, tuple) else cells
        if make in (pl.Series, pa.array) and last == 1:
            cells[-1] = None  # of a type that is declared as lists
        told.add(str(fit(P, None, make(cells), given).guarantee))
    assert len(told) == 1


def test_hybrid_reads_labels_cell_by_cell():
    pairs = [(1, 2)] * N
    middle = fit_hybrid(P, None, np.full(N, np.nan), request())
    np.testing.assert_array_equal(parameters(fit_hybrid(P, None, pairs, request())), parameters(middle))
    odd, plain = listed(pairs, 1), listed([np.nan] * N, 1.0)
    np.testing.assert_array_equal(
        parameters(fit_hybrid(P, None, odd, request())), parameters(fit_hybrid(P, None, plain, request()))
    )


def test_classes_of_lists():
    asked = request(classes=("no", "yes"))
    hostile = type("Hostile", (), {"__hash__": lambda _: 1 // 0})()
    cells = ["yes", ["yes"], ["yes", "no"], ("yes", "yes"), None, hostile, 1.0, "no"]
    np.testing.assert_array_equal(labels_of(cells, 8, asked), [1, 1, 0, 0, 0, 0, 0, 0])
    column = np.array([["no"], ["yes"]])
    for given in (column, column.tolist(), pd.DataFrame(column), dict.fromkeys(["no", "yes"]).keys()):
        np.testing.assert_array_equal(labels_of(given, 2, asked), [0, 1])


TYPES = {
    "text": Z.astype(str),
    "dates": np.zeros((N, 2), dtype="datetime64[D]"),
    "complex": Z.astype(complex),
    "sparse objects": csr_matrix(Z),
    "frame of dates": pd.DataFrame({"a": pd.to_datetime(["2020-01-01"] * N), "b": 1.0}),
    "polars' dates": pl.DataFrame({"a": [datetime.date(2020, 1, 1)] * N, "b": [1.0] * N}),
    "Arrow's dates": pa.table({"a": [datetime.date(2020, 1, 1)] * N, "b": [1.0] * N}),
    "fewer rows": Z[:-1],
}
TYPES["sparse objects"].data = TYPES["sparse objects"].data.astype(object)


@pytest.mark.parametrize("door", FITS)
@pytest.mark.parametrize("name", TYPES)
def test_types_of_private_columns_are_refused_before_the_charge(name, door, ledger):
    with pytest.raises(ValueError, match=r"cells of type|Complex|dates|one row"):
        FITS[door](P, TYPES[name], Y, secret(recorded=True), ledger=ledger)
    assert ledger.total().epsilon == 0


@pytest.mark.parametrize(
    "weights",
    [
        np.array(["1"] * N), pd.Series(["1"] * N, dtype="string"), np.ones(N, dtype=complex), np.ones(N - 1), 1.0,
        np.zeros(N, dtype="datetime64[D]"), "1" * N, set(range(N)), np.ones((N, 2)), csr_matrix(np.ones((N, 1))),
    ],
)  # fmt: skip
def test_types_and_shapes_of_weights_are_refused_before_the_charge(weights, ledger):
    asked = secret(recorded=True, weight_cap=2.0, clip=1.0)
    with pytest.raises(ValueError, match=r"weight") as caught:
        fit(P, Z, Y, asked, sample_weight=weights, ledger=ledger)
    assert str(N) not in str(caught.value)
    assert ledger.total().epsilon == 0


@pytest.mark.parametrize("classes", [None, (0, 1)])
@pytest.mark.parametrize("y", [Y[:-1], np.ones((N, 2)), None, csr_matrix(np.ones((N, 1))), "1" * N])
def test_shapes_of_labels_are_refused_before_the_charge(y, classes, ledger):
    asked = secret(recorded=True, **({} if classes is None else {"classes": classes}))
    with pytest.raises(DataError, match="label"):
        fit(P, Z, y, asked, ledger=ledger)
    assert ledger.total().epsilon == 0


def test_numbers_of_every_container():
    table = np.array([[0.5, 1.0], [0.25, 2.0]])
    for given in (
        table, np.asfortranarray(table), table.astype(np.float32), table.astype(np.longdouble), table.astype(object),
        pd.DataFrame(table), pl.DataFrame(table), pa.table({"a": table[:, 0], "b": table[:, 1]}), table.astype(str),
    ):  # fmt: skip
        np.testing.assert_array_equal(numbers(given), table)
    assert numbers(table) is table
    with pytest.raises(DataError, match="type"):
        numbers(np.zeros((2, 2), dtype="datetime64[D]"))
