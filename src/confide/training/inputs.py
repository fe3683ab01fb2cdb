"""Arrays and frames at the door of the estimator: public cells are validated, secret ones are never judged.

A private column of X is not looked at: names and shape are public, and the public columns are taken out
before any validation. A label is read by the cells' definition of `confide.schema`, under which nothing
raises or warns: a cell without a number is NaN, and a fit imputes it. The declared type of an array is public
and may refuse it (`loose.declared_kind`); objects and lists declare nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from confide.errors import DataError
from confide.schema.loose import attribute, check_number_labels, has, unwrapped

Floats = npt.NDArray[np.float64]


def shape_of(X: Any) -> tuple[int, int]:
    """Return the shape of a two-dimensional array or frame without looking at its cells.

    Raises
    ------
    DataError
        Also for lists, whose shape only their cells tell.
    """
    shape = attribute(X, "shape")
    if not isinstance(shape, tuple) or len(shape) != 2:
        raise DataError(
            f"An object of type {type(X).__name__} has no shape (n, p), and some of its columns are private.",
            "Pass a two-dimensional array, a CSR matrix or a data frame.",
        )
    return int(shape[0]), int(shape[1])


def take_columns(X: Any, chosen: npt.NDArray[np.bool_]) -> Any:
    """Return the chosen columns of an array, sparse matrix or frame, in its own type."""
    places = np.flatnonzero(chosen)
    if has(X, "tocsr"):
        return X.tocsr()[:, places]
    if isinstance(X, np.ndarray):
        return X[:, places]
    if hasattr(X, "iloc"):
        return X.iloc[:, places]
    import narwhals as nw

    return nw.from_native(X, eager_only=True)[:, places.tolist()].to_native()


def secret_labels(y: Any, n: int) -> Callable[[], Floats]:
    """Check the shape of the labels, and return a function that reads them as float64 of shape (n,).

    Parameters
    ----------
    y : array, frame, series or sequence of shape (n,) or (n, 1)
    n : int

    Raises
    ------
    ValueError, DataError
        For None and for another shape; never for what a cell holds.

    Notes
    -----
    ================================================  =================
    cell                                              number
    ================================================  =================
    ``"1.5"``, ``Decimal("1.5")``, ``[1.5]``          1.5
    ``10**400``, long double ``1e4000``               inf (then clipped)
    text, ``None``, complex, nested, signalling NaN   NaN (then imputed)
    ================================================  =================
    """
    if y is None:
        raise ValueError("This estimator requires y to be passed, but the target y is None.")
    if has(y, "tocsr"):
        raise DataError("The label is a sparse matrix.", "Pass a dense array of shape (n,).")
    foreign = not isinstance(y, list | tuple) and not has(y, "shape") and hasattr(y, "__array__")
    if foreign and not type(y).__module__.startswith("pyarrow"):
        y = np.asarray(y)
    shape = attribute(y, "shape")
    if not isinstance(shape, tuple):
        if not hasattr(y, "__len__") or isinstance(y, str | bytes | dict):
            raise DataError(f"The label has type {type(y).__name__}.", "Pass an array of shape (n,).")
        shape = (len(y),)
    if len(shape) == 2 and shape[1] == 1:
        import warnings

        from sklearn.exceptions import DataConversionWarning

        warnings.warn(
            DataConversionWarning("A column-vector y was passed when a 1d array was expected."), stacklevel=4
        )
        y = _only_column(y)
        shape = shape[:1]
    if shape != (n,):
        raise ValueError(f"The label has shape {shape}. Pass ({n},): one label for each row of X.")

    def read() -> Floats:
        from confide.schema.arrays import arrow_array, numbers

        cells = [unwrapped(cell) for cell in y] if isinstance(y, list | tuple) else y
        with np.errstate(all="ignore"):
            return numbers(arrow_array(cells))

    return read


def number_labels(y: Any, n: int) -> Callable[[], Floats]:
    """Return `secret_labels` of an array whose declared type is not text, times or complex: it is public.

    Raises
    ------
    ValueError, DataError
    """
    check_number_labels(y)
    return secret_labels(y, n)


def _only_column(y: Any) -> Any:
    if isinstance(y, np.ndarray) or not has(y, "columns"):
        return np.asarray(y)[:, 0]
    if hasattr(y, "iloc"):
        return y.iloc[:, 0]
    import narwhals as nw

    return nw.from_native(y, eager_only=True)[:, 0].to_native()


def dense(X: Any) -> Any:
    """Return the array that a frame or a sparse matrix holds; anything else as it is."""
    if hasattr(X, "to_numpy"):
        return X.to_numpy()
    return X.toarray() if has(X, "toarray") else X
