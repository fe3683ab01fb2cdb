"""Secret cells at the door of the estimators: types and shapes are judged, values never."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from confide.schema.loose import check_features, check_real, check_table, equal, matrix_of, real, vector_of
from confide.selection.named import check_classes, check_types
from confide.selection.wide import Bounds, ParquetMatrix
from confide.training.inputs import number_labels

Floats = npt.NDArray[np.float64]


def rows_of(X: Any) -> Any:
    """Return X as it is, or a list of rows as objects, where type and shape may be a matrix of numbers.

    Raises
    ------
    ValueError, DataError
        From type and shape; messages of scikit-learn's on these would print the rows.
    """
    check_features(X)
    X = matrix_of(X)
    check_table(X)
    check_types(X)
    return X


def paid(matrix: Any) -> Any:
    """Return a matrix of numbers, once it is charged for: objects without a number are NaN."""
    return matrix if isinstance(matrix, ParquetMatrix) else real(matrix)


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
    return number_labels(y, n)


def positives(y: Any, n: int, classes: Sequence[Any]) -> Callable[[], Floats]:
    """Check the shape of class labels, and return a function that reads +1 for the second class, else -1.

    Raises
    ------
    ValueError, DataError
        From shape and declared type.
    """
    if y is None:
        raise ValueError("This estimator requires y to be passed, but the target y is None.")
    values = np.asarray(vector_of(y))
    check_real(values, "y")
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
        same = np.array([equal(value, positive) for value in values.tolist()], dtype=bool)
        return np.where(same, 1.0, -1.0)

    return read
