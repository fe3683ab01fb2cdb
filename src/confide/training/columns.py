"""Which columns of X are public, and how the others are read: shared by the estimators of this room.

Names and shape of X are public. A private column is taken out before any validation, and its cells are read
after the charge, as `confide.schema` reads cells: what is no number is NaN, and nothing raises or warns.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_array, validate_data

from confide.errors import ParameterError
from confide.privacy import Adjacency
from confide.schema.loose import check_features, check_table, has, matrix_of, numeric_cells
from confide.training.engines.ask import WHOLE_ROWS, SecretColumns
from confide.training.inputs import secret_labels, shape_of, take_columns
from confide.training.problem import check_adjacency

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


class PublicColumns(BaseEstimator):
    """An estimator with a parameter `public`; `result_` and `columns_` come with a fit."""

    public: Any
    result_: Any
    columns_: Mask

    def _public_part(
        self, X: Any, *, reset: bool, relation: Adjacency | None = None
    ) -> tuple[Any, npt.NDArray[np.bool_]]:
        """Return the validated public columns of X, and which they are; private cells are never read."""
        checks: dict[str, Any] = {"accept_sparse": "csr", "dtype": np.float64, "ensure_min_samples": 1}
        check_features(X)  # a message of scikit-learn's would print the rows, as for other shapes
        if isinstance(self.public, str) and self.public == "all":
            X = matrix_of(X)
            check_table(X)
            with numeric_cells(X):
                matrix: Any = validate_data(self, X, reset=reset, **checks)
            return matrix, np.ones(matrix.shape[1], dtype=bool)
        shape_of(X)
        validate_data(self, X, reset=reset, skip_check_array=True)  # names and number of columns alone
        columns = self._public_columns(shape_of(X)[1])
        if relation is not None:
            check_adjacency(relation, tuple(str(name) for name in self._names(columns.size)[~columns]))
        part = take_columns(X, columns)
        with numeric_cells(part):
            matrix = check_array(part, ensure_min_features=0, estimator=self, input_name="X", **checks)
        return matrix, columns

    def _both_parts(
        self, X: Any, *, reset: bool, relation: Adjacency | None = None
    ) -> tuple[Any, SecretColumns, Mask]:
        """Return public columns, private columns that are read later, and which are public.

        Under a relation that keeps whole rows secret, all are private.
        """
        if relation in WHOLE_ROWS:
            check_features(X)
            X = matrix_of(X)
            shape_of(X)
            validate_data(self, X, reset=reset, skip_check_array=True)
            columns = np.zeros(shape_of(X)[1], dtype=bool)
            matrix: Any = np.zeros((shape_of(X)[0], 0))
        else:
            matrix, columns = self._public_part(X, reset=reset, relation=relation)
        shape = (int(matrix.shape[0]), int((~columns).sum()))
        return matrix, SecretColumns(shape, lambda: private_cells(X, ~columns)), columns

    def _names(self, p: int) -> np.ndarray:
        names = getattr(self, "feature_names_in_", None)
        return np.array([f"x{i}" for i in range(p)], dtype=object) if names is None else names

    def _public_columns(self, p: int) -> Mask:
        public = self.public
        if isinstance(public, str):
            if public == "all":
                return np.ones(p, dtype=bool)
            raise ParameterError(f"The 'public' parameter is {public!r}.", "Pass 'all', a mask, or names.")
        values = np.asarray(public)
        if values.dtype == bool and values.shape == (p,):
            return values
        names = getattr(self, "feature_names_in_", None)
        if values.ndim == 1 and names is not None and values.dtype.kind in "OUT":
            unknown = [str(name) for name in values if name not in set(names)]
            if not unknown:
                return np.isin(names, values.astype(object))
            raise ParameterError(
                f"The 'public' parameter names unknown columns: {', '.join(unknown[:5])}.",
                "Pass names of the columns of X.",
            )
        raise ParameterError(
            f"The 'public' parameter has shape {values.shape} and type {values.dtype}.",
            f"Pass 'all', a boolean mask of length {p}, or names of a frame's columns.",
        )

    def _has_public(self, relation: Adjacency) -> bool:
        """Whether any column may be public, by parameters alone."""
        if relation in WHOLE_ROWS:
            return False
        if isinstance(self.public, str):
            return True
        values = np.asarray(self.public)
        return bool(values.any()) if values.dtype == bool else values.size > 0


def private_cells(X: Any, chosen: Mask) -> Floats:
    """Return the chosen columns of X as numbers, NaN where a cell has none; never raises for a cell."""
    part = take_columns(X, chosen)
    if has(part, "toarray"):
        part = part.toarray()
    if isinstance(part, np.ndarray) and part.dtype.kind in "fiub":
        return part.astype(np.float64)
    n, q = shape_of(part)
    if q == 0:
        return np.zeros((n, 0))
    return np.column_stack([secret_labels(column, n)() for column in _columns(part)])


def _columns(part: Any) -> list[Any]:
    if isinstance(part, np.ndarray):
        return list(part.T)
    if hasattr(part, "iloc"):
        return [part.iloc[:, j] for j in range(part.shape[1])]
    import narwhals as nw

    frame = nw.from_native(part, eager_only=True)
    return [frame[:, j].to_native() for j in range(frame.shape[1])]


def bounds_of(value: Any, columns: Mask, names: Any = ()) -> tuple[tuple[float, float], ...]:
    """Return declared bounds of the private columns.

    Parameters
    ----------
    value : pair of scalars, or of arrays of shape (p,), or dict {name: (lo, hi)}
        `feature_bounds`; what stands at public columns is not read.
    columns : bool array of shape (p,)
        Which are public.
    names : sequence of p names
        For a dict, which names each private column.

    Raises
    ------
    ParameterError
    """
    if columns.all():
        return ()
    if isinstance(value, Mapping):
        value = _by_name(value, columns, [str(name) for name in names])
    try:
        low, high = (np.broadcast_to(np.asarray(end, dtype=float), columns.shape)[~columns] for end in value)
    except (TypeError, ValueError):
        raise ParameterError(
            f"The 'feature_bounds' parameter is {value!r:.80}.",
            "Pass a pair (lo, hi) of numbers, or of arrays with one number for each column of X.",
        ) from None
    if not (np.isfinite(low).all() and np.isfinite(high).all() and (low < high).all()):
        raise ParameterError(
            "The 'feature_bounds' of a private column are not finite with lo < hi.",
            "Pass bounds of each private column from knowledge, not from the data.",
        )
    return tuple(zip(low.tolist(), high.tolist(), strict=True))


def _by_name(value: Mapping[Any, Any], columns: Mask, names: list[str]) -> tuple[list[Any], list[Any]]:
    """Return bounds by name as two lists [p], NaN at public columns."""
    held = {str(name): pair for name, pair in value.items()}
    unknown = [name for name in held if name not in names]
    secret = [name for name, public in zip(names, columns.tolist(), strict=True) if not public]
    lacking = [name for name in secret if name not in held]
    if unknown or lacking:
        what = f"names no column {unknown[0]!r:.80}" if unknown else f"lacks column {lacking[0]!r:.80}"
        raise ParameterError(
            f"The 'feature_bounds' parameter {what}.",
            f"Pass a pair (lo, hi) for each private column: {', '.join(secret[:6])}.",
        )
    pairs = [held[name] if name in secret else (math.nan, math.nan) for name in names]
    if any(isinstance(pair, str | bytes) or not hasattr(pair, "__len__") or len(pair) != 2 for pair in pairs):
        raise ParameterError("The 'feature_bounds' of a column are no pair.", "Pass {name: (lo, hi)}.")
    return [low for low, _ in pairs], [high for _, high in pairs]
