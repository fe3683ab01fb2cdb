"""Read access to a wide matrix in declared bounds: clipped on the way, never copied whole.

Accepts float32 and float64 arrays in C or F order, memory maps, integer arrays and CSR; lists and arrays of
objects are read into float64 once, cell by cell, NaN where there is no number. Values are clipped
to +-bound and NaN counts as 0, the middle of the bounds (the public policy for missing cells; infinities are
clipped). So does a cell below TINY of the bound: products of cells are then 0 or normal doubles, and no
operation of this room meets a subnormal number. One fused pass measures every column; if no cell is changed
by this, later products run on the array itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from confide.errors import DataError
from confide.schema import loose

Floats = npt.NDArray[np.float64]

#: A cell below this share of its bound counts as 0: a public rule, cell by cell. Within the public ranges of
#: `SubsetProblem` even squares of products of two cells stay normal: (2^-100)^4 of bounds of 2^-100 or more.
TINY = 2.0**-100
#: Cells that are clipped and widened at a time.
_BLOCK = 1 << 20
#: Bytes of single columns kept for scores.
_KEPT = 1 << 26


class Columns:
    """A matrix X [n, p] whose cells are read as clip(x, -bound, bound), NaN and below TINY bound as 0.

    Parameters
    ----------
    X : array or CSR matrix [n, p]
    bound : float
        b_x > 0.

    Attributes
    ----------
    n, p : int
    bound : float
    squares : float64 array [p]
        Sums of squares of the columns.
    """

    def __init__(self, X: Any, bound: float) -> None:
        if loose.has(X, "tocsr"):
            X = canonical(X)
            self.sparse = True
        else:
            X = loose.matrix_of(X)  # one text must not make text of a list
            X = X if isinstance(X, np.ndarray) else np.asarray(X)
            X = loose.numbers(X) if X.dtype.kind == "O" else X
            self.sparse = False
        if len(X.shape) != 2 or X.shape[1] < 1:
            raise DataError(f"X has shape {tuple(X.shape)}.", "Pass a matrix with at least one column.")
        if X.dtype.kind not in "fiub":
            raise DataError(f"X has cells of type {X.dtype}.", "Pass numbers: encode other columns first.")
        self.X = X
        self.n, self.p = int(X.shape[0]), int(X.shape[1])
        self.bound = float(bound)
        self.inside = True
        self.squares = np.zeros(self.p)
        self._kept: dict[int, Floats] = {}
        self._room = max(64, _KEPT // max(8 * self.n, 1))

    def measure(self, y: Floats) -> Floats:
        """Read every cell once: set `squares` and whether all count as they are; return X'y, [p]."""
        products = np.zeros(self.p)
        if self.sparse:
            inside = True
            self.inside = False  # so that the chunks are clipped
            for start, block in self._sparse_blocks():
                given = self.X.data[self.X.indptr[start] : self.X.indptr[start + block.shape[0]]]
                inside = inside and bool(np.array_equal(block.data, given))
                self.squares += np.asarray(block.power(2).sum(axis=0)).reshape(-1)
                products += block.T @ y[start : start + block.shape[0]]
            self.inside = inside
            return products
        from confide.selection.kernels import measure_columns, measure_rows

        X, least = self.X, TINY * self.bound
        # A view without the memmap's type: one type for the kernels, hence one compilation.
        plain = np.asarray(X) if X.dtype in (np.float32, np.float64) else None
        if plain is not None and plain.flags.f_contiguous and not plain.flags.c_contiguous:
            self.inside = bool(measure_columns(plain.T, y, self.bound, least, self.squares, products))
        elif plain is not None and plain.flags.c_contiguous:
            self.inside = bool(measure_rows(plain, y, self.bound, least, self.squares, products))
        else:
            self.inside = False
            for start, block in self._row_blocks():
                self.squares += np.einsum("ij,ij->j", block, block)
                products += y[start : start + block.shape[0]] @ block
        return products

    def correlations(self, vectors: Floats) -> Floats:
        """Return X'V for V [n] or [n, k], float64 [p] or [p, k]."""
        if self.sparse:
            result = np.zeros((self.p, *vectors.shape[1:]))
            for start, block in self._sparse_blocks():
                result += block.T @ vectors[start : start + block.shape[0]]
            return result
        if self.inside and self.X.dtype == np.float64:
            return np.asarray(self.X).T @ vectors
        result = np.zeros((self.p, *vectors.shape[1:]))
        if self.X.flags.f_contiguous:
            width = max(1, _BLOCK // max(self.n, 1))
            for start in range(0, self.p, width):
                result[start : start + width] = self._cells(self.X[:, start : start + width]).T @ vectors
            return result
        for start, block in self._row_blocks():
            result += block.T @ vectors[start : start + block.shape[0]]
        return result

    def take(self, columns: npt.ArrayLike) -> Floats:
        """Return the columns named, clipped, as a float64 array [n, k] in F order."""
        wanted = [int(j) for j in np.asarray(columns, dtype=np.int64)]
        result = np.empty((self.n, len(wanted)), order="F")
        fresh = [j for j in dict.fromkeys(wanted) if j not in self._kept]
        if fresh:
            block = self._read(fresh)
            block.setflags(write=False)
            held = dict(zip(fresh, block.T, strict=True))
        else:
            held = {}
        for i, j in enumerate(wanted):
            result[:, i] = held[j] if j in held else self._kept[j]
        if len(self._kept) + len(held) > self._room:
            self._kept.clear()
        if len(held) <= self._room:
            self._kept.update(held)
        return result

    def gram(self) -> Floats:
        """Return X'X, [p, p]: for few columns only."""
        if self.sparse:
            result = np.zeros((self.p, self.p))
            for _, block in self._sparse_blocks():
                result += (block.T @ block).toarray()
            return result
        if self.inside and self.X.dtype == np.float64:
            return np.asarray(self.X).T @ np.asarray(self.X)
        result = np.zeros((self.p, self.p))
        for _, block in self._row_blocks():
            result += block.T @ block
        return result

    def _read(self, columns: list[int]) -> Floats:
        if self.sparse:
            block = np.asarray(self.X[:, columns].todense())
        else:
            block = self.X[:, columns]
        return np.asfortranarray(self._cells(block))

    def _row_blocks(self) -> Iterator[tuple[int, Floats]]:
        height = max(1, _BLOCK // self.p)
        for start in range(0, self.n, height):
            yield start, self._cells(self.X[start : start + height])

    def _sparse_blocks(self) -> Iterator[tuple[int, Any]]:
        """Yield first row and a CSR chunk, clipped, in float64: float32 sums would miss their margin."""
        from scipy.sparse import csr_matrix

        X = self.X
        height = max(1, int(_BLOCK * max(self.n, 1) / max(X.nnz, 1)))
        for start in range(0, self.n, height):
            stop = min(start + height, self.n)
            first, last = X.indptr[start], X.indptr[stop]
            yield (
                start,
                csr_matrix(
                    (
                        self._cells(X.data[first:last]),
                        X.indices[first:last],
                        X.indptr[start : stop + 1] - first,
                    ),
                    shape=(stop - start, self.p),
                ),
            )

    def _cells(self, block: Any) -> Floats:
        with np.errstate(over="ignore", under="ignore"):  # a wider type than float64
            values = np.array(block, dtype=np.float64)
        if not self.inside:
            np.nan_to_num(values, copy=False, nan=0.0, posinf=self.bound, neginf=-self.bound)
            np.clip(values, -self.bound, self.bound, out=values)
            flush(values, self.bound)
        return values


def flush(values: Floats, bound: float) -> Floats:
    """Set values below TINY bound to 0, in place; return them."""
    values[np.abs(values) < TINY * bound] = 0.0
    return values


def canonical(X: Any) -> Any:
    """Return a sparse matrix as CSR whose entries name each cell once; the caller's stays as it is.

    Entries that name a cell twice add up: clipped one by one they would pass the bound together.
    """
    X = X.tocsr()
    if not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    return X
