"""Wide matrices in declared bounds, read where they lie: bounds by column, CSR, Parquet by column blocks.

`confide.selection.SubsetProblem` wants cells within +-b. Where the declared bounds are one symmetric pair,
that is the matrix itself. Otherwise cells become

    clip(x, lower_j, upper_j) -> (x - middle_j) / half_width_j in [-1, 1],    NaN -> 0, the middle,

cell by cell and on the way: a tile at a time, never the whole matrix, never p x p. The arithmetic of a cell
depends on nothing but that cell and its column's declared bounds, so one row changes one row; and it is the
same in every method, so that bounds and scores speak of the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np
import numpy.typing as npt

from confide.errors import DataError, ParameterError
from confide.schema import loose
from confide.selection.columns import Columns, canonical, flush

Floats = npt.NDArray[np.float64]
Tile = tuple[slice, slice, Floats]

#: Cells of a tile.
_TILE = 1 << 21


@dataclass(frozen=True)
class Bounds:
    """Declared bounds of the columns.

    Attributes
    ----------
    lower, upper : float64 array [p] or []
        One pair for all columns, or one a column.
    """

    lower: Floats
    upper: Floats

    @classmethod
    def of(cls, bounds: Any, name: str = "feature_bounds") -> Bounds:
        """Return bounds from a pair of numbers or of arrays [p].

        Raises
        ------
        ParameterError
            Without bounds, or where they are not finite with lower < upper: they are never read from the
            data.
        """
        remedy = "Pass a pair (lower, upper) of finite numbers, or of arrays of length p, from knowledge."
        fact = f"The {name!r} parameter is {bounds!r:.80}."
        if bounds is None or isinstance(bounds, str | bytes):
            raise ParameterError(fact, remedy)
        try:
            low, high = (_side(side) for side in bounds)
        except (TypeError, ValueError, OverflowError):
            raise ParameterError(fact, remedy) from None
        if low.ndim > 1 or high.ndim > 1 or (low.ndim and high.ndim and low.shape != high.shape):
            raise ParameterError(f"The {name!r} parameter has shapes {low.shape}, {high.shape}.", remedy)
        if low.ndim or high.ndim:
            low, high = (side.copy() for side in np.broadcast_arrays(low, high))
        with np.errstate(invalid="ignore", over="ignore"):
            fine = np.isfinite(low) & np.isfinite(high) & (low < high) & (high / 2 - low / 2 > 0)
        if not fine.all():
            raise ParameterError(
                fact if low.ndim == 0 else f"The {name!r} parameter has a pair without lower < upper.", remedy
            )
        return cls(low, high)

    @property
    def scalar(self) -> bool:
        """Whether all columns have the same bounds."""
        return self.lower.ndim == 0

    @property
    def symmetric(self) -> float | None:
        """b, where the bounds are one pair (-b, b)."""
        return float(self.upper) if self.scalar and self.lower == -self.upper else None

    @property
    def middle(self) -> Floats:
        """Middles; halved before adding, so that they cannot overflow."""
        return np.asarray(self.lower / 2 + self.upper / 2)

    @property
    def half_width(self) -> Floats:
        """Half-widths, > 0."""
        return np.asarray(self.upper / 2 - self.lower / 2)

    def fit(self, p: int, name: str = "feature_bounds") -> None:
        """Check that the bounds are those of p columns."""
        if not self.scalar and self.lower.shape != (p,):
            raise ParameterError(
                f"The {name!r} parameter has bounds of {self.lower.size} columns, and X has {p}.",
                "Pass one pair for all columns, or one a column.",
            )

    def scale(self, cells: Any, columns: slice | Sequence[int]) -> Floats:
        """Return cells [m, k] of these columns within [-1, 1], or within +-b for a symmetric pair."""
        with np.errstate(over="ignore"):
            values = np.array(cells, dtype=np.float64)
        b = self.symmetric
        if b is not None:
            np.nan_to_num(values, copy=False, nan=0.0, posinf=b, neginf=-b)
            return flush(np.clip(values, -b, b, out=values), b)
        low, high, middle, half = (
            side if self.scalar else side[columns]
            for side in (self.lower, self.upper, self.middle, self.half_width)
        )
        gap = np.isnan(values)
        np.clip(values, low, high, out=values)
        values -= middle
        values /= half
        np.clip(values, -1.0, 1.0, out=values)
        values[gap] = 0.0
        return flush(values, 1.0)


class BlockColumns(Columns):
    """Columns that are read in tiles; what `ScaledColumns` and `ParquetColumns` share.

    Attributes
    ----------
    n, p : int
    bound : float
        b_x of the cells as read: 1, or b for a symmetric pair of bounds.
    squares : float64 array [p]
        Sums of squares of the columns, after `measure`.
    """

    def __init__(self, shape: tuple[int, int], bounds: Bounds) -> None:
        # The cells of X are never held: `Columns.__init__`, which holds them, is not called.
        if shape[1] < 1:
            raise DataError(f"X has shape {shape}.", "Pass a matrix with at least one column.")
        bounds.fit(shape[1])
        self.n, self.p = shape
        self.bounds = bounds
        self.bound = bounds.symmetric or 1.0
        self.inside = False
        self.sparse = False
        self.squares = np.zeros(self.p)
        self._kept: dict[int, Floats] = {}
        self._room = max(64, (1 << 26) // max(8 * self.n, 1))

    def tiles(self) -> Iterator[Tile]:
        """Yield (rows, columns, scaled cells [rows, columns]); together every cell once."""
        raise NotImplementedError

    def row_tiles(self) -> Iterator[tuple[slice, Floats]]:
        """Yield (rows, scaled cells [rows, p]), for few columns."""
        raise NotImplementedError

    def measure(self, y: Floats) -> Floats:
        """Read every cell once: set `squares`; return X'y, [p]."""
        products = np.zeros(self.p)
        self.squares = np.zeros(self.p)
        for rows, columns, tile in self.tiles():
            self.squares[columns] += np.einsum("ij,ij->j", tile, tile)
            products[columns] += tile.T @ y[rows]
        return products

    def correlations(self, vectors: Floats) -> Floats:
        """Return X'V for V [n] or [n, k], float64 [p] or [p, k], in one pass."""
        result = np.zeros((self.p, *vectors.shape[1:]))
        for rows, columns, tile in self.tiles():
            result[columns] += tile.T @ vectors[rows]
        return result

    def gram(self, rows: int | None = None) -> Floats:
        """Return X'X (of the first `rows` rows), [p, p]: for few columns only."""
        result = np.zeros((self.p, self.p))
        for span, tile in self.row_tiles():
            if rows is not None:
                if span.start >= rows:
                    break
                tile = tile[: rows - span.start]
            result += tile.T @ tile
        return result


