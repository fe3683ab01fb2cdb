"""Canonical queries: one row, one text of bytes, one keyed name.

A query is the encoded row that the model reads, so that 1, 1.0 and "1", or two numbers past a bound, are the
same query. Its name is a keyed hash of these bytes; the key is made from the ledger's secret key, the model's
digest, the mechanism, epsilon and delta. Another model, mechanism or amount gives other names, and a store
alone does not show what was asked.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.prediction.model import CertifiedModel
from confide.service.config import ServiceConfig
from confide.service.records import RowError

NAME_BYTES = 16
_MOST_FAULTS = 20


def model_digest(model: CertifiedModel) -> bytes:
    """Return SHA-256 over everything that decides an answer: the fitted model, its classes and its schema.

    As secret as the model: only keyed hashes of it are stored.

    Raises
    ------
    UnsupportedError
        For a model of foreign objects, which has no canonical form.
    """
    from confide.prediction.saved import digest
    from confide.prediction.states import pack

    arrays: list[Any] = []
    facts = model.facts
    header = {
        "model": pack(model.certified, arrays),
        "classes": [facts.classes.dtype.str, facts.classes.tolist()],
        "adjacency": facts.adjacency.value,
        "columns": facts.columns,
        "unit": facts.unit,
        "schema": None if facts.schema is None else facts.schema.to_dict(),
    }
    return digest(json.dumps(header, sort_keys=True).encode(), [np.asarray(array) for array in arrays])


class Names:
    """Names of queries and requests under one model, mechanism and amount.

    Attributes
    ----------
    release : bytes
        Name of model, mechanism and amount together.
    """

    def __init__(self, secret: bytes, model: bytes, config: ServiceConfig) -> None:
        then = (
            [config.then, str(config.then_epsilon)] if config.then else []
        )  # names without stay as they were
        terms = json.dumps([config.release, str(config.epsilon), str(config.delta), *then]).encode()
        self._key = hmac.digest(secret, b"confide service query:" + model + terms, "sha256")
        self._apart = config.stable
        self._requests = hmac.digest(secret, b"confide service request", "sha256")
        self.release = hmac.digest(self._key, b"release", "sha256")[:NAME_BYTES]

    def queries(self, rows: NDArray[np.float64], analyst: str) -> list[bytes]:
        """Return a name a row; under the sparse vector each analyst has its own epochs, and its own names."""
        data = rows.astype("<f8", copy=False).tobytes()
        size = len(data) // max(1, rows.shape[0])
        new, key = hashlib.blake2b, self._key
        if self._apart:
            key = hmac.digest(key, b"analyst:" + analyst.encode(), "sha256")
        return [
            new(data[at : at + size], digest_size=NAME_BYTES, key=key).digest()
            for at in range(0, rows.shape[0] * size, size)
        ]

    def content(self, queries: Sequence[bytes]) -> bytes:
        """Return the name of what a request asks: the release, then its queries in order."""
        return (
            self.release + hashlib.blake2b(b"".join(queries), digest_size=NAME_BYTES, key=self._key).digest()
        )

    def request(self, analyst: str, request_id: str) -> bytes:
        """Return the name of an analyst's request id, whatever it asks of which model."""
        text = json.dumps([analyst, request_id]).encode()
        return hashlib.blake2b(text, digest_size=NAME_BYTES, key=self._requests).digest()


