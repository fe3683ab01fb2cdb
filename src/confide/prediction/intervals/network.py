"""Networks of rectified units, their parameters in one vector, and rows in blocks for the kernels."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from confide.errors import DataError, ParameterError
from confide.schema.loose import matrix_of, numbers, vector_of

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
#: Rows of a block: what the innermost loops run over, small enough for the caches.
_BLOCK = 256
#: Sums over rows are exact in 64-bit integers up to here (2^38 grid steps a row), changed rows included;
#: up to 2^24 rows where k is below 2^22, which is what a secret number of rows is taken to be.
MOST_ROWS = 1 << 22
#: 2 GiB: more is a mistake, or a file that was made to exhaust its reader.
_MOST_PARAMETERS = 1 << 28
#: Rows that a feature map sees at once: always so many, the rest zeros.
_MAPPED = 256


@dataclass(frozen=True)
class Network:
    """Layers of units, inputs first: (d, C) is a linear model, (d, 16, C) has one hidden layer.

    Hidden units are max(0, z). One output is a logit for class 1 (class 1 where it is above 0); C >= 2
    outputs belong to C classes, and of equal ones the first wins.

    Parameters
    ----------
    layers : sequence of int
    """

    layers: tuple[int, ...]

    def __post_init__(self) -> None:
        try:
            layers = tuple(int(units) for units in self.layers)
            good = len(layers) >= 2 and min(layers) >= 1 and layers == tuple(self.layers)
        except (TypeError, ValueError):
            layers, good = (), False
        if not good:
            raise ParameterError(
                f"The 'layers' parameter is {self.layers!r:.80}.",
                "Pass at least two sizes, such as [6, 16, 2].",
            )
        object.__setattr__(self, "layers", layers)
        if self.size > _MOST_PARAMETERS:
            raise ParameterError(f"The 'layers' have {self.size} parameters.", "Pass 2^28 at most.")

    @property
    def dims(self) -> Ints:
        """The sizes, for the kernels."""
        return np.array(self.layers, dtype=np.int64)

    @property
    def outputs(self) -> int:
        """Number of logits."""
        return self.layers[-1]

    @property
    def classes(self) -> int:
        """Number of classes."""
        return max(2, self.layers[-1])

    @property
    def size(self) -> int:
        """Number of parameters."""
        return sum((n_in + 1) * n_out for n_in, n_out in zip(self.layers, self.layers[1:]))

    @property
    def order(self) -> Ints:
        """Place of each kernel parameter (a layer's [out, in + 1]) in the flat vector (weight, then bias)."""
        parts, start = [], 0
        for n_in, n_out in zip(self.layers, self.layers[1:]):
            weight = start + np.arange(n_in * n_out).reshape(n_out, n_in)
            bias = start + n_in * n_out + np.arange(n_out)
            parts.append(np.column_stack([weight, bias]).ravel())
            start += (n_in + 1) * n_out
        return np.concatenate(parts)

    def inward(self, flat: Any) -> Floats:
        """Return flat parameters [..., parameter] in the order of the kernels."""
        return np.ascontiguousarray(np.asarray(flat, dtype=np.float64)[..., self.order])

    def outward(self, inner: Floats) -> Floats:
        """Return kernel parameters [..., parameter] in the flat order."""
        out = np.empty_like(inner)
        out[..., self.order] = inner
        return out

    def initial(self, seed: int) -> Floats:
        """Return a public start: uniform in +-1/sqrt(inputs of the layer) for weights and biases alike."""
        rng = np.random.default_rng(seed)
        parts = []
        for n_in, n_out in zip(self.layers, self.layers[1:]):
            parts.append(rng.uniform(-1, 1, (n_in + 1) * n_out) / np.sqrt(n_in))
        return np.concatenate(parts)

    def check_parameters(self, init: Any) -> Floats:
        """Return public initial parameters as one vector.

        Raises
        ------
        ParameterError
            If they are not finite or too many or few.
        """
        try:
            flat = np.asarray(init, dtype=np.float64)
        except (TypeError, ValueError):
            flat = np.empty((0, 0))
        if flat.shape != (self.size,) or not np.isfinite(flat).all():
            raise ParameterError(
                f"The 'init' parameter has shape {flat.shape} or is not finite.",
                f"Pass {self.size} finite numbers: layer by layer, weight [out, in] and then bias.",
            )
        return flat


@dataclass(frozen=True)
class Rows:
    """Rows in blocks.

    Attributes
    ----------
    X : ndarray, shape [blocks, inputs + 1, block]
        The last unit is 1; rows that cannot be used are 0 everywhere.
    codes : ndarray of int64, shape [rows]
        Class, or -1 for a row that cannot be used.
    """

    X: Floats
    codes: Ints

    @property
    def count(self) -> int:
        """Number of rows, unusable ones too."""
        return len(self.codes)


def matrix(X: Any, inputs: int) -> Floats:
    """Return rows as float64, [rows, inputs]; cells that are no number count as NaN.

    Cell by cell (`confide.schema.loose`): what one cell holds decides nothing about another, so neighbouring
    tables differ in the changed row alone. (Were a table read as a whole, one text would turn the dates of
    all other rows from numbers into NaN.)

    ======================================  =====================================================
    edge case                               what happens
    ======================================  =====================================================
    text, date, None, complex, list         that cell is NaN; texts that spell a number are one
    10**400, long double 1e4000             that cell is inf; no warning
    array of text, times, complex numbers   DataError by its type, which is declared and public
    rows of several lengths, other shapes   DataError
    ======================================  =====================================================

    Raises
    ------
    DataError
        If the shape is another, or the declared type is no number.
    """
    values = np.asarray(matrix_of(X))
    if values.ndim != 2 or values.shape[1] != inputs:
        raise DataError("The rows do not have the network's number of inputs.", f"Pass [rows, {inputs}].")
    return _numbers(values, "rows")


def _numbers(given: Any, what: str) -> Floats:
    values = np.asarray(given)
    if values.dtype.kind not in "biufO":
        raise DataError(f"The {what} are no numbers (type {values.dtype}).", "Pass numbers.")
    return values if values.dtype == np.float64 else numbers(values)


def apply_map(features: Callable[[Floats], Any] | None, X: Any, width: int) -> Any:
    """Apply a frozen map to `width` features in blocks of one size: a row's place does not matter.

    Cells are read as in `matrix`. The map sees zeros first, where its exceptions are the caller's; what it
    does to rows shows in no exception or warning.

    ==========================================  ========================================================
    edge case                                   what happens
    ==========================================  ========================================================
    the map fails on zeros, or gives no         its exception, or DataError, whatever the table is
    [256, width]
    it raises on some rows                      these rows are NaN: the block is mapped row by row
    it warns, or numbers overflow               silence
    arrays of more than two dimensions          rows are whatever the first dimension counts
    ==========================================  ========================================================

    Raises
    ------
    DataError
    """
    if features is None:
        return X
    values = _numbers(matrix_of(X), "rows")
    if values.ndim < 2:
        raise DataError(f"The rows have {values.ndim} dimensions.", "Pass a matrix, one row a query.")
    blank = np.zeros((_MAPPED, *values.shape[1:]))
    shape = np.shape(features(blank.copy()))
    if shape != (_MAPPED, width):
        raise DataError(f"The map of features gives {shape}.", f"Return [{_MAPPED}, {width}] for such rows.")
    out = np.empty((len(values), width))
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for start in range(0, len(values), _MAPPED):
            part = values[start : start + _MAPPED]
            out[start : start + len(part)] = _mapped(features, blank, part, width)
    return out


def _mapped(features: Callable[[Floats], Any], blank: Floats, part: Floats, width: int) -> Floats:
    block = blank.copy()
    block[: len(part)] = part
    try:
        return np.asarray(features(block), dtype=np.float64).reshape(_MAPPED, width)[: len(part)]
    except Exception:  # of some row: the others keep their bits, as a map gives a row the same anywhere
        if len(part) == 1:
            return np.full((1, width), np.nan)
        rows = [_mapped(features, blank, part[i : i + 1], width) for i in range(len(part))]
        return np.concatenate(rows)


def class_codes(y: Any, classes: int) -> Ints:
    """Return class numbers, -1 for whatever is none of 0 ... classes - 1; labels are read as in `matrix`."""
    values = _numbers(vector_of(y), "labels").reshape(-1)
    out = np.full(len(values), -1, dtype=np.int64)
    for number in range(classes):
        out[values == number] = number
    return out


def blocks(X: Floats, codes: Ints) -> Rows:
    """Return rows in blocks; a row with a cell that is not finite, or code -1, becomes unusable."""
    n, d = X.shape
    size = max(1, min(_BLOCK, n))
    out = np.zeros((-(-n // size), d + 1, size))
    codes = codes.copy()
    for number, block in enumerate(out):
        part = slice(number * size, min((number + 1) * size, n))
        usable = np.isfinite(X[part]).all(axis=1) & (codes[part] >= 0)
        block[:d, : len(usable)] = np.where(usable, X[part].T, 0.0)
        block[d, : len(usable)] = usable
        codes[part][~usable] = -1
    return Rows(out, codes)


def check_rows(rows: int) -> None:
    """Refuse a batch of more rows than sums are exact for; only where their number is public.

    Raises
    ------
    DataError
    """
    if rows > MOST_ROWS:
        raise DataError(f"A batch has more than {MOST_ROWS:,} rows.", "Use more batches.")


def parse_layers(layers: Sequence[int] | Network) -> Network:
    """Return the network of a list of sizes."""
    return layers if isinstance(layers, Network) else Network(tuple(layers))
