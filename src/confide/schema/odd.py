"""Cells of public rows and columns that do not fit their declaration: a person should hear of them.

A cell of a label or private column of a table is never mentioned. That of a public column is where the
relation of a release leaves public columns public, which only a front door knows: cleaning says nothing, and
front doors ask for a table that does (`telling`). All cells of rows that a released model is asked about may
be told: they are public to who asks.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from confide.privacy.adjacency import Adjacency
from confide.schema import arrays
from confide.schema.cells import label

if TYPE_CHECKING:
    from confide.schema.column import Column


def public_text(column: Column, cells: Any, values: np.ndarray) -> bool:
    """Return whether a public numeric column has cells that are neither numbers nor missing, such as text.

    Parameters
    ----------
    column : Column
        Of any other role or kind, nothing is looked at.
    cells : Arrow array, or list of cells
    values : float64 array [n]
        What `arrays.numbers` read.
    """
    return column.role == "public" and column.numeric and holds_text(cells, values)


def telling(table: Any, adjacency: Adjacency) -> Any:
    """Return a table that warns of text in public numeric columns where the relation leaves them public.

    ========================================  ==========================================================
    relation                                  what is told
    ========================================  ==========================================================
    REPLACE_LABEL, REPLACE_PRIVATE_PART       each such column, once
    REPLACE_ONE, ADD_REMOVE_ONE               nothing: one row would decide it, and the row is secret
    ========================================  ==========================================================

    Parameters
    ----------
    table : Table or ChunkedTable
        The second warns when its rows are read.
    adjacency : Adjacency
        Of the release that reads the table.
    """
    public = adjacency in (Adjacency.REPLACE_LABEL, Adjacency.REPLACE_PRIVATE_PART)
    return table.telling() if public and hasattr(table, "telling") else table


def warn_of_text(names: Iterable[str], told: set[str]) -> None:
    """Warn of public columns with text, once a column.

    Parameters
    ----------
    names : iterable of str
    told : set of str
        Columns that were told before; the others are added.

    Warns
    -----
    UserWarning
        The message does not depend on which cells, or how many, are text.
    """
    for name in names:
        if name in told:
            continue
        told.add(name)
        warnings.warn(
            f"Public column {name!r} is declared numeric and has cells that are no numbers, such as text "
            "or dates. They count as missing and are imputed. Mend the data, declare categories, or declare "
            "missing = 'reject' to have them refused.",
            UserWarning,
            stacklevel=6,
        )


class Tally:
    """Counts, column by column, what a model cannot use of the rows that it is asked about.

    ==========================================  =================================================
    cells                                       what is told
    ==========================================  =================================================
    text or dates in a numeric column           their number: they count as missing
    categories that are not declared            their number: they count as ``"other"``
    every cell of a column missing, of any n    that it is imputed throughout
    some cells missing                          nothing: the declared policy is what is wanted
    ==========================================  =================================================
    """

    def __init__(self) -> None:
        self._rows: dict[str, int] = {}
        self._odd: dict[str, int] = {}
        self._gaps: dict[str, int] = {}
        self._numeric: dict[str, bool] = {}

    def add(self, column: Column, cells: Any, values: np.ndarray) -> None:
        """Count the cells of one column in one chunk; `values` are numbers, or codes of levels."""
        name = column.name
        self._numeric[name] = column.numeric
        if column.numeric:
            gaps = np.isnan(values)
            odd = text_cells(cells, values)
        else:
            gaps = values == arrays.MISSING
            odd = int(arrays._by_distinct(cells, partial(_unknown, column), False).sum())
        for counts, value in ((self._rows, values.size), (self._odd, odd), (self._gaps, int(gaps.sum()))):
            counts[name] = counts.get(name, 0) + value

    def warn(self) -> None:
        """Warn once, of all columns.

        Warns
        -----
        UserWarning
        """
        told = [self._of(name) for name in self._rows if self._odd[name]]
        for name, rows in self._rows.items():
            if rows and self._gaps[name] == rows and not self._odd[name]:
                told.append(f"{name!r}: all {rows} cells missing, imputed")
        if told:
            more = f"; and {len(told) - 5} columns more" if len(told) > 5 else ""
            warnings.warn(
                f"The rows do not fit the schema of the fit: {'; '.join(told[:5])}{more}.",
                UserWarning,
                stacklevel=6,
            )

    def _of(self, name: str) -> str:
        what = (
            "no numbers, such as text or dates, imputed"
            if self._numeric[name]
            else "not a declared category, read as 'other'"
        )
        return f"{name!r}: {self._odd[name]} of {self._rows[name]} cells are {what}"


def holds_text(cells: Any, values: np.ndarray) -> bool:
    """Return whether a cell without a number stands for something else than a missing value."""
    return text_cells(cells, values) > 0


def text_cells(cells: Any, values: np.ndarray) -> int:
    """Return how many cells without a number stand for something else than a missing value."""
    import pyarrow as pa

    odd = np.isnan(values)
    if not odd.any():
        return 0
    if not isinstance(cells, list):
        kind = cells.type
        if pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_null(kind):
            return 0
        cells = cells.filter(pa.array(odd))
        return int(arrays._by_distinct(cells, _stand_for_something, False).sum())
    return sum(not label(cell)[1] for cell, none in zip(cells, odd.tolist(), strict=True) if none)


def _unknown(column: Column, distinct: list[Any]) -> np.ndarray:
    found = map(label, distinct)
    return np.array([not gone and text not in column.codes for text, gone in found], dtype=bool)


def _stand_for_something(distinct: list[Any]) -> np.ndarray:
    return np.array([not label(cell)[1] for cell in distinct], dtype=bool)
