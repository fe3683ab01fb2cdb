"""Products and sums whose value for a row depends on that row alone.

Where rows come and go (ADD_REMOVE_ONE), a bound on what one row adds to a sum needs that the terms of all
others stay what they are, to the last bit. A library's matrix product does not promise that: how it orders,
blocks and fuses the operations of a row may depend on the row's place, on the number of rows, on memory.

Proof. Here each number of a result is made of the row's own numbers and of what is the same for all rows, by
float64 operations that IEEE 754 rounds correctly (+, -, *, /, and exact ones), in an order that the columns
fix. Each operation is one call over whole arrays, element by element, and its result is stored as float64
before the next: so none can be fused with another (as a multiplication and an addition may be within one
loop), none is part of a reduction that a library may reorder, and a correctly rounded result is the same in
a vector register or out of it, at any address, in any block. So a row has the same result in every table.

Logarithms, exponentials and their kin are not among those operations: a library may compute them differently
at the end of a vector. `basic_tanh` is composed of those that are.

===================================  ===================================================================
edge case                            what happens
===================================  ===================================================================
one row, no row; no columns          as with many; zeros
any memory layout, single precision  read as float64, element by element
NaN, infinite, overflow              of its own row alone; NumPy's warnings are the caller's
===================================  ===================================================================
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

#: Numbers of a block of results: with their products they stay in a core's cache.
_HELD = 1 << 14
#: Rows of a block, however few results a row has.
_ROWS = 4096
_LOG2 = 0.6931471805599453
#: log 2 in two parts, the first so short that its products with integers below 2^20 are exact.
_HIGH = 0.693147180369123816490
_LOW = 1.90821492927058770002e-10
#: exp(r) to r^13: below 2e-17 of it for |r| <= log(2) / 2.
_TERMS = 13


def row_products(rows: npt.ArrayLike, weights: npt.ArrayLike) -> Floats:
    """Return rows @ weights, each row by itself.

    Parameters
    ----------
    rows : array of shape (n, k)
    weights : array of shape (k,) or (k, m)

    Returns
    -------
    ndarray of shape (n,) or (n, m)
        Sums over columns from the first to the last: within gamma_k of the exact ones, as of any order
        (`confide.mechanisms.sum_error`).
    """
    cells, by = np.asarray(rows, dtype=np.float64), np.asarray(weights, dtype=np.float64)
    several = by[:, None] if by.ndim == 1 else by
    (n, columns), m = cells.shape, several.shape[1]
    out = np.zeros((m, n))
    height = max(1, min(_ROWS, _HELD // max(1, m)))
    terms = np.empty((m, min(height, n)))
    for start in range(0, n, height):
        block = np.ascontiguousarray(cells[start : start + height].T)
        sums, term = out[:, start : start + height], terms[:, : block.shape[1]]
        for j in range(columns):
            np.multiply(several[j][:, None], block[j], out=term)
            np.add(sums, term, out=sums)
    return out[0] if by.ndim == 1 else np.ascontiguousarray(out.T)


def row_sums(rows: npt.ArrayLike) -> Floats:
    """Return the sum of each row, shape (n,), from the first column to the last."""
    return row_products(rows, np.ones(np.shape(rows)[1]))


def row_squares(rows: npt.ArrayLike) -> Floats:
    """Return the squared norm of each row, shape (n,)."""
    cells = np.asarray(rows, dtype=np.float64)
    return row_sums(cells * cells)


def basic_tanh(values: npt.ArrayLike) -> Floats:
    """Return tanh within 2^-50, of basic operations: the same for a number wherever it stands.

    With e = exp(-2 |x|), (1 - e) / (1 + e) and the sign of x. Of -2 |x| = k log 2 + r, |r| <= log(2) / 2,
    exp(r) is its Taylor polynomial and 2^k exact. Past |x| = 40 the result is 1 in float64. NaN stays.
    """
    x = np.asarray(values, dtype=np.float64)
    y = -2.0 * np.minimum(np.abs(x), 40.0)
    k = np.nan_to_num(np.rint(y / _LOG2))
    r = (y - k * _HIGH) - k * _LOW
    e = np.ones_like(r)
    for order in range(_TERMS, 0, -1):
        e = 1.0 + e * r / order
    e = np.ldexp(e, k.astype(np.int32))
    return np.copysign((1.0 - e) / (1.0 + e), x)
