"""Private cells of a fit: types and shapes before the charge, cells after it, which decide no exception.

======================================================  ====================================================
edge case                                               what happens
======================================================  ====================================================
text, None, complex, a list or an array in an object    that cell holds no number: the middle of a column's
array, in a frame or in a list                          bounds, of a label's, a weight of 0
``"1.5"``, ``Decimal("1.5")``                           1.5
``10**400``, long double 1e4000                         inf, then clipped
a list of weights or labels, all of whose cells are     one cell a row, that holds no number and is no class
lists of one length
an array of text, times or complex numbers, or a frame  DataError or ValueError by its type, before the
with a column of times                                  charge
labels or weights that are not one a row                DataError by the shape, before the charge
device arrays of other libraries                        fetched, after the charge
======================================================  ====================================================
"""

from __future__ import annotations

from typing import Any

import numpy as np

from confide.errors import DataError, ParameterError
from confide.schema import loose
from confide.training.inputs import secret_labels, shape_of
from confide.training.sgd.arrays import Floats, namespace, to_host
from confide.training.sgd.public import check_times
from confide.training.sgd.request import SGDRequest


def on_host(X: Any) -> Any:
    """Return arrays of other libraries as NumPy's; anything else as it is."""
    return X if isinstance(X, np.ndarray) or namespace(X) is np else to_host(X)


def check_columns(X: Any, n: int) -> None:
    """Refuse private columns by their shape and their declared types, which are public; no cell is looked at.

    Raises
    ------
    ValueError, DataError
    """
    name = "X_private"
    if shape_of(X)[0] != n:
        raise DataError(f"{name} has not one row for each label.", "Pass an array of shape (n, q).")
    loose.check_real(X, name)
    if isinstance(loose.attribute(X, "dtype"), np.dtype):
        loose.check_numeric(X, name)
        return
    check_times(X, name)


def check_labels(y: Any, n: int, request: SGDRequest) -> None:
    """Refuse labels by their declared type and by their shape; no cell is looked at.

    Raises
    ------
    ValueError, DataError
    """
    if request.classes is None:
        loose.check_number_labels(y)
    else:
        loose.check_classes(y, request.classes)
    _check_rows(y, n, "label")


def check_weights(weights: Any, n: int, cap: float | None) -> None:
    """Refuse sample weights without a cap, and by their declared type and shape; no cell is looked at.

    Raises
    ------
    ParameterError, ValueError, DataError
    """
    if weights is None:
        return
    if cap is None:
        raise ParameterError(
            "The fit has sample weights and no 'weight_cap'.",
            "Pass weight_cap: a public bound that weights are clipped to; the noise grows with it.",
        )
    loose.check_real(weights, "sample_weight")
    kind = loose.declared_kind(weights)
    if kind in ("text", "times"):
        raise DataError(f"The sample weights are {kind}.", "Pass numbers, of a type that is declared.")
    _check_rows(weights, n, "sample weight")


def _check_rows(values: Any, n: int, what: str) -> None:
    shape = loose.attribute(values, "shape")
    if not isinstance(shape, tuple):
        if isinstance(values, str | bytes | dict | set | frozenset) or not hasattr(values, "__len__"):
            raise DataError(
                f"There is no {what} in a {type(values).__name__}.", "Pass an array of shape (n,)."
            )
        shape = (len(values),)
    if loose.has(values, "tocsr") or tuple(shape) not in ((n,), (n, 1)):
        # Without n, which may be secret.
        raise DataError(f"There is not one {what} for each row.", "Pass a dense array of shape (n,).")


def _vector(values: Any) -> Any:
    """Return sequences that are no arrays as objects [n], one for each element; anything else as it is."""
    listed = not hasattr(values, "__array__") and not loose.has(values, "shape")
    return loose.vector_of(list(values) if listed else values)


def numbers(values: Any) -> Floats:
    """Return cells as float64 on the host, NaN where there is no number: no cell raises or warns."""
    cells = np.asarray(on_host(values))
    if cells.dtype.kind in "UST":  # of a library whose frames declare less than NumPy's arrays
        cells = cells.astype(object)
    loose.check_numeric(cells, "X_private")
    return np.asarray(loose.real(cells), dtype=np.float64)


def labels_of(y: Any, n: int, request: SGDRequest) -> Floats:
    """Read the labels: in [-1, 1] about the middle of their bounds (missing is 0), or class numbers."""
    if request.classes is not None:
        cells = np.asarray(_vector(y), dtype=object)
        cells = cells.reshape(n, -1 if n else 1)  # no row is a table like any other where n is secret
        if cells.shape[1] != 1:
            raise DataError(f"The label has {cells.shape[1]} columns.", "Pass an array of shape (n,).")
        places = {value: float(k) for k, value in enumerate(request.classes)}
        return np.array([_place(places, cell) for cell in cells[:, 0].tolist()])
    assert request.target_bounds is not None
    low, high = request.target_bounds
    values = secret_labels(y, n)()
    with np.errstate(all="ignore"):
        t = (np.clip(values, low, high) / 2 - (low / 4 + high / 4)) / (high / 4 - low / 4)
        return np.clip(np.nan_to_num(t, nan=0.0), -1.0, 1.0)


def _place(places: dict[Any, float], cell: Any) -> float:
    try:
        return places.get(cell, 0.0)
    except Exception:  # a cell that cannot be a key is none of the classes, and no cell may raise
        return 0.0


def weights_of(weights: Any, n: int, cap: float | None) -> Floats | None:
    """Read the sample weights, within [0, cap]; missing is 0."""
    if weights is None:
        return None
    with np.errstate(all="ignore"):
        values = numbers(_vector(weights)).reshape(n)
        return np.clip(np.nan_to_num(values, nan=0.0), 0.0, cap)
