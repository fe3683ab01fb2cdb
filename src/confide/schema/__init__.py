"""Columns, roles, bounds, encoders and readers: the only door through which a table enters.

Everything a mechanism may know about a table without paying for it (names, roles, bounds, categories, who
declared what public) is in a `Schema`; a `Table` is data cleaned by that schema alone, so that neighbouring
tables take the same path. Names load on first use, so importing this package costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from confide.lazy import lazy

if TYPE_CHECKING:
    from confide.schema.column import Column
    from confide.schema.encode import Encoded
    from confide.schema.model import Schema
    from confide.schema.rules import Problem, SchemaFileError
    from confide.schema.scan import ChunkedTable
    from confide.schema.table import Gram, Table

_HOMES = {
    "ChunkedTable": "scan",
    "Column": "column",
    "Encoded": "encode",
    "Gram": "table",
    "Problem": "rules",
    "Schema": "model",
    "SchemaFileError": "rules",
    "Table": "table",
}

__all__ = ["ChunkedTable", "Column", "Encoded", "Gram", "Problem", "Schema", "SchemaFileError", "Table"]


__getattr__, __dir__ = lazy(__name__, _HOMES)