class ScaledColumns(BlockColumns):
    """A dense or sparse matrix whose columns have bounds of their own.

    Parameters
    ----------
    X : array, memory map or CSR matrix [n, p]
        Read where it lies. Of a sparse matrix a CSC copy of its stored entries is made: centring fills
        its zeros, one block of columns at a time.
    bounds : Bounds
    """

    def __init__(self, X: Any, bounds: Bounds) -> None:
        super().__init__((int(X.shape[0]), int(X.shape[1])), bounds)
        self.filled = loose.has(X, "tocsc")
        self.X: Any = X.tocsc() if self.filled else np.asarray(X)
        if not self.filled and self.X.dtype.kind == "O":
            self.X = loose.numbers(self.X)
        if self.X.dtype.kind not in "fiub":
            raise DataError(
                f"X has cells of type {self.X.dtype}.", "Pass numbers: encode other columns first."
            )
        self.by_columns = self.filled or (self.X.flags.f_contiguous and not self.X.flags.c_contiguous)

    def tiles(self) -> Iterator[Tile]:
        """Yield blocks of columns where columns are contiguous, else blocks of rows."""
        if not self.by_columns:
            for rows, tile in self.row_tiles():
                yield rows, slice(0, self.p), tile
            return
        width = max(1, _TILE // max(self.n, 1))
        for start in range(0, self.p, width):
            columns = slice(start, min(start + width, self.p))
            yield slice(0, self.n), columns, self.bounds.scale(_dense(self.X[:, columns]), columns)

    def row_tiles(self) -> Iterator[tuple[slice, Floats]]:
        """Yield blocks of rows."""
        X = self.X.tocsr() if self.filled else self.X
        height = max(1, _TILE // self.p)
        for start in range(0, self.n, height):
            rows = slice(start, min(start + height, self.n))
            yield rows, self.bounds.scale(_dense(X[rows]), slice(0, self.p))

    def _read(self, columns: list[int]) -> Floats:
        return np.asfortranarray(self.bounds.scale(_dense(self.X[:, columns]), columns))


class ParquetMatrix:
    """The numeric columns of a Parquet file as a matrix that is not read yet.

    Parameters
    ----------
    path : path
    columns : sequence of str, optional
        Default: all.

    Attributes
    ----------
    shape : (int, int)
    names : tuple of str, length p

    Raises
    ------
    DataError
        If a column is missing, named twice, or holds something else than numbers: public structure, from
        the file's metadata alone.
    """

    def __init__(self, path: str | PathLike[str], columns: Sequence[str] | None = None) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self.path = path
        self.file = pq.ParquetFile(path)
        schema = self.file.schema_arrow
        present = schema.names
        self.names = tuple(present if columns is None else map(str, columns))
        known = dict(zip(present, schema.types, strict=True))
        if len(known) < len(present) or len(set(self.names)) < len(self.names):
            raise DataError(
                "The Parquet file names a column twice.", "Rename one, or pass 'columns' without it."
            )
        for name in self.names:
            kind = known.get(name)
            if kind is None:
                raise DataError(f"The Parquet file has no column {name!r}.", "Pass names of its columns.")
            if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
                raise DataError(
                    f"Column {name!r} holds {kind}.", "Pass 'columns' of numbers: encode others first."
                )
        self.shape = (int(self.file.metadata.num_rows), len(self.names))

    def read(self, columns: Sequence[str]) -> Floats:
        """Return some columns, float64 [n, k] in F order, nulls as NaN."""
        # A name with a dot may bring others along: columns are taken by name.
        table = self.file.read(columns=list(columns), use_threads=False)
        block = np.empty((self.shape[0], len(columns)), order="F")
        for place, name in enumerate(columns):
            block[:, place] = _numbers(table.column(name))
        return block

    def batches(self, height: int) -> Iterator[Floats]:
        """Yield all columns by rows, float64 [<= height, p]."""
        for batch in self.file.iter_batches(batch_size=height, columns=list(self.names), use_threads=False):
            yield np.column_stack([_numbers(batch.column(name)) for name in self.names])


class ParquetColumns(BlockColumns):
    """A Parquet file read by blocks of columns: memory is one block and the columns in use.

    Parameters
    ----------
    matrix : ParquetMatrix
    bounds : Bounds
    """

    def __init__(self, matrix: ParquetMatrix, bounds: Bounds) -> None:
        super().__init__(matrix.shape, bounds)
        self.matrix = matrix

    def tiles(self) -> Iterator[Tile]:
        """Yield blocks of columns."""
        width = max(1, _TILE // max(self.n, 1))
        for start in range(0, self.p, width):
            columns = slice(start, min(start + width, self.p))
            block = self.matrix.read(self.matrix.names[columns])
            yield slice(0, self.n), columns, self.bounds.scale(block, columns)

    def row_tiles(self) -> Iterator[tuple[slice, Floats]]:
        """Yield blocks of rows."""
        start = 0
        for block in self.matrix.batches(max(1, _TILE // self.p)):
            yield slice(start, start + block.shape[0]), self.bounds.scale(block, slice(0, self.p))
            start += block.shape[0]

    def _read(self, columns: list[int]) -> Floats:
        block = self.matrix.read([self.matrix.names[j] for j in columns])
        return np.asfortranarray(self.bounds.scale(block, columns))


def bounded(X: Any, bounds: Any) -> tuple[Any, float]:
    """Return what `SubsetProblem` reads for a matrix in declared bounds, and its b_x.

    Parameters
    ----------
    X : array, memory map, CSR matrix or ParquetMatrix [n, p]
    bounds : pair of numbers or of arrays [p], or Bounds
        One symmetric pair (-b, b) leaves cells as they are, b_x = b; any other is centred at the middle and
        divided by the half-width, b_x = 1.

    Returns
    -------
    source, feature_bound
        For ``SubsetProblem(source, y, ..., feature_bound=feature_bound)``.

    Raises
    ------
    ParameterError, DataError
        From shapes, types and bounds alone.
    """
    declared = bounds if isinstance(bounds, Bounds) else Bounds.of(bounds)
    declared.fit(int(X.shape[1]))
    if isinstance(X, ParquetMatrix):
        source = ParquetColumns(X, declared)
        return source, source.bound
    if loose.has(X, "tocsr"):
        X = canonical(X)
    if declared.symmetric is not None:
        return X, declared.symmetric
    source = ScaledColumns(X, declared)
    return source, source.bound


def _side(side: Any) -> Floats:
    """Return one side of bounds; texts and truth values are no numbers.

    Raises
    ------
    TypeError, ValueError
    """
    values = np.asarray(side)
    kind = values.dtype.kind
    if kind not in "fiuO" or (kind == "O" and any(isinstance(x, str | bytes | bool) for x in values.flat)):
        raise TypeError
    return np.array(values, dtype=np.float64)


def _dense(block: Any) -> Any:
    return block.toarray() if hasattr(block, "toarray") else block


def _numbers(column: Any) -> Floats:
    """Return an Arrow column as float64 [n], nulls as NaN."""
    import pyarrow as pa

    # Unsafe, so that an integer past 2^53 rounds instead of raising: no cell may raise.
    return np.asarray(column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), dtype=np.float64)