def canonical(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return rows with one zero and one NaN, contiguous: what is named is what the model reads."""
    held = np.ascontiguousarray(rows, dtype=np.float64) + 0.0
    held[np.isnan(held)] = np.nan
    return held


class Reader:
    """Reads the rows of requests as a model's declaration says.

    Parameters
    ----------
    model : CertifiedModel
    most : int
        Rows of one request.

    Notes
    -----
    ==================================  ==================================================================
    row of a model with a schema        outcome
    ==================================  ==================================================================
    a field is missing, or unknown      `RowError`
    null                                the schema's public constant
    text, list, object for a number     `RowError`
    a number past a bound               the bound
    a category that is not declared     the level "other"
    not a dict; no rows; too many       `RowError`
    ==================================  ==================================================================

    A model on arrays takes rows that are lists of finite numbers or None. Nothing warns of cells, as the
    library does elsewhere: a warning would carry them into a log.
    """

    def __init__(self, model: CertifiedModel, most: int) -> None:
        from confide.prediction.model import feature_schema

        self._model, self._most = model, most
        self._features = None if model.schema is None else feature_schema(model.schema)
        self._columns: tuple[Any, ...] = () if self._features is None else self._features.columns
        self._codes = {column.name: _codes(column) for column in self._columns if not column.numeric}

    def __call__(self, rows: Sequence[Any]) -> NDArray[np.float64]:
        """Return the canonical rows of a request.

        Raises
        ------
        RowError
            Names rows and fields, never a value.
        """
        most = self._most
        if not isinstance(rows, Sequence) or isinstance(rows, str | bytes) or not 1 <= len(rows) <= most:
            raise RowError(((0, "rows", f"a list of 1 to {most} rows is needed"),))
        plain = self._plain(rows) if self._columns else None
        if plain is not None:
            return canonical(self._encoded(plain, len(rows)))
        faults = _of_lists(rows, self._model.facts.columns) if not self._columns else self._of_dicts(rows)
        if faults:
            raise RowError(tuple(faults[:_MOST_FAULTS]))
        if not self._columns:
            cells = [[np.nan if cell is None else cell for cell in row] for row in rows]
            return canonical(self._model.queries(np.array(cells, dtype=np.float64)))
        return canonical(self._encoded(self._built(rows), len(rows)))

    def _plain(self, rows: Sequence[Any]) -> dict[str, NDArray[Any]] | None:
        """Return the cleaned columns of rows of finite floats and names of levels; None for any others.

        A column at a time, which is many times faster than a cell at a time, and the same as `build` of them:
        it, too, cleans numbers by `Column.clean`, and `_codes` asks it. None says nothing of the rows: they
        are looked at again.
        """
        names = {column.name for column in self._columns}
        if not all(type(row) is dict and row.keys() == names for row in rows):
            return None
        cleaned: dict[str, NDArray[Any]] = {}
        for column in self._columns:
            cells = [row[column.name] for row in rows]
            kinds = set(map(type, cells))
            if kinds == {float} and column.numeric:
                held = np.array(cells)
                if not np.isfinite(held).all():
                    return None
                cleaned[column.name] = column.clean(held)
            elif kinds == {str} and not column.numeric:
                codes = list(map(self._codes[column.name].get, cells))
                if None in codes:
                    return None
                cleaned[column.name] = np.array(codes, dtype=np.int32)
            else:
                return None
        return cleaned

    def _built(self, rows: Sequence[Any]) -> dict[str, NDArray[Any]]:
        """Return the cleaned columns of rows that have no faults."""
        from confide.schema.table import build

        raw = {column.name: _cells([row[column.name] for row in rows]) for column in self._columns}
        table = build(self._features, raw, None, notice=_unheard)  # pyright: ignore[reportArgumentType]
        return {column.name: table.values(column.name) for column in self._columns}

    def _encoded(self, cleaned: dict[str, NDArray[Any]], count: int) -> NDArray[np.float64]:
        from confide.schema.encode import encode

        matrix: Any = encode(self._columns, cleaned, count).matrix
        return matrix.toarray() if hasattr(matrix, "toarray") else matrix

    def _of_dicts(self, rows: Sequence[Any]) -> list[tuple[int, str, str]]:
        columns, faults = self._columns, []
        names = {column.name for column in columns}
        for place, row in enumerate(rows):
            if len(faults) >= _MOST_FAULTS:
                break
            if not isinstance(row, Mapping):
                faults.append((place, "row", "an object with the schema's fields is needed"))
                continue
            if not row.keys() <= names:
                faults.append((place, "row", "it has a field that the schema does not declare"))
            for column in columns:
                if column.name not in row:
                    faults.append((place, column.name, "the field is missing"))
                    continue
                cell = row[column.name]
                if column.numeric and not _number(cell) and not isinstance(cell, bool):
                    faults.append((place, column.name, "a finite number or null is needed"))
                elif not column.numeric and not (cell is None or isinstance(cell, str | bool | int | float)):
                    faults.append((place, column.name, "text, a number or null is needed"))
                elif cell is None and column.missing == "reject":
                    faults.append((place, column.name, "the field must not be null"))
        return faults


def _codes(column: Any) -> dict[str, int]:
    """Return the codes of the names of levels, as the table reads them: none reads as missing."""
    from confide.schema import arrays

    return dict(zip(column.levels, arrays.codes(list(column.levels), column).tolist()))


def _unheard(*seen: object) -> None:
    """Take notice of nothing."""


def _cells(cells: list[Any]) -> NDArray[Any]:
    """Return cells as objects, whatever they hold."""
    held = np.empty(len(cells), dtype=object)
    held[:] = cells
    return held


def _number(cell: Any) -> bool:
    # float(10**400) overflows: an integer past double range is past every bound, but no number to read.
    if cell is None or isinstance(cell, bool):
        return cell is None
    return isinstance(cell, int | float) and abs(cell) <= 1.7976931348623157e308


def _of_lists(rows: Sequence[Any], width: int) -> list[tuple[int, str, str]]:
    faults = []
    for place, row in enumerate(rows):
        if not isinstance(row, list | tuple) or len(row) != width:
            faults.append((place, "row", f"a list of {width} numbers is needed"))
            continue
        faults += [
            (place, f"column {at}", "a finite number is needed")
            for at, cell in enumerate(row)
            if not _number(cell)
        ]
    return faults
