"""Rows in the unit ball: centred, divided by half-widths, a constant appended, clipped to a public norm."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from confide.errors import DataError, ParameterError
from confide.mechanisms import row_squares
from confide.prediction.certificate import matrix

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class UnitRows:
    """Map raw rows to vectors of norm at most 1, each by itself and by public numbers alone.

    Attributes
    ----------
    centre, half : float arrays [p]
        Middle and half-width of each column's declared bounds.
    norm : float
        Public feature norm: rows, with their constant, are shortened to it and divided by it.
    constant : float
        Appended column, in units of half-widths. It makes the intercept, which is penalised like the rest.

    Notes
    -----
    A column of width 0 is 0. The result is scaled by 1 - 2^-32, more than its own rounding up to 10^6
    columns could add: every row's norm is at most 1 as a real number.

    ==========================  =====================================================================
    edge case                   what happens
    ==========================  =====================================================================
    NaN                         the middle, a public constant
    infinite, out of bounds     the nearer bound
    1e308 within wide bounds    no overflow: halves are subtracted
    row of zeros                (0, ..., 0, constant), scaled
    cells or norm below 1e-154  squares do not vanish: norms are taken of `enlarged` rows
    constant of 1e308           squares do not overflow, for the same reason
    ==========================  =====================================================================
    """

    centre: Floats
    half: Floats
    norm: float
    constant: float

    @property
    def columns(self) -> int:
        """Columns of the raw rows."""
        return self.centre.size

    def scaled(self, X: ArrayLike) -> Floats:
        """Return rows within [-1, 1], [n, p]."""
        rows = matrix(X, "X")
        if rows.shape[1] != self.columns:
            raise DataError(
                f"The rows have {rows.shape[1]} columns and the bounds {self.columns}.",
                "Pass the columns that the bounds were declared for.",
            )
        low, high = self.centre - self.half, self.centre + self.half
        held = np.clip(np.where(np.isnan(rows), self.centre, rows), low, high)
        width = np.where(self.half > 0, self.half, 1.0)
        return np.clip((held - self.centre) / width, -1.0, 1.0)

    def __call__(self, X: ArrayLike) -> Floats:
        """Return vectors of norm at most 1, [n, p + 1]."""
        cells = self.scaled(X)
        rows = np.column_stack([cells, np.full(cells.shape[0], self.constant)])
        unit, exponent = enlarged(rows)
        length = np.sqrt(row_squares(unit))[:, None]  # of a row by itself, whatever the layout
        with np.errstate(over="ignore"):  # a norm far above a row: the row becomes 0
            norm = np.ldexp(self.norm, -exponent)
        return unit / np.maximum(length, norm) * (1.0 - 2.0**-32)


@dataclass(frozen=True, eq=False)
class BoxRows:
    """The frozen public map of rows into [-1, 1] by declared bounds, cell by cell; see `UnitRows.scaled`.

    Attributes
    ----------
    rows : UnitRows
    factor : float
        Public; cells are multiplied by it.
    """

    rows: UnitRows
    factor: float = 1.0

    def __call__(self, X: ArrayLike) -> Floats:
        """Return rows within [-factor, factor], [n, p]."""
        return self.rows.scaled(X) * self.factor


def unit_rows(
    feature_bounds: Any, columns: int, *, feature_norm: float | None = None, constant: float | None = None
) -> UnitRows:
    """Return the map for declared bounds.

    Parameters
    ----------
    feature_bounds : pair of scalars or of arrays [p]
        Public.
    columns : int
        p.
    feature_norm : float, optional
        In units of half-widths; default sqrt(p) / 4. The box itself has norm sqrt(p), and rows of real tables
        are far shorter.
    constant : float, optional
        >= 0; default a fifth of the feature norm.
    """
    low, high = bounds(feature_bounds, columns)
    norm = math.sqrt(columns) / 4.0 if feature_norm is None else number(feature_norm, "feature_norm")
    if norm <= 0:
        raise ParameterError(f"The 'feature_norm' parameter is {feature_norm!r}.", "Pass a number > 0.")
    extra = norm / 5.0 if constant is None else number(constant, "constant")
    if extra < 0:
        raise ParameterError(f"The 'constant' parameter is {constant!r}.", "Pass a number >= 0.")
    return UnitRows(low / 2 + high / 2, high / 2 - low / 2, norm, extra)


def enlarged(rows: Floats) -> tuple[Floats, NDArray[np.int32]]:
    """Return rows times powers of two, largest |cell| in [1/2, 1), and the exponents [n, 1] taken out.

    Powers of two are exact: no bit of a norm or a product changes, but for those that under- or overflowed.
    The norm of what is returned is at least 1/2, or 0 for a row of zeros.
    """
    exponent = np.frexp(np.max(np.abs(rows), axis=1, initial=0.0, keepdims=True))[1]
    return np.ldexp(rows, -exponent), exponent


def bounds(feature_bounds: Any, columns: int) -> tuple[Floats, Floats]:
    """Return lower and upper bounds [p] of a pair of scalars or arrays."""
    bad = ParameterError(
        f"The 'feature_bounds' are no pair of finite bounds for {columns} columns.",
        "Pass (lower, upper): two numbers, or two arrays with one number a column, lower <= upper.",
    )
    try:
        low, high = feature_bounds
        pair = [np.broadcast_to(np.asarray(side, dtype=np.float64), (columns,)) for side in (low, high)]
    except (TypeError, ValueError):
        raise bad from None
    if not (np.isfinite(pair).all() and np.all(pair[0] <= pair[1]) and np.abs(pair).max(initial=0) < 1e300):
        raise bad
    return pair[0], pair[1]


def number(value: Any, name: str) -> float:
    """Return a finite real parameter."""
    ok = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not ok or not math.isfinite(value):
        raise ParameterError(f"The '{name}' parameter is {value!r:.80}.", "Pass a finite number.")
    return float(value)
