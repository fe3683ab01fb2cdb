"""Files and frames as columns of raw cells, without looking at what the cells hold.

No reader here infers a type from data: the columns of a CSV file are read as bytes and judged by
`confide.schema.cells`, those of a Parquet or Arrow file have the types of its metadata. Error messages
name columns and files, never rows or values, and leave out the inner message of a parser, which may quote
a row.
"""

from __future__ import annotations

import csv
import io
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from confide.errors import DataError, ParameterError, UnsupportedError
from confide.schema import cells
from confide.schema.model import Schema
from confide.schema.rules import suggestion

CSV_SUFFIXES = (".csv", ".tsv", ".txt")
PARQUET_SUFFIXES = (".parquet", ".pq")
ARROW_SUFFIXES = (".arrow", ".feather", ".ipc", ".arrows")
COMPRESSED = (".gz", ".bz2", ".zst")

#: A row of a CSV file may have so many bytes wherever it stands; one of twice as many is never read.
CSV_BLOCK = 1 << 24


class FileSource:
    """A table in a file: names of its columns at once, its rows by chunks.

    Parameters
    ----------
    path : path
        CSV (``.csv``, ``.tsv``, ``.txt``, also ``.gz``), Parquet, or Arrow IPC / Feather version 2.
    delimiter : str, optional
        Of a CSV file. Default: tab for ``.tsv``, else comma.

    Raises
    ------
    DataError
        If the file is missing, of no known kind, or damaged.
    """

    def __init__(self, path: str | Path, delimiter: str | None = None) -> None:
        if not isinstance(path, str | PathLike):
            raise DataError(
                f"A {type(path).__name__} is no path.",
                "Pass that of a file; Table.from_frame takes frames.",
            )
        self.path = Path(path)
        if not self.path.is_file():
            raise DataError(f"There is no file {str(path)!r}.", "Check the path.")
        self.kind = _kind(self.path)
        suffixes = [suffix.lower() for suffix in self.path.suffixes]
        self.delimiter = delimiter or ("\t" if ".tsv" in suffixes else ",")
        if len(self.delimiter) != 1 or self.delimiter in '"\r\n':
            raise ParameterError(f"The 'delimiter' parameter is {delimiter!r}.", "Pass one character.")
        try:
            self.names, self.types = self._open()
        except (pa.ArrowException, OSError, UnicodeDecodeError, csv.Error):
            raise self._damaged() from None

    def _damaged(self) -> DataError:
        return DataError(
            f"The file {self.path.name!r} cannot be read as {self.kind}.",
            "Check that it is complete and of the kind that its name says"
            + (
                ", that each row has as many fields as the header, and that none is longer than "
                f"{CSV_BLOCK >> 20} MiB."
                if self.kind == "CSV"
                else "."
            ),
        )

    def _open(self) -> tuple[list[str], list[pa.DataType | None]]:
        if self.kind == "Parquet":
            import pyarrow.parquet as pq

            schema = pq.read_schema(self.path)
        elif self.kind == "Arrow":
            with pa.memory_map(str(self.path)) as file:
                schema = _ipc(file).schema
        else:
            with pa.input_stream(str(self.path), compression="detect") as raw:
                text = io.TextIOWrapper(raw, encoding="utf-8-sig", errors="replace", newline="")
                header = next(csv.reader(text, delimiter=self.delimiter), None)
            if header is None:
                raise DataError(
                    f"The file {self.path.name!r} is empty.", "Its first line must name the columns."
                )
            return header, [None] * len(header)
        return list(schema.names), [_value_type(item) for item in schema.types]

    def chunks(self, wanted: Sequence[str], chunk_rows: int | None) -> Iterator[dict[str, pa.Array]]:
        """Yield the wanted columns, `chunk_rows` rows at a time (all at once for ``None``).

        The cuts fall at multiples of `chunk_rows`, whatever the blocks of the file; at least one chunk is
        yielded, which may have no rows.
        """
        try:
            yield from _recut(self._batches(wanted, chunk_rows or 65536), list(wanted), chunk_rows)
        except (pa.ArrowException, OSError, UnicodeDecodeError, KeyError):
            raise self._damaged() from None

    def _batches(self, wanted: Sequence[str], chunk_rows: int) -> Iterator[pa.RecordBatch]:
        if self.kind == "Parquet":
            import pyarrow.parquet as pq

            # A stream buffer, and no pre-buffering, keep a row group of any size out of memory.
            with pq.ParquetFile(self.path, buffer_size=1 << 20, pre_buffer=False) as file:
                yield from file.iter_batches(batch_size=chunk_rows, columns=list(wanted), use_threads=True)
        elif self.kind == "Arrow":
            with pa.memory_map(str(self.path)) as file:
                reader = _ipc(file)
                many = (
                    iter(reader)
                    if isinstance(reader, pa.RecordBatchStreamReader)
                    else map(reader.get_batch, range(reader.num_record_batches))
                )
                for batch in many:
                    yield batch.select(list(wanted))
        else:
            yield from self._csv_batches(wanted)

    def _csv_batches(self, wanted: Sequence[str]) -> Iterator[pa.RecordBatch]:
        from pyarrow import csv as arrow_csv

        reader = arrow_csv.open_csv(
            str(self.path),
            read_options=arrow_csv.ReadOptions(block_size=CSV_BLOCK),
            parse_options=arrow_csv.ParseOptions(
                delimiter=self.delimiter,
                newlines_in_values=True,
                # In a file of one column an empty line is a row with a missing value.
                ignore_empty_lines=len(self.names) > 1,
            ),
            convert_options=arrow_csv.ConvertOptions(
                include_columns=list(wanted),
                column_types={name: pa.large_binary() for name in self.names},
                strings_can_be_null=False,
                check_utf8=False,
            ),
        )
        with reader:
            yield from reader

    def count(self) -> int | None:
        """Return the number of rows where metadata tell it, else ``None``."""
        if self.kind == "Parquet":
            import pyarrow.parquet as pq

            return pq.read_metadata(self.path).num_rows
        return None


