"""Rows that a released model is asked about: raw ones through the model's schema, encoded ones by name."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from confide.errors import DataError
from confide.schema.encode import Encoded, encode
from confide.schema.loose import attribute, has, matrix_of
from confide.schema.model import Schema

if TYPE_CHECKING:
    from confide.schema.table import Table


def table_of(X: Any, features: Mapping[str, Any] | None, names: Sequence[str]) -> Any:
    """Return a `Table` or `ChunkedTable` of raw rows, or a matrix of the encoded columns `names`.

    ==================================================  ===================================================
    rows                                                how they are read
    ==================================================  ===================================================
    frame, dict of columns, list of dicts, file         by the names of the model's columns
    array, sparse matrix or list of rows                raw cells, in the order of the model's columns
    `Encoded`, such as ``table.public``                 encoded columns, by their names
    `Table`, `ChunkedTable`                             as it is
    frame or dicts, for a model fitted on arrays        numbers, by the names of the columns of the fit
    array, for a model fitted on arrays                 as it is
    ==================================================  ===================================================

    Parameters
    ----------
    X : see the table
    features : dict or None
        Declaration of the columns that the model reads (`Schema.to_dict`); None for a model on arrays.
    names : sequence of str
        Encoded columns that the model reads.

    Raises
    ------
    DataError
        Where a column is missing, or an array has another number of columns.

    Warns
    -----
    UserWarning
        Of raw cells that do not fit the declaration (`odd.Tally`): rows to predict for are public to the
        caller.
    """
    if isinstance(X, Encoded):
        return columns_of(X, names)
    if has(X, "public_chunks"):
        return X
    path = isinstance(X, str | PathLike)
    if features is None:
        if path:
            raise DataError(
                "The model was fitted on arrays and has no schema that reads a file.",
                f"Pass an array of shape (n, {len(names)}), or a frame with its columns.",
            )
        return _numbers(X, names)
    from confide.schema.sources import frame_columns, is_dask
    from confide.schema.table import Table

    schema = Schema.from_dict(features)
    if path or is_dask(X):
        return Table.scan(X, schema).counted()
    X = matrix_of(_records(X))
    shape = getattr(X, "shape", None)
    if not _named(X) and isinstance(shape, tuple) and (len(shape) != 2 or shape[1] != len(schema.names)):
        listed = ", ".join(schema.names[:6]) + (", ..." if len(schema.names) > 6 else "")
        raise DataError(
            f"The rows have shape {shape}, and the model reads {len(schema.names)} raw columns: {listed}.",
            "Pass them in this order, or a frame with their names; encoded columns as table.public.",
        )
    return _cleaned(schema, frame_columns(X, schema, None)[0])


def read_rows(path: str | PathLike[str], schema: Schema, delimiter: str | None = None) -> Table:
    """Return the rows of a file, all of them public, with the warning of `table_of`.

    Raises
    ------
    DataError
        As in `Table.read`.
    """
    from confide.schema.sources import FileSource, check_names

    source = FileSource(Path(path), delimiter)
    check_names(source.names, schema, quote=False)
    (columns,) = source.chunks(schema.names, None)
    return _cleaned(schema, columns)


def _cleaned(schema: Schema, columns: Mapping[str, Any]) -> Table:
    from confide.schema.odd import Tally
    from confide.schema.table import build

    tally = Tally()
    table = build(schema, columns, None, notice=tally.add)
    tally.warn()
    return table


def columns_of(block: Encoded, names: Sequence[str]) -> Any:
    """Return the columns `names` of an encoded block, in this order.

    Raises
    ------
    DataError
    """
    if tuple(names) == tuple(block.names):
        return block.matrix
    places = {name: place for place, name in enumerate(block.names)}
    missing = [name for name in names if name not in places]
    if missing:
        raise DataError(
            f"The encoded columns lack {', '.join(map(repr, missing[:5]))}.",
            "Read the table with the schema of the fit.",
        )
    return block.matrix[:, [places[name] for name in names]]


def _numbers(X: Any, names: Sequence[str]) -> Any:
    """Return the named columns of a frame or of records as numbers; an array as it is."""
    X = _records(X)
    if not _named(X):
        return X
    from confide.schema.arrays import arrow_array, numbers
    from confide.schema.sources import columns_by_name

    columns, n = columns_by_name(X, names)
    matrix, odd = np.empty((n, len(names))), []
    for place, name in enumerate(names):
        matrix[:, place] = numbers(arrow_array(columns[name]))
        gaps = int(np.isnan(matrix[:, place]).sum())
        if gaps:
            odd.append(f"{name!r}: {gaps} of {n}")
    if odd:
        more = f"; and {len(odd) - 5} columns more" if len(odd) > 5 else ""
        raise DataError(
            f"Cells of the rows are no numbers: {'; '.join(odd[:5])}{more}.",
            "Encode and impute them as for the fit, which took numbers.",
        )
    return matrix


def _named(X: Any) -> bool:
    """Whether rows have names for their columns."""
    if has(X, "tocsr"):  # SciPy's dictionary of keys is a dict
        return False
    structured = getattr(attribute(X, "dtype"), "names", None)
    return has(X, "columns") or has(X, "column_names") or isinstance(X, Mapping) or bool(structured)


def _records(X: Any) -> Any:
    """Return a list of dicts, one a row, as a dict of columns, a lazy frame collected, others as they are."""
    if has(X, "collect_schema") and has(X, "collect"):
        return X.collect()
    if not isinstance(X, list | tuple) or not X or not all(isinstance(row, Mapping) for row in X):
        return X
    names = dict.fromkeys(name for row in X for name in row)
    return {str(name): [row.get(name) for row in X] for name in names}


def stacked(blocks: Iterable[Any], width: int) -> Any:
    """Return blocks of encoded rows as one matrix, sparse where one of them is."""
    parts = list(blocks)
    if len(parts) == 1:
        return parts[0]
    if any(hasattr(part, "tocsr") for part in parts):
        from scipy.sparse import vstack

        return vstack(parts).tocsr()
    return np.concatenate(parts) if parts else np.empty((0, width))


#: Format tag of a saved model -> (what it is, what reads it).
FORMATS = {
    "confide-linear-model/1": ("a linear model", "confide.training.LinearModel.load"),
    "confide-table-model/1": ("a model of a table", "confide.training.TableModel.load"),
    "confide-sparse-model/1": ("a sparse model", "confide.pipeline.SparseModel.load"),
}


def saved_model(path: str | PathLike[str]) -> Mapping[str, Any]:
    """Return the plain values of a model in a JSON file: the model itself, or a result that holds one.

    Raises
    ------
    DataError
        For a file that is not JSON, or holds no model. Nothing in the file is executed.
    """
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(
            f"The file {path} cannot be read ({error.strerror}).", "Name a file that `save` or --out wrote."
        ) from None
    except ValueError:
        raise DataError(f"The file {path} is no JSON.", "Name a file that `save` or --out wrote.") from None
    if isinstance(data, dict) and "format" not in data and isinstance(data.get("model"), dict):
        data = data["model"]
    if not isinstance(data, dict):
        raise DataError(f"The file {path} holds no model.", "Name a file that `save` or --out wrote.")
    return data


def check_format(data: Mapping[str, Any], wanted: str) -> None:
    """Refuse a model of another format, by what it is.

    Raises
    ------
    DataError
    """
    found = data.get("format")
    if found == wanted:
        return
    if isinstance(found, str) and found in FORMATS:
        what, loader = FORMATS[found]
        raise DataError(f"The file holds {what} ({found!r}).", f"Read it with {loader}.")
    if found is None and isinstance(data.get("support"), list):
        raise DataError(
            "The file holds a support without coefficients: the result of a selection.",
            "Select with --fit (confide.pipeline.select_and_fit) for a model that predicts.",
        )
    raise DataError(f"The model's format is {str(found)[:40]!r}.", f"Pass one of {wanted!r}.")


def encoded_as(X: Any, schema: Schema, names: tuple[str, ...]) -> Any:
    """Return the encoded columns `names` of a table, [n, k]; only the columns of `schema` are read.

    Parameters
    ----------
    X : Table or ChunkedTable
    schema : Schema
        Columns that hold `names`, as the model's fit declared them.
    names : tuple of str, length k
        Of encoded columns.

    Raises
    ------
    DataError
        If the table declares one of the columns otherwise than the fit did.
    """
    for column in schema.columns:
        if column.name not in X.schema.names or _encoding(X.schema[column.name]) != _encoding(column):
            raise DataError(
                f"The table does not declare column {column.name!r} as the fit did.",
                "Read it with the schema of the fit.",
            )
    order = [name for column in schema.columns for name in column.feature_names]
    places = [order.index(name) for name in names]

    def block(part: Any) -> Any:
        values = {column.name: part.values(column.name) for column in schema.columns}
        return encode(schema.columns, values, part.n_rows).matrix[:, places]

    return stacked(map(block, X.chunks()), len(names))


def _encoding(column: Any) -> dict[str, Any]:
    """Return what of a declaration decides how cells are encoded."""
    words = ("role", "unit", "declared_by", "note", "missing")
    return {key: value for key, value in column.to_dict().items() if key not in words}
