"""A table of secrets, cleaned and encoded by its schema alone."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from confide.errors import DataError, ParameterError, SchemaError, UnsupportedError
from confide.schema.encode import Encoded, encode
from confide.schema.loose import declared_kind
from confide.schema.model import Schema
from confide.schema.persons import PersonLimiter

if TYPE_CHECKING:
    from confide.schema.column import Column
    from confide.schema.scan import ChunkedTable

T = TypeVar("T")


@dataclass(frozen=True)
class Gram:
    """Gram matrix of the public design with a constant in front, and the number of its rows.

    Attributes
    ----------
    matrix : float64 array [d, d]
        Sum over rows of x x', x = (1, encoded public columns).
    n_rows : int
    names : tuple of str, length d
        ``"(constant)"`` first.
    """

    matrix: np.ndarray
    n_rows: int
    names: tuple[str, ...]


class Passes:
    """One-pass sums over the chunks of a table; what `Table` and `ChunkedTable` share."""

    schema: Schema

    def chunks(self) -> Iterator[Table]:
        """Yield the table in pieces, in order."""
        raise NotImplementedError

    def public_chunks(self) -> Iterator[Table]:
        """Yield the same pieces for a pass that needs public columns and ids alone."""
        return self.chunks()

    @property
    def unit(self) -> str:
        """What one privacy unit is called: ``"row"``, ``"person"``, or the schema's word."""
        return self.schema.unit

    @property
    def label_bounds(self) -> tuple[float, float]:
        """Declared bounds (lo, hi) of `label`, after its transform."""
        return _label_column(self.schema).bounds

    def accumulate(self, function: Callable[[Table], T], *, public: bool = False) -> T:
        """Return the sum of ``function(chunk)`` over all chunks, in one pass.

        Parameters
        ----------
        function : callable
            From a `Table` to a number, an array, or a tuple of them; always of the same shapes.
        public : bool
            Whether public columns and ids are enough: the others are then not read.

        Notes
        -----
        A plain sum: it protects nobody. A sum that involves private cells is a statistic, to be released
        by a mechanism and never looked at.
        """
        total: Any = None
        for chunk in self.public_chunks() if public else self.chunks():
            part: Any = function(chunk)
            if total is None:
                total = part
            elif isinstance(part, tuple):
                total = tuple(a + b for a, b in zip(total, part, strict=True))
            else:
                total = total + part
        return total

    def gram(self) -> Gram:
        """Return the Gram matrix of the public columns with a constant, in one pass.

        Public under the replacement relations (label DP and semi-sensitive features), where public columns
        and n are; under ADD_REMOVE_ONE and REPLACE_ONE it is a private statistic.
        """
        names = ("(constant)", *(name for column in self.schema.public for name in column.feature_names))

        def part(chunk: Table) -> tuple[np.ndarray, int]:
            block = chunk.public.matrix
            square = block.T @ block
            out = np.empty((len(names), len(names)))
            out[0, 0] = chunk.n_rows
            out[0, 1:] = out[1:, 0] = np.asarray(block.sum(axis=0)).reshape(-1)
            out[1:, 1:] = square if isinstance(square, np.ndarray) else square.toarray()
            return out, chunk.n_rows

        matrix, n_rows = self.accumulate(part, public=True)
        return Gram((matrix + matrix.T) / 2, n_rows, names)

    def content_tag(self, key: bytes) -> str:
        """Return a keyed tag (hex) of the cleaned content, to tell versions of a dataset apart.

        HMAC-SHA256 over the names, roles and cleaned values in row order, so that the same data from CSV,
        Parquet or a frame, in one piece or in chunks, have the same tag. Without the key the tag tells
        nothing; with it, it tells whether two tables are equal: keep key and tag as secret as the data.

        Parameters
        ----------
        key : bytes
            At least 16 bytes.
        """
        if not isinstance(key, bytes) or len(key) < 16:
            raise ParameterError("The 'key' of a content tag is too short.", "Pass at least 16 random bytes.")
        columns = self.schema.columns
        digests = [hmac.new(key, f"{c.name}\0{c.role}\0{c.kind}".encode(), hashlib.sha256) for c in columns]
        n_rows = 0
        for chunk in self.chunks():
            n_rows += chunk.n_rows
            for column, digest in zip(columns, digests, strict=True):
                values = chunk.values(column.name)
                digest.update(np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("<")).data)
        outer = hmac.new(key, f"confide-content-1\0{n_rows}\0".encode(), hashlib.sha256)
        for digest in digests:
            outer.update(digest.digest())
        return outer.hexdigest()


