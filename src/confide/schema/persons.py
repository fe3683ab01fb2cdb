"""Bounded contributions: the first rows of each id, across all chunks of a table."""

from __future__ import annotations

import numpy as np

from confide.schema.arrays import KEY_TYPE


class PersonLimiter:
    """Numbers the ids in order of first appearance and keeps the first `limit` rows of each.

    Whether a row is kept depends on earlier rows of the same id alone, so adding or removing one person
    changes only that person's kept rows. The result does not depend on how the rows are cut into chunks.

    Memory: 28 bytes for each distinct id (key, code, count), and as much again for a moment when a chunk
    brings new ids; 140 MB for five million persons.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._keys = np.empty(0, dtype=KEY_TYPE)  # sorted
        self._codes = np.empty(0, dtype=np.int64)
        self._counts = np.empty(0, dtype=np.int32)

    def admit(self, keys: np.ndarray, present: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Take the next rows of the table.

        Parameters
        ----------
        keys : bytes array [n]
            From `arrays.id_keys`.
        present : bool array [n]
            Rows without an id are never kept.

        Returns
        -------
        codes : int64 array [n]
            Number of each row's id; -1 without one.
        kept : bool array [n]
        """
        rows = np.flatnonzero(present)
        codes = np.full(len(keys), -1, dtype=np.int64)
        kept = np.zeros(len(keys), dtype=bool)
        if len(rows) == 0:
            return codes, kept
        distinct, first, inverse, sizes = np.unique(
            keys[rows], return_index=True, return_inverse=True, return_counts=True
        )
        self._enrol(distinct, first)
        at = np.searchsorted(self._keys, distinct)
        order = np.argsort(inverse, kind="stable")
        starts = np.repeat(np.cumsum(sizes) - sizes, sizes)
        rank = np.empty(len(rows), dtype=np.int64)
        rank[order] = np.arange(len(rows)) - starts  # how many rows of this id stand above, in this chunk
        codes[rows] = self._codes[at][inverse]
        kept[rows] = self._counts[at][inverse] + rank < self.limit
        self._counts[at] = np.minimum(self._counts[at].astype(np.int64) + sizes, self.limit)
        return codes, kept

    def _enrol(self, distinct: np.ndarray, first: np.ndarray) -> None:
        places = np.searchsorted(self._keys, distinct)
        known = np.zeros(len(distinct), dtype=bool)
        inside = places < len(self._keys)
        known[inside] = self._keys[places[inside]] == distinct[inside]
        new = np.flatnonzero(~known)
        if len(new) == 0:
            return
        numbers = np.empty(len(new), dtype=np.int64)
        numbers[np.argsort(first[new], kind="stable")] = len(self._keys) + np.arange(len(new))
        self._keys = np.insert(self._keys, places[new], distinct[new])
        self._codes = np.insert(self._codes, places[new], numbers)
        self._counts = np.insert(self._counts, places[new], np.zeros(len(new), dtype=np.int32))
