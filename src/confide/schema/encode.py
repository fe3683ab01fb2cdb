"""From cleaned columns to design matrices, by the schema alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from confide.schema.column import Column

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

#: A block is sparse when it is at least this wide and at most this full, both known from the schema.
SPARSE_WIDTH = 64
SPARSE_SHARE = 0.25


@dataclass(frozen=True)
class Encoded:
    """A block of columns as a matrix.

    Attributes
    ----------
    matrix : float64 array or scipy CSR matrix, shape [n, p]
        Numeric columns are centred at the middle of their (transformed) bounds and divided by the
        half-width, so they lie in [-1, 1]. A categorical column becomes one 0/1 column a level, ``"other"``
        included. Hence all entries lie in [-1, 1] for every table. Read-only.
    names : tuple of str, length p
        ``age``, ``region=south`` ...
    """

    matrix: np.ndarray | csr_matrix
    names: tuple[str, ...]

    @property
    def sparse(self) -> bool:
        """Whether `matrix` is a CSR matrix."""
        return not isinstance(self.matrix, np.ndarray)

    def __repr__(self) -> str:
        return f"Encoded({len(self.names)} columns, {'sparse' if self.sparse else 'dense'})"


def is_sparse(columns: Sequence[Column]) -> bool:
    """Whether a block of these columns is encoded as CSR: decided by the schema, never by the data."""
    width = sum(len(column.feature_names) for column in columns)
    return width >= SPARSE_WIDTH and len(columns) <= SPARSE_SHARE * width


def encode(columns: Sequence[Column], cleaned: Mapping[str, np.ndarray], n_rows: int) -> Encoded:
    """Encode cleaned columns (numbers, or int32 codes of levels) as one matrix.

    Parameters
    ----------
    columns : sequence of Column
        Numeric or categorical, in the order of the block.
    cleaned : mapping
        From names to arrays [n] as `Table` holds them.
    n_rows : int
        n, for a block without columns.
    """
    names = tuple(name for column in columns for name in column.feature_names)
    if is_sparse(columns):
        return Encoded(_sparse(columns, cleaned, n_rows, len(names)), names)
    matrix = np.zeros((n_rows, len(names)), dtype=np.float64)
    at = 0
    for column in columns:
        values = cleaned[column.name]
        if column.numeric:
            matrix[:, at] = scaled(column, values)
        else:
            matrix[np.arange(n_rows), at + values] = 1.0
        at += len(column.feature_names)
    matrix.setflags(write=False)
    return Encoded(matrix, names)


def scaled(column: Column, values: np.ndarray) -> np.ndarray:
    """Return cleaned numbers as (x - middle) / half-width, in [-1, 1] despite rounding."""
    return np.clip((values - column.middle) / column.half_width, -1.0, 1.0)


def _sparse(
    columns: Sequence[Column], cleaned: Mapping[str, np.ndarray], n_rows: int, width: int
) -> csr_matrix:
    """One stored entry a column and row: the pattern's size tells nothing beyond n."""
    from scipy.sparse import csr_matrix

    count = len(columns)
    data = np.ones((n_rows, count), dtype=np.float64)
    indices = np.empty((n_rows, count), dtype=np.int32)
    at = 0
    for place, column in enumerate(columns):
        values = cleaned[column.name]
        if column.numeric:
            data[:, place] = scaled(column, values)
            indices[:, place] = at
        else:
            indices[:, place] = at + values
        at += len(column.feature_names)
    starts = np.arange(n_rows + 1, dtype=np.int64) * count
    if starts[-1] < 2**31:
        starts = starts.astype(np.int32)
    matrix = csr_matrix((data.reshape(-1), indices.reshape(-1), starts), shape=(n_rows, width))
    matrix.has_sorted_indices = True
    matrix.has_canonical_format = True
    for part in (matrix.data, matrix.indices, matrix.indptr):
        part.setflags(write=False)
    return matrix