class _Cells(dict[str, np.ndarray]):
    """Cleaned columns by name; those with a function in `later` are cleaned when first asked for."""

    def __init__(
        self,
        ready: Mapping[str, np.ndarray],
        later: Mapping[str, Callable[[], np.ndarray]] | None = None,
    ) -> None:
        super().__init__(ready)
        self.later = dict(later or {})
        for values in self.values():
            values.setflags(write=False)

    def __missing__(self, name: str) -> np.ndarray:
        if name not in self.later:
            raise UnsupportedError(
                f"Column {name!r} was not read: the pass was for public columns alone.", "Use chunks()."
            )
        values = self.later[name]()
        values.setflags(write=False)
        self[name] = values
        self.later.pop(name, None)
        return values


class Table(Passes):
    """Rows of a schema's columns in memory: bounded, complete, float64.

    Build one with `Table.read`, `Table.from_frame` or `Table.scan`.

    Attributes
    ----------
    schema : Schema
    n_rows : int
        Rows that count. With an id column: the first ``max_rows_per_id`` rows of each id. The number is
        secret under ADD_REMOVE_ONE and public under the replacement relations.

    Notes
    -----
    Cleaning is per cell (see `Column`): changing one row's cells changes that row of the matrices alone,
    raises nothing, and is in no message. ``repr`` shows the schema only. Front doors whose relation leaves
    public columns public warn of text in those that are declared numeric (`telling`).

    A table from a file keeps the cells of its label and private columns unparsed until they are asked for,
    so that a fit parses them after its charge. Arrow files, which are not copied into memory, and frames,
    which may change, are cleaned at once; that takes the same path whatever those cells hold.
    """

    def __init__(
        self,
        schema: Schema,
        cleaned: Mapping[str, np.ndarray],
        n_rows: int,
        kept: np.ndarray | None = None,
        text: tuple[str, ...] = (),
    ) -> None:
        self.schema = schema
        self.n_rows = n_rows
        self._cleaned = cleaned if isinstance(cleaned, _Cells) else _Cells(cleaned)
        self._kept = kept
        self._text = text

    # ---- ways in ------------------------------------------------------------------------------------------

    @classmethod
    def read(
        cls,
        path: str | Path,
        schema: Schema | str | Path | Mapping[str, Any],
        *,
        delimiter: str | None = None,
    ) -> Table:
        """Read a CSV, Parquet or Arrow IPC (Feather) file.

        Parameters
        ----------
        path : path
            The kind follows from the suffix (``.csv``, ``.tsv``, ``.csv.gz``, ``.parquet``, ``.arrow``,
            ``.feather``), else from the first bytes.
        schema : Schema, path of a ``schema.toml``, or dictionary
            Columns that it does not name are not read.
        delimiter : str, optional
            Of a CSV file; default comma (tab for ``.tsv``).

        Raises
        ------
        SchemaError
            If the schema is malformed; before the data file is opened.
        DataError
            If a declared column is missing or named twice, the file is damaged, or a public or id column
            whose policy is ``reject`` has a missing cell.
        """
        from confide.schema.sources import FileSource, check_names

        declared = Schema.of(schema)
        source = FileSource(path, delimiter)
        check_names(source.names, declared, quote=False)
        (columns,) = source.chunks(declared.names, None)
        return build(declared, columns, _limiter(declared), lazy=source.kind != "Arrow")

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        schema: Schema | str | Path | Mapping[str, Any],
        *,
        names: Sequence[Any] | None = None,
    ) -> Table:
        """Take a table from memory.

        Parameters
        ----------
        frame : pandas or polars frame, pyarrow Table, dictionary of arrays, structured or 2-D NumPy array
            Whatever narwhals reads. Order of columns and further columns do not matter; names compare as
            text. A 2-D array has its columns in the order of the schema, or of `names`.
        schema : Schema, path, or dictionary
        names : sequence, optional
            Column names of a 2-D array.

        Raises
        ------
        SchemaError, DataError
            As in `read`.
        """
        from confide.schema.sources import frame_columns

        declared = Schema.of(schema)
        columns, _ = frame_columns(frame, declared, names)
        return build(declared, columns, _limiter(declared))

    @classmethod
    def scan(
        cls,
        path: str | Path | Any,
        schema: Schema | str | Path | Mapping[str, Any],
        *,
        chunk_rows: int = 100_000,
        delimiter: str | None = None,
    ) -> ChunkedTable:
        """Open a file larger than memory, or a Dask data frame; see `ChunkedTable`."""
        from confide.schema.scan import ChunkedTable

        return ChunkedTable.open(path, schema, chunk_rows=chunk_rows, delimiter=delimiter)

    # ---- what mechanisms see ------------------------------------------------------------------------------

    def values(self, name: str) -> np.ndarray:
        """Return one cleaned column [n]: float64 numbers, int32 codes of levels, or int64 codes of ids."""
        return self._cleaned[self.schema[name].name]

    @cached_property
    def public(self) -> Encoded:
        """The public columns, encoded."""
        return encode(self.schema.public, self._cleaned, self.n_rows)

    @cached_property
    def private(self) -> Encoded:
        """The private columns without the label, encoded."""
        return encode(self.schema.private, self._cleaned, self.n_rows)

    @property
    def label(self) -> np.ndarray:
        """The label: float64 [n] within `label_bounds`; a categorical label as its level's number."""
        column = _label_column(self.schema)
        values = self._cleaned[column.name]
        return values if column.numeric else values.astype(np.float64)

    @property
    def ids(self) -> np.ndarray | None:
        """Codes of the ids, int64 [n], numbered by first appearance in the file; ``None`` without ids."""
        column = self.schema.id
        return None if column is None else self._cleaned[column.name]

    @property
    def kept(self) -> np.ndarray:
        """Which rows of the source count, bool [rows of the source]; to line results up with a frame.

        All of them without an id column. As secret as the ids are.
        """
        return np.ones(self.n_rows, dtype=bool) if self._kept is None else self._kept

    def chunks(self) -> Iterator[Table]:
        """Yield this table as the one chunk."""
        yield self

    def telling(self, told: set[str] | None = None) -> Table:
        """Warn of text in public numeric columns but those `told`; see `odd.telling`, which knows when to."""
        from confide.schema.odd import warn_of_text

        warn_of_text(self._text, set() if told is None else told)
        return self

    def take(self, rows: np.ndarray) -> Table:
        """Return some rows, by number or by mask, as a table of its own.

        The choice must not depend on private cells. Neighbours of the part are parts of neighbours.
        """
        rows = np.array(rows)
        part = {name: values[rows] for name, values in self._cleaned.items()}
        later = {name: partial(_rows_of, self._cleaned, name, rows) for name in self._cleaned.later}
        count = len(np.arange(self.n_rows)[rows])
        return Table(self.schema, _Cells(part, later), count, text=self._text)

    def __repr__(self) -> str:
        roles = ", ".join(f"{column.name} ({column.role})" for column in self.schema.columns)
        return f"Table({self.schema.name!r}: {roles}; unit: {self.unit})"


