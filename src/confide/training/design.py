"""The public half of a linear problem: where the rows of a design lie, streamed or in memory.

Everything here is a function of public columns alone (REPLACE_LABEL and REPLACE_PRIVATE_PART keep them
fixed between neighbouring tables), so it costs no privacy and may be computed to any accuracy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from confide.errors import DataError
from confide.training.conditioning import GRAM_RCOND, PublicMatrix, finite_rows, gram_spectrum

Floats = npt.NDArray[np.float64]

#: Rows of one block. Public and fixed: the rounding bound of a released sum counts operations per block.
BLOCK = 4096
#: Rows of a streamed design that are kept to choose weights and geometry (public, hence free).
SAMPLE = 16_384


@dataclass(frozen=True)
class Source:
    """Public rows that can be read again: `read()` yields matrices of shape (any, p), in a fixed order.

    Attributes
    ----------
    read : callable
        Returns a fresh iterator over float64 arrays or CSR matrices.
    names : tuple of str
        Length p.
    bounded : bool
        Whether entries already lie in [-1, 1] (encoded by a schema); otherwise columns are centred at the
        middle of their range and divided by half of it, which is public here.
    """

    read: Callable[[], Iterator[PublicMatrix]]
    names: tuple[str, ...]
    bounded: bool = False

    def blocks(self) -> Iterator[PublicMatrix]:
        """Yield consecutive blocks of at most `BLOCK` rows; none for a matrix without rows."""
        for matrix in self.read():
            if matrix.shape[0] == 0:  # a chunk whose rows are all beyond the limit of their persons
                continue
            matrix = finite_rows(matrix)
            if matrix.shape[1] != len(self.names):
                raise DataError(
                    f"A block of public rows has {matrix.shape[1]} columns instead of {len(self.names)}.",
                    "Read all blocks with one schema.",
                )
            for start in range(0, matrix.shape[0], BLOCK):
                yield matrix[start : start + BLOCK]


@dataclass(frozen=True)
class Basis:
    """Coordinates u of a row in which the whole design has orthonormal columns (U'U = I).

    u = [1/sqrt(n), ((x - offset) / scale - mean) @ directions], the constant first where there is an
    intercept; without one, offset and mean are zero and the constant is left out.

    Attributes
    ----------
    offset, scale, mean : ndarray of shape (p,)
    directions : ndarray of shape (p, r)
        V S^-1 of the centred design.
    singular_values : ndarray of shape (r,)
        Descending, of the centred and scaled design.
    n : int
        Number of rows; public under the relations that this room supports.
    intercept : bool
    names : tuple of str
    sample : ndarray of shape (m, k)
        Coordinates of evenly spaced rows, all of them where n <= SAMPLE.
    """

    offset: Floats
    scale: Floats
    mean: Floats
    directions: Floats
    singular_values: Floats
    n: int
    intercept: bool
    names: tuple[str, ...]
    sample: Floats

    @property
    def size(self) -> int:
        """Number k of coordinates: the rank, plus one for the intercept."""
        return self.directions.shape[1] + int(self.intercept)

    def coordinates(self, block: PublicMatrix) -> Floats:
        """Return the coordinates of a block, shape (b, k)."""
        first = int(self.intercept)
        out = np.empty((block.shape[0], self.size))
        if first:
            out[:, 0] = 1.0 / math.sqrt(self.n)
        if isinstance(block, np.ndarray):
            # Centre before multiplying: a column such as a year would lose its digits otherwise.
            out[:, first:] = self.standardise(block) @ self.directions
        else:
            folded = self.directions / self.scale[:, None]
            shift = (self.offset / self.scale + self.mean) @ self.directions
            out[:, first:] = block @ folded - shift
        return out

    def standardise(self, block: Floats) -> Floats:
        """Return (x - offset) / scale - mean."""
        # Halves first: the difference of two finite numbers near 1e308 overflows.
        return (block / 2 - self.offset / 2) / (self.scale / 2) - self.mean

    def to_coefficients(self) -> Floats:
        """Return J of shape (p + 1, k): (intercept, coefficients of x) = J theta."""
        first = int(self.intercept)
        J = np.zeros((len(self.names) + 1, self.size))
        J[1:, first:] = self.directions / self.scale[:, None]
        if first:
            J[0, 0] = 1.0 / math.sqrt(self.n)
            J[0, 1:] = -(self.offset / self.scale + self.mean) @ self.directions
        return J


def public_basis(source: Source, *, intercept: bool = True, rcond: float = GRAM_RCOND) -> Basis:
    """Read a public design (one pass where it is bounded, two otherwise) and return its basis.

    Parameters
    ----------
    source : Source
    intercept : bool
        Whether a constant column belongs to the design.
    rcond : float
        Public relative cut-off on singular values: smaller directions do not exist.

    Raises
    ------
    DataError
        If there are no rows, or a public cell is not finite.
    """
    p = len(source.names)
    offset, scale = np.zeros(p), np.ones(p)
    if not source.bounded:
        offset, scale = _ranges(source, intercept)
    total, gram, n, kept = np.zeros(p), np.zeros((p, p)), 0, []
    stride, pending = 1, 0
    for block in source.blocks():
        plain = (
            (block / 2 - offset / 2) / (scale / 2)
            if isinstance(block, np.ndarray)
            else _scale_sparse(block, scale)
        )
        square = plain.T @ plain
        gram += square if isinstance(square, np.ndarray) else square.toarray()
        total += np.asarray(plain.sum(axis=0)).ravel()
        first = -n % stride
        kept.append(block[first::stride])
        n += block.shape[0]
        pending += kept[-1].shape[0]
        if pending > 2 * SAMPLE:
            # Thin what is kept by two and go on: evenly spaced whatever the length of the stream.
            kept, stride = [_stack(kept)[::2]], stride * 2
            pending = kept[0].shape[0]
    if n == 0:
        raise DataError("The public design has no rows.", "Pass at least one row.")
    # Sparse blocks were not shifted by their offset; the centred Gram matrix does not depend on it.
    mean = total / n if intercept else np.zeros(p)
    centred = gram - n * np.outer(mean, mean)
    s, V = gram_spectrum(centred) if p else (np.zeros(0), np.zeros((0, 0)))
    # The floor is relative to the uncentred size too: what a constant column leaves behind is rounding.
    top = max(float(s[0]), math.sqrt(float(np.trace(gram)) / max(p, 1)) * 1e-3) if p else 0.0
    keep = s > rcond * top
    directions = V[:, keep] / s[keep]
    basis = Basis(offset, scale, mean, directions, s[keep], n, intercept, source.names, np.zeros((0, 0)))
    rows = _stack(kept)
    step = -(-rows.shape[0] // SAMPLE)
    object.__setattr__(basis, "sample", basis.coordinates(rows[::step]))
    return basis


def _ranges(source: Source, intercept: bool) -> tuple[Floats, Floats]:
    low, high, any_sparse = np.inf, -np.inf, False
    for block in source.blocks():
        if isinstance(block, np.ndarray):
            low, high = np.minimum(low, block.min(axis=0)), np.maximum(high, block.max(axis=0))
        else:
            any_sparse = True
            low = np.minimum(low, block.min(axis=0).toarray().ravel())
            high = np.maximum(high, block.max(axis=0).toarray().ravel())
    p = len(source.names)
    if np.any(low > high):
        raise DataError("The public design has no rows.", "Pass at least one row.")
    low, high = np.broadcast_to(low, p).astype(float), np.broadcast_to(high, p).astype(float)
    if not intercept or any_sparse:
        half = np.maximum(np.abs(low), np.abs(high))
        return np.zeros(p), np.where(half > 0, half, 1.0)
    half = high / 2 - low / 2
    return low / 2 + high / 2, np.where(half > 0, half, 1.0)


def _scale_sparse(block: PublicMatrix, scale: Floats) -> PublicMatrix:
    from scipy import sparse

    return block @ sparse.diags_array(1.0 / scale)


def _stack(parts: list[PublicMatrix]) -> PublicMatrix:
    if len(parts) == 1:
        return parts[0]
    if all(isinstance(part, np.ndarray) for part in parts):
        return np.concatenate(parts)
    from scipy import sparse

    return sparse.vstack([sparse.csr_matrix(part) for part in parts]).tocsr()