def _kind(path: Path) -> str:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    last = suffixes[-1] if suffixes else ""
    if last in PARQUET_SUFFIXES:
        return "Parquet"
    if last in ARROW_SUFFIXES:
        return "Arrow"
    if last in CSV_SUFFIXES or (
        last in (".gz", ".bz2", ".zst") and suffixes[-2:-1] and suffixes[-2] in CSV_SUFFIXES
    ):
        return "CSV"
    with path.open("rb") as file:
        start = file.read(6)
    if start[:4] == b"PAR1":
        return "Parquet"
    if start == b"ARROW1":
        return "Arrow"
    raise DataError(
        f"The kind of the file {path.name!r} is not known.",
        "Name it .csv, .tsv, .parquet, .arrow or .feather.",
    )


def _ipc(file: pa.NativeFile) -> pa.RecordBatchFileReader | pa.RecordBatchStreamReader:
    try:
        return pa.ipc.open_file(file)
    except pa.ArrowInvalid:
        file.seek(0)
        return pa.ipc.open_stream(file)


def _value_type(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _recut(
    batches: Iterator[pa.RecordBatch], wanted: list[str], chunk_rows: int | None
) -> Iterator[dict[str, pa.Array]]:
    from confide.schema.arrays import arrow_array

    held: list[pa.RecordBatch] = []
    rows, yielded, kinds = 0, False, None
    for batch in batches:
        kinds = batch.schema
        while chunk_rows is not None and rows + batch.num_rows >= chunk_rows:
            cut = chunk_rows - rows
            held.append(batch.slice(0, cut))
            table = pa.Table.from_batches(held, kinds)
            yielded = True
            yield {name: arrow_array(table.column(name)) for name in wanted}
            batch, held, rows = batch.slice(cut), [], 0
        if batch.num_rows:
            held.append(batch)
            rows += batch.num_rows
    if rows or not yielded:
        table = pa.Table.from_batches(held, kinds) if kinds is not None else None
        yield {name: pa.nulls(0) if table is None else arrow_array(table.column(name)) for name in wanted}


# ---- frames -----------------------------------------------------------------------------------------------


def frame_columns(
    frame: Any, schema: Schema, names: Sequence[Any] | None, wanted: Sequence[str] | None = None
) -> tuple[dict[str, Any], int]:
    """Return the declared columns of a frame in memory, raw, and the number of rows.

    With `wanted`: those alone, of a frame whose other columns may be missing.

    Raises
    ------
    DataError
        If a column is missing or named twice, lengths differ, or the object is no table.
    """
    if is_dask(frame):
        raise UnsupportedError("A Dask frame may be larger than memory.", "Use Table.scan(frame, schema).")
    if isinstance(frame, Mapping) or (isinstance(frame, np.ndarray) and frame.dtype.names):
        found = _named(frame)
    elif isinstance(frame, np.ndarray) or type(frame).__module__.startswith("scipy.sparse"):
        found = _matrix(frame, schema, names)
    else:
        found = _narwhals(frame)
    if wanted is None:
        check_names(list(found), schema)
        wanted = schema.names
    return _taken(found, wanted)


def columns_by_name(frame: Any, names: Sequence[str]) -> tuple[dict[str, Any], int]:
    """Return some columns of a frame, dict or structured array, raw, and the number of rows.

    Raises
    ------
    DataError
        If a column is missing or named twice, or the object is no table.
    """
    if is_dask(frame):
        frame = frame.compute()
    found = _named(frame) if isinstance(frame, Mapping | np.ndarray) else _narwhals(frame)
    missing = [name for name in names if name not in found]
    if missing:
        raise DataError(
            f"The rows have no column {', '.join(map(repr, missing[:5]))}.",
            f"Pass the columns of the fit: {', '.join(names[:6])}{', ...' if len(names) > 6 else ''}.",
        )
    return _taken(found, names)


def _named(frame: Any) -> dict[str, Any]:
    """Columns of a dict or of a structured array."""
    names = list(frame) if isinstance(frame, Mapping) else frame.dtype.names
    return _pairs([(str(name), frame[name]) for name in names])


def _taken(found: Mapping[str, Any], wanted: Sequence[str]) -> tuple[dict[str, Any], int]:
    columns = {name: found[name]() if callable(found[name]) else found[name] for name in wanted}
    lengths = {_length(values) for values in columns.values()}
    if len(lengths) > 1:
        raise DataError("The columns differ in length.", "Pass columns of one length.")
    return columns, max(lengths, default=0)


def looks_like_data(names: Sequence[str]) -> list[int]:
    """Return the numbers (from 1) of cells of a CSV file's first line that look like values, not names.

    Numbers, truth values and words for missing values do; so a file without a line of names is noticed where
    its first row holds one. An empty first cell is how an unnamed index is written, and is no sign.
    """
    return [
        place
        for place, name in enumerate(names, start=1)
        if not math.isnan(cells.number_of_text(name))
        or (cells.label_of_text(name)[1] and not (place == 1 and not name.strip(cells.BLANKS)))
    ]


def distinct_names(names: Sequence[str]) -> None:
    """Check that no column name stands twice.

    Raises
    ------
    DataError
        Names the column.
    """
    counts = Counter(names)
    for name in names:
        if counts[name] > 1:
            raise DataError(
                f"The column name {name!r} stands twice in the data.", "Rename one of the columns."
            )


def check_names(names: Sequence[str], schema: Schema, *, quote: bool = True) -> None:
    """Check that each declared column is there, and once; other names are ignored.

    Parameters
    ----------
    names : sequence of str
    schema : Schema
    quote : bool
        Whether a message may quote `names`. Those of a frame are names; the first line of a file may be its
        first row, so that only the declared names are told, and whether two others are equal is not.

    Raises
    ------
    DataError
        Names the column.
    """
    for name in schema.names:
        if name not in names:
            # Names of columns that nobody declared are still public structure: they may be offered.
            close = suggestion(name, names) if names and quote else ""
            remedy = close if close.startswith("Did") else "Add it, or take it out of the schema."
            raise DataError(f"The data have no column {name!r}.", remedy)
    distinct_names([name for name in names if name in schema.names])


def is_dask(thing: Any) -> bool:
    """Whether an object is a Dask collection, told without importing Dask."""
    return type(thing).__module__.split(".")[0] in ("dask", "dask_expr") and hasattr(thing, "npartitions")


def partitions(frame: Any, schema: Schema) -> Callable[[Sequence[str]], Iterator[dict[str, Any]]]:
    """Return a function that yields some declared columns of each partition of a Dask data frame."""
    if getattr(frame, "ndim", 0) != 2 or not hasattr(frame, "columns"):
        raise DataError(f"A Dask {type(frame).__name__} is no table.", "Pass a Dask data frame.")
    names = [str(name) for name in frame.columns]
    check_names(names, schema)

    def parts(wanted: Sequence[str]) -> Iterator[dict[str, Any]]:
        columns = [name for name in frame.columns if str(name) in wanted]
        for index in range(frame.npartitions):
            yield frame_columns(frame.partitions[index][columns].compute(), schema, None, wanted)[0]

    return parts


def _length(values: Any) -> int:
    if getattr(values, "ndim", 1) != 1 or isinstance(values, (str, bytes)) or not hasattr(values, "__len__"):
        raise DataError("A column is no sequence of cells.", "Pass one 1-D array or list for each column.")
    return len(values)


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    distinct_names([name for name, _ in pairs])
    return dict(pairs)


def _matrix(matrix: Any, schema: Schema, names: Sequence[Any] | None) -> dict[str, Any]:
    if matrix.ndim != 2:
        raise DataError(f"The array has {matrix.ndim} dimensions.", "Pass a matrix with one column a name.")
    labels = [str(name) for name in (schema.names if names is None else names)]
    if matrix.shape[1] != len(labels):
        raise DataError(
            f"The array has {matrix.shape[1]} columns for {len(labels)} names.",
            "Pass the columns in the order of the schema, or their names as 'names'.",
        )
    if not isinstance(matrix, np.ndarray):
        matrix = matrix.tocsc()
        return _pairs([(name, matrix[:, [i]].toarray().ravel()) for i, name in enumerate(labels)])
    return _pairs([(name, matrix[:, i]) for i, name in enumerate(labels)])


def _narwhals(frame: Any) -> dict[str, Any]:
    """Columns of a frame that narwhals knows."""
    import narwhals as nw

    # Only these two allow a name to stand twice; narwhals' own message for that differs between them.
    if isinstance(frame, pa.Table):
        distinct_names(frame.column_names)
    elif hasattr(frame, "iloc") and hasattr(frame, "columns"):
        distinct_names([str(name) for name in frame.columns])
    try:
        wrapped = nw.from_native(frame)
    except TypeError:
        raise DataError(
            f"An object of type {type(frame).__name__} is no table.",
            "Pass a pandas or polars frame, a pyarrow Table, a NumPy matrix, or a dictionary of arrays.",
        ) from None
    if isinstance(wrapped, nw.LazyFrame):
        wrapped = wrapped.collect()
    if not isinstance(wrapped, nw.DataFrame):
        raise DataError(f"An object of type {type(frame).__name__} is no table.", "Pass a data frame.")
    table: nw.DataFrame[Any] = wrapped
    return {str(name): (lambda name=name: table.get_column(name)) for name in table.columns}
