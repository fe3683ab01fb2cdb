"""Secret cells at the door of the estimators: types and shapes are judged, values never."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from confide.errors import DataError
from confide.selection.named import check_classes
from confide.selection.wide import Bounds, ParquetMatrix
from confide.training.inputs import secret_labels

Floats = npt.NDArray[np.float64]


def numeric(X: Any) -> Any:
    """Return a matrix with numeric cells; of objects, those that are no numbers count as missing.

    Raises
    ------
    DataError
        For cells of another type, or objects in a sparse matrix.
    """
    if X.dtype.kind in "fiub":
        return X
    if X.dtype.kind != "O" or hasattr(X, "tocsr"):
        raise DataError(f"X has cells of type {X.dtype}.", "Pass numbers: encode other columns first.")
    return np.array([_number(cell) for cell in X.reshape(-1)], dtype=np.float64).reshape(X.shape)


def _number(cell: Any) -> float:
    try:
        return float(cell)
    except (TypeError, ValueError, OverflowError):
        return float("nan")


def take(matrix: Any, bounds: Bounds, columns: Sequence[int]) -> Floats:
    """Return some columns [n, k] within [-1, 1], or +-b for a symmetric pair of bounds; NaN is the middle."""
    places = list(columns)
    if isinstance(matrix, ParquetMatrix):
        cells: Any = matrix.read([matrix.names[j] for j in places])
    else:
        cells = matrix[:, places]
        cells = cells.toarray() if hasattr(cells, "toarray") else cells
    return bounds.scale(cells, places)


def label_values(y: Any, n: int) -> Callable[[], Floats]:
    """Check the shape of numeric labels, and return a function that reads them, NaN where there is no number.

    Raises
    ------
    ValueError, DataError
        From shape and declared type.
    """
    kind = getattr(getattr(y, "dtype", None), "kind", "")
    if kind == "c":
        raise ValueError("Complex data not supported: pass real labels.")
    return secret_labels(y, n)


def positives(y: Any, n: int, classes: Sequence[Any]) -> Callable[[], Floats]:
    """Check the shape of class labels, and return a function that reads +1 for the second class, else -1.

    Raises
    ------
    ValueError, DataError
        From shape and declared type.
    """
    if y is None:
        raise ValueError("This estimator requires y to be passed, but the target y is None.")
    values = np.asarray(y, dtype=object) if isinstance(y, list | tuple) else np.asarray(y)
    if values.dtype.kind == "c":
        raise ValueError("Complex data not supported: pass real labels.")
    if values.ndim == 2 and values.shape[1] == 1:
        import warnings

        from sklearn.exceptions import DataConversionWarning

        warnings.warn(
            DataConversionWarning("A column-vector y was passed when a 1d array was expected."), stacklevel=5
        )
        values = values[:, 0]
    if values.shape != (n,):
        raise ValueError(f"The label has shape {values.shape}. Pass ({n},): one label for each row of X.")

    check_classes(y, classes)
    positive = classes[1]

    def read() -> Floats:
        same = np.array([_equal(value, positive) for value in values.tolist()], dtype=bool)
        return np.where(same, 1.0, -1.0)

    return read


def _equal(value: Any, positive: Any) -> bool:
    try:
        return bool(value == positive)
    except (TypeError, ValueError):
        return False
