"""Tables larger than memory: the same cleaning, one chunk of rows at a time."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confide.errors import ParameterError
from confide.schema.loose import kind_of_type
from confide.schema.model import Schema
from confide.schema.persons import PersonLimiter
from confide.schema.sources import FileSource, check_names, is_dask, partitions
from confide.schema.table import Passes, Table, build, check_label

if TYPE_CHECKING:
    from confide.schema.odd import Tally


class ChunkedTable(Passes):
    """A table that is read anew, chunk by chunk, on each pass.

    Parameters
    ----------
    schema : Schema
    parts : callable
        From names of declared columns to a fresh iterator over chunks of them, raw (mappings from names to
        arrays).
    count : callable
        Returns the number of rows of the source where metadata tell it, else ``None``.
    tally : callable, optional
        Returns a fresh `odd.Tally` for each pass over rows that are public altogether.

    Notes
    -----
    Every chunk is what `Table.read` of the whole file would hold in those rows; with an id column, rows
    beyond ``max_rows_per_id`` are left out across all chunks, for 28 bytes of memory a distinct id. Memory
    is otherwise a few times ``chunk_rows`` times the number of columns times 8 bytes, plus the buffers of
    the file format (a Parquet page a column; 16 MB blocks of CSV).
    """

    def __init__(
        self,
        schema: Schema,
        parts: Callable[[Sequence[str]], Iterator[Mapping[str, Any]]],
        count: Callable[[], int | None] = lambda: None,
        tally: Callable[[], Tally] | None = None,
    ) -> None:
        self.schema = schema
        self._parts = parts
        self._count = count
        self._tally = tally
        self._told: set[str] | None = None

    @classmethod
    def open(
        cls,
        path: str | Path | Any,
        schema: Schema | str | Path | Mapping[str, Any],
        *,
        chunk_rows: int = 100_000,
        delimiter: str | None = None,
    ) -> ChunkedTable:
        """Open a CSV, Parquet or Arrow file, or a Dask frame; the errors are those of `Table.read`.

        Parameters
        ----------
        path : path, or Dask data frame
        chunk_rows : int
            Rows of the file in each chunk but the last. A Dask frame is taken by its own partitions, each
            computed (by whatever scheduler the user has set) when its turn comes.
        """
        if isinstance(chunk_rows, bool) or not isinstance(chunk_rows, int) or chunk_rows < 1:
            raise ParameterError(f"The 'chunk_rows' parameter is {chunk_rows!r}.", "Pass an integer >= 1.")
        declared = Schema.of(schema)
        if is_dask(path):
            dask: Any = path
            parts = partitions(dask, declared)
            check_types(declared, [str(name) for name in dask.columns], list(dask.dtypes))
            return cls(declared, parts)
        source = FileSource(path, delimiter)
        check_names(source.names, declared, quote=False)
        check_types(declared, source.names, source.types)
        return cls(declared, lambda names: source.chunks(names, chunk_rows), source.count)

    def chunks(self) -> Iterator[Table]:
        """Yield `Table` objects in file order; each call is a new pass over the file.

        The label and private columns of a chunk are parsed when they are asked for.
        """
        return self._tables(self.schema.names)

    def public_chunks(self) -> Iterator[Table]:
        """Yield the same rows with public and id columns alone; the others are not read from the file.

        A CSV file is split into cells all the same, and a table without public and id columns is read to
        count its rows; no cell of theirs is parsed.
        """
        names = [column.name for column in self.schema.columns if column.role in ("public", "id")]
        return self._tables(names or self.schema.names, names)

    def _tables(self, read: Sequence[str], cleaned: Sequence[str] | None = None) -> Iterator[Table]:
        rows = self.schema.max_rows_per_id
        limiter = None if rows is None else PersonLimiter(rows)
        if self._tally is None:
            for part in self._parts(read):
                table = build(self.schema, part, limiter, cleaned, lazy=True)
                yield table if self._told is None else table.telling(self._told)
            return
        tally = self._tally()
        for part in self._parts(read):
            yield build(self.schema, part, limiter, cleaned, notice=tally.add)
        tally.warn()

    def telling(self) -> ChunkedTable:
        """Return the same table, which warns of text in public numeric columns; see `odd.telling`."""
        made = copy.copy(self)
        made._told = set()
        return made

    def counted(self) -> ChunkedTable:
        """Return the same table for rows that are public altogether: each pass warns of odd cells."""
        from confide.schema.odd import Tally

        return ChunkedTable(self.schema, self._parts, self._count, Tally)

    @cached_property
    def n_rows(self) -> int:
        """Rows that count; from the file's metadata where they tell it, else by one pass."""
        count = self._count() if self.schema.id is None else None
        return count if count is not None else sum(chunk.n_rows for chunk in self.public_chunks())

    def __repr__(self) -> str:
        roles = ", ".join(f"{column.name} ({column.role})" for column in self.schema.columns)
        return f"ChunkedTable({self.schema.name!r}: {roles}; unit: {self.unit})"


def check_types(schema: Schema, names: Sequence[str], types: Sequence[Any]) -> None:
    """Refuse, before any cell is read, a label whose declared type holds no number; see `check_label`."""
    label = schema.label
    if label is not None and label.numeric:
        check_label(label, kind_of_type(types[list(names).index(label.name)]))
