"""What a certificate is: training without noise that knows how far each answer is from another table's.

For a query x and a training table D the *stability distance* k(D; x) is a whole number >= 0 with two
properties, which every certificate of this room proves in its docstring:

1. *sound*: no table within k changes of D, in the declared adjacency, has another class for x;
2. *1-Lipschitz*: |k(D; x) - k(D'; x)| <= 1 for neighbours D, D'.

So where the classes of neighbours differ, both distances are 0. Soundness alone is not enough: an error
probability set by k leaks unless k is 1-Lipschitz.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from confide.errors import DataError, ParameterError
from confide.prediction.ids import check_ids, names
from confide.privacy import Adjacency
from confide.schema.loose import matrix_of, numbers, vector_of

Labels = NDArray[np.int64]
Words = NDArray[np.uint64]


@runtime_checkable
class Certified(Protocol):
    """A fitted model with its stability distances: private data, no release."""

    def stability(self, X: ArrayLike) -> tuple[Labels, Labels]:
        """Return the class and the stability distance of each query.

        Parameters
        ----------
        X : float array [q, p]
            Public queries.

        Returns
        -------
        labels : int64 array [q]
            0 ... classes - 1.
        k : int64 array [q]
            Both are functions of the training table: publish neither.
        """
        ...


def steady(model: Certified, X: ArrayLike) -> tuple[Labels, Labels]:
    """Return what `Certified.stability` does, by the model's own `steady` where it has one.

    That takes the same steps whatever the distances are; `stability` may stop early.
    """
    own = getattr(model, "steady", model.stability)
    return own(X)


@runtime_checkable
class Certificate(Protocol):
    """How to fit a certified model.

    Attributes
    ----------
    adjacency : Adjacency or its name
        Whose changes k counts.
    classes : int
    """

    @property
    def adjacency(self) -> Any:
        """Whose changes k counts."""
        ...

    @property
    def classes(self) -> int:
        """Number of classes."""
        ...

    def fit(self, X: ArrayLike, y: ArrayLike, *, ids: Any = None) -> Certified:
        """Train on a table.

        Parameters
        ----------
        X : float array [n, p]
        y : int array [n]
            0 ... classes - 1; any other value counts as 0, without a word.
        ids : sequence of int, str or bytes [n], optional
            The privacy unit's id of each row. None: the row's number under the replacement relations, a hash
            of the row's content under ADD_REMOVE_ONE; so for a row whose cell is no id
            (`confide.prediction.ids`).
        """
        ...


def table(X: ArrayLike, y: ArrayLike, classes: int) -> tuple[NDArray[np.float64], Labels]:
    """Return rows [n, p] and classes [n]; labels that are no class count as class 0.

    Cells of lists and of arrays of objects decide no exception: those that are no number are NaN.
    """
    rows = cells(X)
    given = _floats(vector_of(y), "labels", f"Pass integers 0 ... {classes - 1}.")
    if given.shape != rows.shape[:1]:
        # Without the number of rows, which may be secret.
        raise DataError("There is not one label for each row.", "Pass labels of shape (n,).")
    known = (given >= 0) & (given < classes) & (given == np.floor(given))
    return rows, np.where(known, given, 0.0).astype(np.int64)


def cells(X: ArrayLike) -> NDArray[np.float64]:
    """Return rows of a training table [n, p]; see `table`."""
    return _two(_floats(matrix_of(X), "'X'", "Pass a matrix of floats."), "X")


def matrix(X: ArrayLike, name: str) -> NDArray[np.float64]:
    """Return a float64 matrix of public numbers."""
    try:
        rows = np.asarray(X, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise DataError(f"The '{name}' are no numbers.", "Pass a matrix of floats.") from None
    return _two(rows, name)


def _two(rows: NDArray[np.float64], name: str) -> NDArray[np.float64]:
    if rows.ndim != 2:
        raise DataError(f"The '{name}' have {rows.ndim} dimensions.", "Pass a matrix, one row a query.")
    return rows


def _floats(values: Any, name: str, remedy: str) -> NDArray[np.float64]:
    given = np.asarray(values)
    if given.dtype.kind not in "biufO":  # the type of an array is declared, and public
        raise DataError(f"The {name} are no numbers (type {given.dtype}).", remedy)
    return numbers(given)


def warn_of_strange(queries: NDArray[np.float64]) -> None:
    """Warn of queries with cells that are no finite numbers; queries are public."""
    if not np.isfinite(queries).all():
        warnings.warn(
            "Some rows have cells that are NaN or infinite. They are answered, and charged, with the middle "
            "of the bounds in place of NaN, and a bound in place of an infinity.",
            stacklevel=3,
        )


def id_hash(ids: Any, key: str) -> Words:
    """Return a keyed 64-bit hash of what each id names (`confide.prediction.ids`).

    Parameters
    ----------
    ids : sequence [n]
        An int and its decimal digits as text are different ids. All cells that are no id have one hash.
    key : str
        Public and fixed; at most 64 bytes.

    Returns
    -------
    uint64 array [n]
    """
    return _hashed([name or b"" for name in names(ids)], key_bytes(key))


def id_digests(ids: Any, key: str) -> NDArray[np.bytes_]:
    """Return a keyed 128-bit digest of each id, bytes [n]: a name that stands for the id alone.

    64 bits place a row; where ids must be told apart, nobody must be able to find two with one digest. A cell
    that is no id has no bytes, which is no id again where digests are passed for ids.
    """
    secret = key_bytes(key)

    def digest(name: bytes) -> bytes:
        return hashlib.blake2b(b"digest " + name, digest_size=16, key=secret).digest()

    found = [b"" if name is None else digest(name) for name in names(ids)]
    return np.array(found, dtype="S16")


def row_hash(X: NDArray[np.float64], y: Labels, key: str) -> Words:
    """Return a keyed 64-bit hash of each row's content, its label included."""
    content = np.ascontiguousarray(np.column_stack([X, y]) + 0.0)  # -0.0 becomes 0.0
    return _hashed([b"r" + row.tobytes() for row in content], key_bytes(key))


def hashes(X: NDArray[np.float64], y: Labels, ids: Any, adjacency: Adjacency, key: str) -> Words:
    """Return the hash that places each row: of its id, or of number or content (see `Certificate.fit`)."""
    if ids is not None:
        check_ids(ids, X.shape[0])
    by_content = adjacency is Adjacency.ADD_REMOVE_ONE
    alone = row_hash(X, y, key) if by_content else id_hash(range(X.shape[0]), key)
    if ids is None:
        return alone
    found = names(ids)
    none = np.array([name is None for name in found], dtype=bool)
    return np.where(none, alone, _hashed([name or b"" for name in found], key_bytes(key)))


def key_bytes(key: str) -> bytes:
    """Return a hash key from its public text."""
    data = key.encode() if isinstance(key, str) else b""
    if not 0 < len(data) <= 64:
        raise ParameterError(f"The 'key' parameter is {key!r:.80}.", "Pass a text of 1 to 64 bytes.")
    return data


def _hashed(texts: Sequence[bytes], key: bytes) -> Words:
    digests = b"".join(hashlib.blake2b(text, digest_size=8, key=key).digest() for text in texts)
    return np.frombuffer(digests, dtype="<u8").astype(np.uint64)