def _limiter(schema: Schema) -> PersonLimiter | None:
    return None if schema.max_rows_per_id is None else PersonLimiter(schema.max_rows_per_id)


def _label_column(schema: Schema) -> Any:
    if schema.label is None:
        raise SchemaError("The schema has no label column.", "Give one column role = 'label'.")
    return schema.label


def build(
    schema: Schema,
    columns: Mapping[str, Any],
    limiter: PersonLimiter | None,
    names: Sequence[str] | None = None,
    *,
    lazy: bool = False,
    notice: Callable[[Column, Any, np.ndarray], None] | None = None,
) -> Table:
    """Clean raw columns into a `Table`; `limiter` carries the ids seen in earlier chunks.

    Parameters
    ----------
    schema : Schema
    columns : mapping
        From names to raw cells, all of one length.
    limiter : PersonLimiter, optional
    names : sequence of str, optional
        Columns to clean; None: all.
    lazy : bool
        Whether private columns and the label are cleaned when first asked for; `columns` must not change.
    notice : callable, optional
        Hears of each column's raw cells, and of their numbers or codes. Only rows that are public altogether
        may have one that speaks. None: the table notes public columns with text, and says nothing.

    Raises
    ------
    DataError
        If a column whose policy is ``reject`` has a missing cell.
    """
    from confide.schema import arrays

    cleaned: dict[str, np.ndarray] = {}
    later: dict[str, Any] = {}
    kept: np.ndarray | None = None
    text: list[str] = []
    notice = notice or partial(_note, text)
    n_rows = len(next(iter(columns.values()), ()))
    for column in schema.columns:
        if names is not None and column.name not in names:
            continue
        raw = columns[column.name]
        if column.role == "label" and column.numeric:
            check_label(column, declared_kind(raw))
        if column.role == "id":
            assert limiter is not None
            keys, present = arrays.id_keys(arrays.arrow_array(raw))
            if column.missing == "reject" and not present.all():
                raise _rejected(column.name, "drop")
            cleaned[column.name], kept = limiter.admit(keys, present)
        elif lazy and column.role != "public":
            later[column.name] = raw
        else:
            cleaned[column.name] = _clean(column, raw, None, notice)
    if kept is not None and not kept.all():
        cleaned = {name: values[kept] for name, values in cleaned.items()}
    pending = {name: partial(_clean, schema[name], raw, kept, notice) for name, raw in later.items()}
    count = n_rows if kept is None else int(kept.sum())
    return Table(schema, _Cells(cleaned, pending), count, kept, tuple(text))


