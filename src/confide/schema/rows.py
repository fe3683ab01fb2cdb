"""Rows that a released model is asked about: raw ones through the model's schema, or a matrix as it is."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from confide.errors import DataError
from confide.schema.model import Schema


def table_of(X: Any, features: Mapping[str, Any] | None, width: int) -> Any:
    """Return a `Table` or `ChunkedTable` of raw rows; a table, or an encoded matrix, as it is.

    Parameters
    ----------
    X : frame, dict of columns, path, Table, ChunkedTable, or encoded matrix
    features : dict or None
        Declaration of the columns that the model reads (`Schema.to_dict`); None for a model on arrays.
    width : int
        Encoded columns, for the message.

    Raises
    ------
    DataError
        For raw rows and a model without a schema, or where a column of the schema is missing.
    """
    frame = hasattr(X, "columns") or hasattr(X, "column_names") or isinstance(X, Mapping)
    if not isinstance(X, str | PathLike) and (not frame or hasattr(X, "public_chunks")):
        return X
    if features is None:
        raise DataError(
            "The model was fitted on arrays and has no schema.", f"Pass an array of shape (n, {width})."
        )
    from confide.schema.table import Table

    schema = Schema.from_dict(features)
    return Table.scan(X, schema) if isinstance(X, str | PathLike) else Table.from_frame(X, schema)


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
    from confide.schema.encode import encode

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
