"""Which rows enter which step: decided by a row's place or id, never by the other rows.

Shuffles, batches of consecutive rows under insertion, and batch counts that depend on the number of rows
would move other rows when one changes; none of them exists here (pitfall F59).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from confide.errors import DataError, ParameterError, UnsupportedError
from confide.prediction.certificate import hashes, key_bytes
from confide.privacy import Adjacency

Places = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class FixedBatches:
    """Row i enters batch i mod `count`. Replacement only, where places are public.

    An epoch visits the batches in order; a batch's divisor is its number of rows, public too.

    Parameters
    ----------
    count : int
        >= 1, at most the number of rows.
    """

    count: int = 1

    def __post_init__(self) -> None:
        _whole("count", self.count)

    def check(self, relation: Adjacency, rows: int | None = None) -> None:
        """Refuse a relation under which places move, and empty batches."""
        if relation is Adjacency.ADD_REMOVE_ONE:
            raise UnsupportedError(
                "Batches by place under add/remove: one row more moves all later rows.",
                "Pass batches=HashedBatches(count, divisor), with lasting ids.",
            )
        if rows is not None and self.count > rows:
            raise DataError(f"There are {self.count} batches for {rows} rows.", "Ask for fewer batches.")

    def split(self, X: Floats, codes: Places, ids: Any) -> list[Places]:
        """Return the places of each batch."""
        return [np.arange(start, len(codes), self.count) for start in range(self.count)]

    def divisor_of(self, places: Places) -> float:
        """Return what the sum of a batch is divided by."""
        return float(len(places))


@dataclass(frozen=True)
class HashedBatches:
    """Row with id u enters batch (keyed hash of u) mod `count`; each sum is divided by a public number.

    Without ids the hash is of the row's content.

    Parameters
    ----------
    count : int
        >= 1.
    divisor : float
        b0 > 0, public: a guess of a batch's size, never the size itself, which is secret.
    key : str
        Public.
    """

    count: int
    divisor: float
    key: str = "confide"

    def __post_init__(self) -> None:
        _whole("count", self.count)
        if not 1e-100 < float(self.divisor) < 1e100:
            raise ParameterError(f"The 'divisor' is {self.divisor!r:.80}.", "Pass a positive finite number.")
        key_bytes(self.key)

    def check(self, relation: Adjacency, rows: int | None = None) -> None:
        """Refuse replacement: the new row's id may lie in another batch, which is two changes."""
        if relation is not Adjacency.ADD_REMOVE_ONE:
            raise UnsupportedError(
                f"Batches by hash under {relation.value}: a replaced row may change its batch.",
                "Pass batches=FixedBatches(count), or certify under add_remove_one and halve k.",
            )

    def split(self, X: Floats, codes: Places, ids: Any) -> list[Places]:
        """Return the places of each batch; some may be empty."""
        if self.count == 1:
            return [np.arange(len(codes))]
        batch = hashes(X, codes, ids, Adjacency.ADD_REMOVE_ONE, self.key) % np.uint64(self.count)
        return [np.nonzero(batch == number)[0] for number in range(self.count)]

    def divisor_of(self, places: Places) -> float:
        """Return what the sum of a batch is divided by."""
        return float(self.divisor)


Batches = FixedBatches | HashedBatches


def parse(value: Any, relation: Adjacency) -> Batches:
    """Return the batches of a count (None is one), or check the ones given.

    Raises
    ------
    ParameterError, UnsupportedError
        Where the relation needs another kind, or a public divisor.
    """
    if value is None or (isinstance(value, int | np.integer) and not isinstance(value, bool)):
        value = FixedBatches(1 if value is None else int(value))
    if not isinstance(value, FixedBatches | HashedBatches):
        raise ParameterError(
            f"The 'batches' parameter is {value!r:.80}.", "Pass a count, FixedBatches or HashedBatches."
        )
    value.check(relation)
    return value


def _whole(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 1 <= value <= 1 << 20:
        raise ParameterError(f"The '{name}' of batches is {value!r:.80}.", "Pass an integer from 1 to 2^20.")