def _note(text: list[str], column: Column, cells: Any, values: np.ndarray) -> None:
    from confide.schema import odd

    if odd.public_text(column, cells, values):
        text.append(column.name)


def _clean(
    column: Column,
    raw: Any,
    kept: np.ndarray | None,
    notice: Callable[[Column, Any, np.ndarray], None],
) -> np.ndarray:
    from confide.schema import arrays

    cells = arrays.arrow_array(raw)
    if column.numeric:
        values = arrays.numbers(cells)
        if column.missing == "reject" and np.isnan(values).any():
            raise _rejected(column.name, "impute")
        notice(column, cells, values)
        values = column.clean(values)
    else:
        codes = arrays.codes(cells, column)
        if column.missing == "reject" and (codes == arrays.MISSING).any():
            raise _rejected(column.name, "impute")
        notice(column, cells, codes)
        values = np.where(codes == arrays.MISSING, np.int32(column.missing_code), codes)
    return values if kept is None or kept.all() else values[kept]


def check_label(column: Column, kind: str) -> None:
    """Refuse a numeric label whose declared type holds no number; text may spell one, as in a CSV file.

    Raises
    ------
    DataError
    """
    if kind in ("times", "complex"):
        raise DataError(
            f"The label {column.name!r} is declared numeric, and its cells are {kind}.",
            "Pass numbers, such as days since a public date.",
        )


def _rows_of(cells: _Cells, name: str, rows: np.ndarray) -> np.ndarray:
    return cells[name][rows]


def _rejected(name: str, instead: str) -> DataError:
    return DataError(
        f"Column {name!r} has missing cells, and its declared policy is to reject them.",
        f"Mend the data, or declare missing = {instead!r}.",
    )
