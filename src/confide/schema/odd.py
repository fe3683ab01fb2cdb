"""Cells of public columns that hold no number where one was declared: a person should hear of them.

A cell of a label or private column is never mentioned. That of a public column may be: it is no secret.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from confide.schema import arrays
from confide.schema.cells import label

if TYPE_CHECKING:
    from confide.schema.column import Column


def warn_of_text(column: Column, cells: Any, values: np.ndarray) -> None:
    """Warn where a public numeric column has cells that are neither numbers nor missing, such as text.

    Parameters
    ----------
    column : Column
        Of any other role or kind, nothing is looked at.
    cells : Arrow array, or list of cells
    values : float64 array [n]
        What `arrays.numbers` read.

    Warns
    -----
    UserWarning
        Once a column: the message is the same for every chunk.
    """
    if column.role != "public" or not column.numeric or not holds_text(cells, values):
        return
    warnings.warn(
        f"Public column {column.name!r} is declared numeric and has cells that are no numbers, such as text "
        "or dates. They count as missing and are imputed. Mend the data, declare categories, or declare "
        "missing = 'reject' to have them refused.",
        UserWarning,
        stacklevel=5,
    )


def holds_text(cells: Any, values: np.ndarray) -> bool:
    """Return whether a cell without a number stands for something else than a missing value."""
    import pyarrow as pa

    odd = np.isnan(values)
    if not odd.any():
        return False
    if not isinstance(cells, list):
        kind = cells.type
        if pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_null(kind):
            return False
        cells = cells.filter(pa.array(odd))
        return bool(arrays._by_distinct(cells, _stand_for_something, False).any())
    return any(not label(cell)[1] for cell, none in zip(cells, odd.tolist(), strict=True) if none)


def _stand_for_something(distinct: list[Any]) -> np.ndarray:
    return np.array([not label(cell)[1] for cell in distinct], dtype=bool)
