"""What an id of a row names: every cell has a meaning, and none raises.

Under ADD_REMOVE_ONE an id is part of its person, so one cell may decide neither an exception nor what another
cell means. Refused is what is declared: the type of an array, its shape, the number of ids. A list and an
array of objects declare no type, and are read cell by cell, with what stands for no value as in an id column
of a table (`confide.schema.cells`).

==============================================  =======================================================
cell                                            what it names
==============================================  =======================================================
1, 1.0, True, ``np.int8(1)``, ``Decimal(1)``    one id, as Python compares them; 1.5 is another
"1", and b"1"                                   two more ids; text is compared letter by letter
None, NaN, NaT, ``pd.NA``, blanks, "NA", "nan"  no id: see below
dates, times, UUIDs                             an id by their text, which no text and no number equals
a tuple or list of such cells                   one id; no id where one of them is none. Of length 1: its cell
anything else                                   no id
an array of floats, truth values, times,        DataError by its type: floats have lost digits of long numbers
complex numbers
text, a set, a dict, an iterator, a matrix      DataError: no sequence of ids
==============================================  =======================================================

**A row without an id** is left out where the unit is a person (`confide.prediction.Persons`), as a table
leaves it out: nothing is a function of it. Were all of them one person, those who are in truth would be
protected together and not each. Where the unit is a row it stands for itself: it is placed as if no ids were
given, by its content or, under the replacement relations, by its number, which is public.

*Neighbours stay neighbours.* What a row's id names is a function of that cell alone. So rows that two tables
share have the same names in both, and a unit that comes, goes or changes does so under its own name alone:
the tables differ in rows of one name (a person), of none at all (left out), or in one row, whose place is a
function of itself and of public numbers. That is what each certificate's proof asks of ids.
"""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Mapping, Set
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from confide.errors import DataError
from confide.schema import cells, loose

_NUMBERS = (int, float, Decimal, Fraction)
_NAMED = (datetime.date, datetime.time, uuid.UUID)


def names(ids: Any) -> list[bytes | None]:
    """Return what each id names; None where it is no id.

    Parameters
    ----------
    ids : list, tuple, range, array or series [n]

    Raises
    ------
    DataError
        By the declared type or shape.
    """
    check_ids(ids)
    return [_name(cell) for cell in (ids.tolist() if isinstance(ids, np.ndarray) else list(ids))]


def check_ids(ids: Any, rows: int | None = None) -> None:
    """Refuse ids by their declared type, shape and number; no cell is looked at.

    Raises
    ------
    DataError
    """
    shape = loose.attribute(ids, "shape")
    if isinstance(shape, tuple) and len(shape) != 1:
        raise DataError(f"The ids have shape {shape}.", "Pass one id a row.")
    if isinstance(ids, str | bytes | bytearray | Mapping | Set) or not hasattr(ids, "__len__"):
        raise DataError(f"The ids are a {type(ids).__name__}.", "Pass a list, array or series of them.")
    native = ids.to_native() if loose.has(ids, "to_native") else ids
    declared = loose.attribute(native, "dtype", loose.attribute(native, "type"))  # the latter of Arrow
    kind = loose.kind_of_type(declared)
    if kind in ("times", "complex") or (kind == "numbers" and not _whole(declared)):
        raise DataError(
            f"The ids are of type {declared}.",
            "Pass integers, text or bytes, of a type that is declared and not inferred from cells.",
        )
    if rows is not None and len(ids) != rows:
        # Without the number of rows, which may be secret.
        raise DataError("There is not one id for each row.", "Pass one id a row.")


def _whole(declared: Any) -> bool:
    """Return whether a type of numbers holds integers alone."""
    for name in ("pyarrow_dtype", "subtype", "value_type"):
        inner = getattr(declared, name, None)
        if inner is not None:
            return _whole(inner)
    categories = getattr(getattr(declared, "categories", None), "dtype", None)
    if categories is not None:
        return _whole(categories)
    kind = getattr(declared, "kind", None)  # of NumPy and pandas; the others say it by name
    return kind in ("i", "u") if isinstance(kind, str) else "int" in str(declared).lower()


def _name(cell: Any) -> bytes | None:
    if type(cell) is int and cell.bit_length() < 64:  # what most are, without the steps of `cells.label`
        return b"i%d" % cell
    if type(cell) is str:
        return _text(cell)
    try:
        cell = loose.unwrapped(cell)
        if not isinstance(cell, list | tuple):
            return _single(cell)
        parts = [_single(part) for part in cell]
    except Exception:  # whatever stands in the cell
        return None
    held = [part for part in parts if part is not None]
    if not held or len(held) < len(parts):
        return None
    return b"t" + b"".join(b"%d:" % len(part) + part for part in held)


def _single(cell: Any) -> bytes | None:
    if isinstance(cell, bytes | bytearray):
        return None if cells.label(cell)[1] else b"b" + bytes(cell)
    cell = cells._plain(cell)
    if isinstance(cell, str):
        return _text(cell)
    text, missing = cells.label(cell)
    if missing:
        return None
    if isinstance(cell, _NUMBERS):
        return b"i" + text.encode()
    return b"o" + text.encode() if isinstance(cell, _NAMED) else None


def _text(cell: str) -> bytes | None:
    if cell.strip(cells.BLANKS).lower() in cells.MISSING_WORDS:
        return None
    return b"s" + cell.encode("utf-8", "surrogatepass")
